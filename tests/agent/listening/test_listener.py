"""One call's ear, on recorded speech through the real detector."""

from __future__ import annotations

import asyncio
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soxr

from agent.config import ListeningSettings
from agent.errors import MediaError
from agent.listening.graph import Float32, SileroGraph
from agent.listening.listener import Heard, Listener, VoiceAudio, VoiceLong, VoiceStarted, VoiceStopped
from agent.listening.silero import VadEngine
from agent.media.frames import Pcm
from tests.agent.listening.hearing import (
    Clip,
    at_peak_db,
    frames,
    hear,
    hum,
    loud_bounds_ms,
    segments,
    silence,
    white_noise,
)

# One a speaker or recording condition; clips whose speaker makes no pause that closes a segment.
FLUENT = ["sb-spk1_snt1", "sb-spk2_snt2", "newhome", "goforward", "LJ001-0013", "librivox-0880", "zh-cosy"]


def covers(found: list, pcm: Pcm, offset_ms: int, *, slack_ms: int = 120, below_peak_db: float = 25) -> None:
    """What a recogniser gets (300 ms before the start, to the end) holds the first to the last energetic frame."""
    first, last = loud_bounds_ms(pcm, below_peak_db)
    assert found[0].start_ms - 300 <= offset_ms + first + slack_ms - 120
    assert found[-1].end_ms >= offset_ms + last - slack_ms
    assert found[0].start_ms >= offset_ms - 200
    assert found[-1].end_ms <= offset_ms + len(pcm) // 16 + 400


@pytest.mark.parametrize("name", FLUENT)
async def test_a_fluent_sentence_is_one_segment_around_its_energy(
    vad: VadEngine, clips: dict[str, Clip], name: str
) -> None:
    pcm = clips[name].pcm
    settings = ListeningSettings(stop_ms=192)
    found = segments(await hear(vad, np.concatenate([silence(1), pcm, silence(1)]), settings))
    assert len(found) == 1
    covers(found, pcm, 1000)
    assert 0.5 * (found[0].end_ms - found[0].start_ms) < found[0].speech_ms <= found[0].end_ms - found[0].start_ms


@pytest.mark.parametrize(("name", "at_most"), [("jfk", 6), ("LJ001-0025", 6)])
async def test_a_slow_speaker_gives_no_more_segments_than_phrases(
    vad: VadEngine, clips: dict[str, Clip], name: str, at_most: int
) -> None:
    pcm = clips[name].pcm
    found = segments(await hear(vad, np.concatenate([silence(1), pcm, silence(1)])))
    assert 2 <= len(found) <= at_most
    # These two end in a room or a crowd that is hardly softer than the voice.
    covers(found, pcm, 1000, below_peak_db=15)


@pytest.mark.parametrize("peak_db", [0, -15, -25, -35])
async def test_loud_and_soft_voices_are_heard_alike(vad: VadEngine, clips: dict[str, Clip], peak_db: float) -> None:
    for name in FLUENT:
        pcm = at_peak_db(clips[name].pcm, peak_db)
        found = segments(await hear(vad, np.concatenate([silence(1), pcm, silence(1)])))
        assert 1 <= len(found) <= 2, name
        # A first syllable that begins the clip at -55 dBFS is found late by any detector.
        covers(found, pcm, 1000, slack_ms=300 if peak_db == -35 else 160)


async def test_a_telephone_band_voice_is_heard(vad: VadEngine, clips: dict[str, Clip]) -> None:
    for name in FLUENT:
        pcm = soxr.resample(clips[name].pcm_8k, 8000, 16000)
        found = segments(await hear(vad, np.concatenate([silence(1), pcm, silence(1)])))
        assert 1 <= len(found) <= 2, name
        covers(found, pcm, 1000, slack_ms=250)


async def test_clips_a_second_apart_are_segments_of_their_own(vad: VadEngine, clips: dict[str, Clip]) -> None:
    pieces, spans = [silence(1)], []
    for name in FLUENT:
        start = sum(map(len, pieces)) // 16
        first, last = loud_bounds_ms(clips[name].pcm)
        spans.append((start + first, start + last))
        pieces += [clips[name].pcm, silence(1)]
    found = segments(await hear(vad, np.concatenate(pieces), ListeningSettings(stop_ms=192)))
    assert len(found) == len(FLUENT)
    for segment, (first, last) in zip(found, spans, strict=True):
        assert segment.start_ms - 300 <= first
        assert segment.end_ms >= last - 150


