"""Clauses of every source follow each other without a click; stored ones leave as the packets they are kept as."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable

import numpy as np
import pytest

from agent.config import MediaSettings
from agent.errors import EngineError
from agent.media.codec import CODECS, G722, OPUS, PCMA, PCMU, Codec
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
    """The greatest step of the signal within 1 ms of a joint, and anywhere else."""
    steps = np.abs(np.diff(np.pad(pcm.astype(np.int32), 1)))
    near = np.zeros(len(steps), bool)
    for joint in joints:
        near[max(0, joint - 24) : joint + 25] = True
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
    playout = Playout(RATE, codec)
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


async def test_an_engine_whose_last_samples_have_left_already_is_led_to_zero_all_the_same() -> None:
    playout = Playout(RATE)
    speaker = Speaker(playout, RATE)
    out: list[Pcm] = []

    async def slow() -> AsyncGenerator[Speech]:
        yield Speech(vowel(0.4))
        while (frame := playout.read()) is not None:
            out.append(frame)

    await speaker.say("clause", slow())
    left = np.concatenate(out)
    rest, _ = heard(playout, speaker, [])
    steps = np.abs(np.diff(np.concatenate([left[-1:], rest, [0]]).astype(np.int32)))
    assert steps.max() < np.abs(np.diff(left.astype(np.int32))).max() / 4


@pytest.mark.parametrize("codec", CODECS)
async def test_a_stored_clause_leaves_as_its_packets_and_counts_as_the_same_speech(codec: Codec) -> None:
    playout = Playout(codec.sample_rate_hz, codec)
    speaker = Speaker(playout, RATE)
    pcm = spoken_by_an_engine(0.5)
    cut, _ = cut_edges(pcm, [], RATE, 120)
    wanted = packets(cut, codec)
    seconds = await speaker.say("clause", stored(pcm, codec))
    assert seconds == pytest.approx(len(cut) / RATE, abs=0.001)
    sent = []
    while not playout.drained:
        assert playout.read() is not None
        assert playout.encoded is not None
        sent.append(playout.encoded.payload)
    assert sent == list(wanted.payloads)
    assert speaker.heard() == ("clause", "")


@pytest.mark.parametrize(
    ("port", "held", "why"),
    [
        (None, OPUS, "a port of samples"),
        (PCMU, PCMA, "packets of another encoding"),
        (G722, None, "no packets yet"),
    ],
)
async def test_without_fitting_packets_a_stored_clause_leaves_as_samples(
    port: Codec | None, held: Codec | None, why: str
) -> None:
    rate_hz = RATE if port is None else port.sample_rate_hz
    playout = Playout(rate_hz, port)
    speaker = Speaker(playout, RATE)
    seconds = await speaker.say("clause", stored(spoken_by_an_engine(0.5), held))
    assert seconds == pytest.approx(0.5, abs=0.01), why
    assert playout.read() is not None
    assert playout.encoded is None


async def test_more_packets_than_the_playout_has_room_for_leave_as_samples() -> None:
    playout = Playout(8_000, PCMU)
    speaker = Speaker(playout, RATE)
    task = asyncio.create_task(speaker.say("clause", stored(vowel(25.0), PCMU)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert playout.read() is not None
    assert playout.encoded is None
    speaker.stop()
    await asyncio.wait_for(task, 5)


async def test_packets_wait_for_room_and_are_dropped_with_the_reply() -> None:
    playout = Playout(8_000, PCMU)
    speaker = Speaker(playout, RATE)
    await speaker.say("one", stored(vowel(15.0), PCMU))
    waiting = asyncio.create_task(speaker.say("two", stored(vowel(15.0), PCMU)))
    for _ in range(10):
        await asyncio.sleep(0)
    assert not waiting.done()
    speaker.stop()
    assert await asyncio.wait_for(waiting, 5) == 0.0


def test_what_an_engine_hums_is_faded_at_both_ends_of_stored_speech() -> None:
    pcm = humming()
    cut, _ = cut_edges(pcm, [], RATE, 120)
    assert abs(int(cut[0])) <= 1
    assert abs(int(cut[-1])) <= 1
    loud = np.flatnonzero(np.abs(pcm) > 1_000)
    first = np.flatnonzero(np.abs(cut) > 1_000)[0]
    length = loud[-1] - loud[0]
    assert np.array_equal(cut[first : first + length], pcm[loud[0] : loud[0] + length])
