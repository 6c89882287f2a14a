"""What is missing continues what was there, and joins what comes without a step."""

from __future__ import annotations

import numpy as np
import pytest

from agent.media.concealment import Concealer


def voice(samples: int, hz: float) -> np.ndarray:
    t = np.arange(samples) / 16_000
    return (3_000 * sum(np.sin(2 * np.pi * k * hz * t) / k for k in range(1, 10))).astype(np.int16)


@pytest.mark.parametrize("hz", [80, 123, 210, 350])
def test_a_voice_goes_on_in_pitch_and_level(hz: float) -> None:
    pcm, concealer = voice(6_400, hz), Concealer()
    for at in range(0, 3_200, 320):
        concealer.heard(pcm[at : at + 320])
    made = np.concatenate((concealer.conceal(320), concealer.conceal(320))).astype(float)
    truth = pcm[3_200:3_840].astype(float)
    assert np.corrcoef(made, truth)[0, 1] > 0.8
    assert 0.8 < np.std(made) / np.std(truth) < 1.25


def test_neither_edge_of_a_gap_clicks() -> None:
    pcm, concealer = voice(9_600, 123), Concealer()
    out = []
    for n, at in enumerate(range(0, 9_600, 320)):
        out.append(concealer.conceal(320) if n in (10, 11, 20) else concealer.heard(pcm[at : at + 320]))
    steps = np.abs(np.diff(np.concatenate(out).astype(float), 2))
    inside = np.abs(np.diff(pcm.astype(float), 2)).max()
    assert steps.max() < 1.5 * inside


def test_nothing_heard_yet_is_silence() -> None:
    assert not Concealer().conceal(320).any()


def test_good_frames_pass_unchanged() -> None:
    pcm, concealer = voice(3_200, 200), Concealer()
    assert all(np.array_equal(concealer.heard(pcm[at : at + 320]), pcm[at : at + 320]) for at in range(0, 3_200, 320))