@pytest.mark.parametrize("level_db", [-60, -45, -35, -25, -15])
async def test_noise_and_hum_open_nothing(vad: VadEngine, level_db: float) -> None:
    assert await hear(vad, white_noise(6, level_db)) == []
    assert await hear(vad, hum(6, level_db)) == []


@pytest.mark.parametrize("mains_hz", [50.0, 60.0])
async def test_hum_that_begins_in_mid_call_is_at_most_one_segment_too_short_to_read(
    vad: VadEngine, mains_hz: float
) -> None:
    found = segments(await hear(vad, np.concatenate([white_noise(2, -65), hum(6, -25, mains_hz)])))
    assert len(found) <= 1
    assert all(segment.speech_ms < ListeningSettings().min_segment_ms for segment in found)


async def test_digital_silence_costs_the_detector_nothing(vad: VadEngine) -> None:
    assert await hear(vad, silence(10)) == []
    assert vad.snapshot().windows == 0


async def test_speech_in_noise_is_found_where_it_is(vad: VadEngine, clips: dict[str, Clip]) -> None:
    pcm = at_peak_db(clips["newhome"].pcm, -6)
    source = np.concatenate([silence(2), pcm, silence(2)])
    source = source + white_noise(len(source) / 16_000 + 0.1, -45)[: len(source)]
    found = segments(await hear(vad, source))
    assert 1 <= len(found) <= 2
    covers(found, pcm, 2000, slack_ms=200)


@pytest.mark.parametrize("preroll_ms", [0, 300, 1000])
async def test_what_a_recogniser_gets_is_the_input_without_gap_or_repeat(
    vad: VadEngine, clips: dict[str, Clip], preroll_ms: int
) -> None:
    source = np.concatenate([silence(1.3), clips["jfk"].pcm, silence(1), clips["cards-001"].pcm, silence(1)])
    heard = await hear(vad, source, ListeningSettings(preroll_ms=preroll_ms))
    previous_end = 0
    found = segments(heard)
    starts = [event for event in heard if isinstance(event, VoiceStarted)]
    assert len(found) >= 3
    for segment, started in zip(found, starts, strict=True):
        first = segment.start_ms * 16 - preroll_ms * 16
        assert np.array_equal(segment.pcm, source[first : first + len(segment.pcm)])
        assert started.repeated == max(0, previous_end - first)
        previous_end = first + len(segment.pcm)
        assert previous_end >= segment.end_ms * 16


async def test_a_segment_continued_in_one_stream_repeats_nothing(vad: VadEngine, clips: dict[str, Clip]) -> None:
    # A pause hardly longer than stop_ms, with a preroll that reaches back into the segment before.
    source = np.concatenate([silence(1), clips["jfk"].pcm, silence(1)])
    heard = await hear(vad, source, ListeningSettings(preroll_ms=1000))
    pieces: list[Pcm] = []
    repeats = 0
    for event in heard:
        if isinstance(event, VoiceStarted):
            pieces.append(event.pcm[event.repeated :])
            repeats += event.repeated > 0
        elif isinstance(event, VoiceAudio):
            pieces.append(event.pcm)
    assert repeats > 0
    joined = np.concatenate(pieces)
    first = next(e for e in heard if isinstance(e, VoiceStarted))
    origin = first.start_ms * 16 - 16_000
    assert np.array_equal(joined, source[origin : origin + len(joined)])


async def test_the_frame_is_copied(vad: VadEngine, clips: dict[str, Clip]) -> None:
    heard: list[Heard] = []
    listener = Listener(ListeningSettings(), vad, heard.append)
    source = np.concatenate([silence(1), clips["newhome"].pcm, silence(1)])
    shared = np.zeros(320, dtype=np.int16)
    for frame in frames(source):
        shared[:] = frame
        listener.feed(shared)
        await vad.settled()
    [segment] = segments(heard)
    first = segment.start_ms * 16 - 300 * 16
    assert np.array_equal(segment.pcm, source[first : first + len(segment.pcm)])


