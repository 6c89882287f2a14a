"""Clauses of every source follow each other without a click, also where one breaks off."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable

import numpy as np
import pytest

from agent.config import MediaSettings
from agent.errors import EngineError
from agent.media.codec import OPUS, Codec
from agent.media.codecs import make_encoder
from agent.media.encoded import EncodedSpeech, encode_speech
from agent.media.frames import Pcm
from agent.media.playout import Playout
from agent.media.resample import resample
from agent.speech.speaker import Speaker
from agent.tts.protocol import Speech
from agent.voicecache.edges import cut_edges

RATE = 24_000


def vowel(seconds: float, hz: float = 140.0, level: float = 6_000.0, rate_hz: int = RATE) -> Pcm:
    """Harmonics up to 2 kHz, cut out of a longer sound: it begins and ends in the middle of a wave."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz + 0.0011
    return np.asarray(level * sum(np.sin(2 * np.pi * hz * k * t) / k for k in range(1, 14)), np.int16)


def spoken_by_an_engine(seconds: float = 0.4) -> Pcm:
    """Faded at both ends, as engines of ours give it."""
    pcm = vowel(seconds)
    shape = np.minimum(1.0, np.minimum(np.arange(len(pcm)), np.arange(len(pcm))[::-1]) / (0.03 * RATE))
    return np.asarray(pcm * shape, np.int16)


def humming(seconds: float = 0.4) -> Pcm:
    """An engine that hums at -52 dBFS before and behind its speech, and stops doing so from one sample to the next."""
    hum = np.full(round(0.2 * RATE), 80, np.int16)
    return np.concatenate([hum, spoken_by_an_engine(seconds), hum])


def packets(pcm: Pcm, codec: Codec) -> EncodedSpeech:
    encoder = make_encoder(codec, MediaSettings())
    try:
        return encode_speech(resample(pcm, RATE, codec.sample_rate_hz), encoder)
    finally:
        encoder.close()


async def engine(pcm: Pcm, *, piece_s: float = 0.1, breaks_at_s: float | None = None) -> AsyncGenerator[Speech]:
    size = round(piece_s * RATE)
    for at in range(0, len(pcm), size):
        if breaks_at_s is not None and at >= breaks_at_s * RATE:
            raise EngineError("broken")
        yield Speech(pcm[at : at + size])


async def stored(pcm: Pcm, codec: Codec | None = None) -> AsyncGenerator[Speech]:
    cut, _ = cut_edges(pcm, [], RATE, 120)
    held = None if codec is None else packets(cut, codec)

    def find(wanted: Codec) -> EncodedSpeech | None:
        return held if wanted == codec else None

    yield Speech(cut, packets=find)


def heard(playout: Playout, speaker: Speaker, joints: list[int]) -> tuple[Pcm, list[int]]:
    """All that leaves, silence that fills a frame included, and where in it these positions of the playout are."""
    frames: list[Pcm] = []
    places: list[int] = []
    waiting = sorted(joints)
    while not playout.drained:
        began = playout.position
        frame = playout.read()
        assert frame is not None
        speaker.tick()
        while waiting and waiting[0] <= playout.position:
            places.append(len(frames) * playout.frame_samples + waiting.pop(0) - began)
        frames.append(frame)
    return np.concatenate(frames), places


def steps_at(pcm: Pcm, joints: list[int]) -> tuple[int, int]:
    """The greatest step of the signal within a quarter of a millisecond of a joint, and anywhere else."""
    steps = np.abs(np.diff(np.pad(pcm.astype(np.int32), 1)))
    near = np.zeros(len(steps), bool)
    for joint in joints:
        near[max(0, joint - 6) : joint + 7] = True
    return int(steps[near].max()), int(steps[~near].max())


Source = Callable[[], AsyncGenerator[Speech]]
SOURCES: dict[str, Source] = {
    "engine": lambda: engine(spoken_by_an_engine()),
    "abrupt engine": lambda: engine(vowel(0.37)),
    "stored": lambda: stored(humming()),
    "stored packets": lambda: stored(humming(), OPUS),
    "recording": lambda: engine(vowel(0.3, 90.0, 9_000.0), piece_s=1.0),
    "broken engine": lambda: engine(vowel(0.5), breaks_at_s=0.2),
}


@pytest.mark.parametrize("codec", [None, OPUS], ids=["samples", "packets"])
@pytest.mark.parametrize("second", SOURCES)
@pytest.mark.parametrize("first", SOURCES)
async def test_joints_step_no_more_than_speech_does(first: str, second: str, codec: Codec | None) -> None:
    playout = Playout(RATE, codec=codec)
    speaker = Speaker(playout, RATE)
    joints = [0]
    for name in (first, second, first):
        try:
            await speaker.say("clause ", SOURCES[name]())
        except EngineError:
            assert name == "broken engine"
        joints.append(playout.queued_samples)
    pcm, places = heard(playout, speaker, joints)
    assert len(places) == 4
    at_joints, inside = steps_at(pcm, places)
    assert at_joints < inside / 4


async def test_what_follows_a_clause_that_broke_off_need_not_wait_for_the_rest_of_it() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    with pytest.raises(EngineError):
        await speaker.say("one two three four", engine(vowel(0.5), breaks_at_s=0.2))
    assert 0.18 <= playout.queued_samples / RATE <= 0.2
    heard(playout, speaker, [])
    assert playout.drained
    assert speaker.heard()[1] != ""


@pytest.mark.parametrize("rate_hz", [8_000, 16_000])
async def test_an_engine_that_breaks_off_ends_softly_at_the_rate_of_the_call(rate_hz: int) -> None:
    playout = Playout(rate_hz)
    speaker = Speaker(playout, RATE)
    with pytest.raises(EngineError):
        await speaker.say("clause", engine(vowel(0.5), breaks_at_s=0.2))
    pcm, _ = heard(playout, speaker, [])
    end = int(np.flatnonzero(pcm)[-1])
    assert abs(int(pcm[end])) < np.abs(pcm.astype(np.int32)).max() / 20
