"""No joint between clauses clicks, whatever the engine gives."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import numpy as np
import pytest

from agent.media.frames import Pcm
from agent.media.playout import Playout
from agent.speech.edges import SoftEdges, soften
from agent.speech.speaker import Speaker
from agent.tts.protocol import Speech

RATE = 24_000


def tone(seconds: float, phase: float = 0.0, hz: float = 180.0, peak: float = 12_000.0) -> Pcm:
    at = np.arange(round(seconds * RATE)) / RATE
    return (peak * np.cos(2 * np.pi * hz * at + phase)).astype(np.int16)


def steps(pcm: Pcm) -> np.ndarray:
    return np.abs(np.diff(pcm.astype(np.int32)))


async def played(*clauses: Pcm, piece_samples: int, rate_hz: int = RATE) -> tuple[Pcm, list[int]]:
    """All that leaves, and where each clause begins in it."""
    playout = Playout(rate_hz)
    speaker = Speaker(playout, RATE)
    starts = []
    for clause in clauses:

        async def speech(clause: Pcm = clause) -> AsyncGenerator[Speech]:
            for at in range(0, len(clause), piece_samples):
                yield Speech(clause[at : at + piece_samples])

        starts.append(playout.queued_samples)
        await speaker.say("x", speech())
    frames = []
    while (frame := playout.read()) is not None:
        frames.append(frame)
    return np.concatenate(frames), starts


@pytest.mark.parametrize("piece_samples", [7, 71, 480, 10_000])
@pytest.mark.parametrize("rate_hz", [24_000, 8_000])
async def test_the_step_at_a_joint_is_no_larger_than_those_inside_the_clauses(piece_samples: int, rate_hz: int) -> None:
    # Cut in the middle of a wave, at its greatest and in opposite phase: the loudest click there can be.
    out, starts = await played(tone(0.3), tone(0.3, np.pi), tone(0.3), piece_samples=piece_samples, rate_hz=rate_hz)
    inside = steps(out[rate_hz // 50 : starts[1] - rate_hz // 50]).max()
    for start in starts[1:]:
        assert steps(out[start - 20 : start + 20]).max() <= inside
    assert steps(np.concatenate([np.zeros(1, np.int16), out[:20]])).max() <= inside
    tail = out[np.flatnonzero(out)[-1] - 20 :]
    assert steps(np.append(tail, 0)).max() <= inside


async def test_a_clause_that_is_quiet_at_its_ends_is_left_as_it_is() -> None:
    clause = (tone(0.3) * np.hanning(round(0.3 * RATE))).astype(np.int16)
    assert soften(clause, RATE) is clause
    out, _ = await played(clause, piece_samples=100)
    assert np.array_equal(out[: len(clause)], clause)


@pytest.mark.parametrize("samples", [0, 1, 71, 72, 73, 144])
def test_a_short_clause_keeps_its_length(samples: int) -> None:
    edges = SoftEdges(RATE)
    pcm = np.full(samples, 5_000, np.int16)
    out = np.concatenate([edges.push(pcm), edges.finish()])
    assert len(out) == len(soften(pcm, RATE)) == samples
    assert not samples or (out[-1] == 0) or samples == 1
    assert pcm.all(), "what an engine gave is not written to"