async def test_the_audio_clock_and_the_time_of_speaking(vad: VadEngine, clips: dict[str, Clip]) -> None:
    heard: list[Heard] = []
    listener = Listener(ListeningSettings(), vad, heard.append)
    longest = 0
    for i, frame in enumerate(frames(np.concatenate([silence(1), clips["newhome"].pcm, silence(1)]))):
        listener.feed(frame)
        await vad.settled()
        assert listener.audio_ms == (i + 1) * 20
        is_open = any(isinstance(e, VoiceStarted) for e in heard) and not isinstance(heard[-1], VoiceStopped)
        assert (listener.speaking_ms > 0) is is_open
        longest = max(longest, listener.speaking_ms)
    stopped = heard[-1]
    assert isinstance(stopped, VoiceStopped)
    assert longest == stopped.end_ms - next(e.start_ms for e in heard if isinstance(e, VoiceStarted))


async def test_a_monologue_is_reported_long_and_goes_on(vad: VadEngine, clips: dict[str, Clip]) -> None:
    # Pauses do not close at this stop_ms, so the whole recording is one segment.
    settings = ListeningSettings(max_segment_s=2.0, stop_ms=1500)
    heard = await hear(vad, np.concatenate([silence(1), clips["jfk"].pcm, silence(2)]), settings)
    assert len(segments(heard)) == 1
    long = [event.at_ms for event in heard if isinstance(event, VoiceLong)]
    assert len(long) >= 4
    assert all(2000 <= b - a < 2040 for a, b in pairwise(long))


async def test_closing_in_mid_speech_ends_all_reports(vad: VadEngine, clips: dict[str, Clip]) -> None:
    heard: list[Heard] = []
    listener = Listener(ListeningSettings(), vad, heard.append)
    for frame in frames(clips["jfk"].pcm[:24_000]):
        listener.feed(frame)
        await vad.settled()
    assert any(isinstance(event, VoiceStarted) for event in heard)
    listener.feed(clips["jfk"].pcm[24_000:24_320])
    listener.close()
    listener.close()
    count = len(heard)
    for frame in frames(clips["jfk"].pcm[24_320:64_000]):
        listener.feed(frame)
        await vad.settled()
    assert len(heard) == count


async def test_two_callers_share_nothing(vad: VadEngine, clips: dict[str, Clip]) -> None:
    sources = [
        np.concatenate([silence(1), clips["newhome"].pcm, silence(4)])[:112_000],
        np.concatenate([silence(2), clips["beckett"].pcm])[:112_000],
    ]
    alone = [await hear(vad, source) for source in sources]
    together: list[list[Heard]] = [[], []]
    listeners = [Listener(ListeningSettings(), vad, heard.append) for heard in together]
    for pair in zip(*(frames(source) for source in sources), strict=True):
        for listener, frame in zip(listeners, pair, strict=True):
            listener.feed(frame)
        await vad.settled()

    def shape(heard: list[Heard]) -> list[tuple[object, ...]]:
        return [(type(e), e.pcm.tobytes()) if isinstance(e, VoiceStarted | VoiceAudio) else (e,) for e in heard]

    assert [shape(heard) for heard in together] == [shape(heard) for heard in alone]


@pytest.mark.parametrize(
    "frame", [np.zeros(160, np.int16), np.zeros(320, np.float32), np.zeros((320, 1), np.int16)], ids=str
)
async def test_another_frame_is_refused(vad: VadEngine, frame: np.ndarray) -> None:
    listener = Listener(ListeningSettings(), vad, lambda heard: None)
    with pytest.raises(MediaError, match=r"expected int16 \[320\]"):
        listener.feed(frame)
    assert listener.audio_ms == 0


class Breakable(SileroGraph):
    """The real graph with a door that can be shut and a fault that can be set."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.door = threading.Event()
        self.door.set()
        self.entered = threading.Event()
        self.broken = False

    def run(self, windows: Float32, state: Float32) -> tuple[Float32, Float32]:
        self.entered.set()
        assert self.door.wait(10)
        if self.broken:
            raise RuntimeError("device lost")
        return super().run(windows, state)


class Made:
    """Keeps the graph an engine made."""

    graph: Breakable

    def __call__(self, file: Path) -> Breakable:
        self.graph = Breakable(file)
        return self.graph


def room(pcm: Pcm) -> Pcm:
    return pcm + white_noise(len(pcm) / 16_000 + 0.1, -65)[: len(pcm)]


@pytest.mark.parametrize("name", FLUENT)
async def test_with_a_broken_detector_speech_is_still_heard(
    model_file: Path, clips: dict[str, Clip], name: str
) -> None:
    made = Made()
    pcm = clips[name].pcm
    source = room(np.concatenate([silence(1), pcm, silence(1.5)]))
    async with VadEngine(model_file, load=made) as vad:
        made.graph.broken = True
        heard = await hear(vad, source)
        assert vad.snapshot().failures >= 1
    found = segments(heard)
    covers(found, pcm, 1000, slack_ms=350)
    for segment in found:
        first = max(0, segment.start_ms * 16 - 300 * 16)
        assert np.array_equal(segment.pcm, source[first : first + len(segment.pcm)])


async def test_a_detector_that_breaks_in_mid_sentence_costs_no_audio_and_is_used_again(
    model_file: Path, clips: dict[str, Clip]
) -> None:
    made = Made()
    source = room(np.concatenate([silence(1), clips["newhome"].pcm, silence(2), clips["newhome"].pcm, silence(1)]))
    async with VadEngine(model_file, load=made) as vad:
        heard: list[Heard] = []
        listener = Listener(ListeningSettings(), vad, heard.append)
        was_degraded = False
        for i, frame in enumerate(frames(source)):
            made.graph.broken = 100 <= i < 200
            listener.feed(frame)
            await vad.settled()
            was_degraded |= listener.degraded
        assert was_degraded
        assert not listener.degraded
    found = segments(heard)
    assert 2 <= len(found) <= 4
    assert found[0].start_ms < 1800
    assert found[-1].end_ms > len(source) // 16 - 2000
    for segment in found:
        first = segment.start_ms * 16 - 300 * 16
        assert np.array_equal(segment.pcm, source[first : first + len(segment.pcm)])


async def test_a_detector_that_lags_by_nearly_half_a_second_loses_no_onset(
    model_file: Path, clips: dict[str, Clip]
) -> None:
    made = Made()
    source = np.concatenate([silence(1), clips["newhome"].pcm, silence(1)])
    async with VadEngine(model_file, load=made) as vad:
        [prompt] = segments(await hear(vad, source))
        heard: list[Heard] = []
        listener = Listener(ListeningSettings(), vad, heard.append)
        for i, frame in enumerate(frames(source)):
            shut = prompt.start_ms - 200 <= i * 20 < prompt.start_ms + 250
            made.graph.door.clear() if shut else made.graph.door.set()
            listener.feed(frame)
            if not shut:
                await vad.settled()
        assert not listener.degraded
    [late] = segments(heard)
    assert (late.start_ms, late.end_ms) == (prompt.start_ms, prompt.end_ms)
    assert np.array_equal(late.pcm, source[late.start_ms * 16 - 4800 :][: len(late.pcm)])


async def test_a_detector_that_hangs_leaves_the_call_hearing_with_bounded_memory(
    model_file: Path, clips: dict[str, Clip]
) -> None:
    made = Made()
    source = room(np.concatenate([silence(1), clips["newhome"].pcm, silence(1.5)]))
    async with VadEngine(model_file, load=made) as vad:
        made.graph.door.clear()
        heard: list[Heard] = []
        listener = Listener(ListeningSettings(), vad, heard.append)
        for frame in frames(source):
            listener.feed(frame)
            await asyncio.sleep(0)
            if vad.pending:
                assert await asyncio.to_thread(made.graph.entered.wait, 10)
        assert listener.degraded
        assert vad.snapshot().overloads == 1
        found = segments(heard)
        assert found
        assert found[0].start_ms < 1000 + 1500
        for segment in found:
            first = max(0, segment.start_ms * 16 - 300 * 16)
            assert np.array_equal(segment.pcm, source[first : first + len(segment.pcm)])
        made.graph.door.set()
        await vad.settled()
        listener.close()
