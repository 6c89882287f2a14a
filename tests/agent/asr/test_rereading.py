"""The streaming shell over a scripted reader: what is read when, at which priority, and what survives failure."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pytest

from agent.asr.protocol import EngineInfo
from agent.asr.reading import Reader, Reading, StopSignal
from agent.asr.rereading import RereadingRecognizer, RereadingStream
from agent.core.pool import WorkerPool
from agent.errors import EngineError, EngineOverloaded, UnsupportedLanguage
from agent.language import primary_language

Pcm = npt.NDArray[np.int16]

RATE = 16_000
PATIENCE_S = 10.0


def loud(seconds: float) -> Pcm:
    return np.random.default_rng(1).normal(0, 3000, round(seconds * RATE)).astype(np.int16)


def quiet(seconds: float) -> Pcm:
    return np.random.default_rng(2).normal(0, 3, round(seconds * RATE)).astype(np.int16)


@dataclass
class Scripted:
    """A Reader that says one word for each half second of audio, and remembers what it was asked."""

    lengths_s: list[float] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    fails: int = 0
    hold: threading.Event | None = None
    entered: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)

    def read(self, pcm: Pcm, known: Reading, stop: StopSignal) -> Reading:
        self.lengths_s.append(len(pcm) / RATE)
        self.known.append(known.text)
        self.entered.set()
        if self.fails:
            self.fails -= 1
            raise RuntimeError("scripted failure")
        if self.hold is not None:
            stop.on_set(self.hold.set)
            assert self.hold.wait(PATIENCE_S)
            if stop.is_set:
                self.stopped.set()
            stop.check()
        words = len(pcm) * 2 // RATE
        return Reading(" ".join(f"w{n}" for n in range(words)), tuple(range(words)), 0.5, 0.25)


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with WorkerPool(2, name="test-rereading") as pool:
        yield pool


@pytest.fixture
def open_stream(pool: WorkerPool) -> Callable[[Reader], RereadingStream]:
    return lambda reader: RereadingStream(reader, pool, partial_every_ms=320)


async def feed(stream: RereadingStream, pcm: Pcm) -> None:
    """In frames of 20 ms, each reading ending before more comes."""
    for at in range(0, len(pcm), 320):
        stream.push(pcm[at : at + 320])
        await stream.settled()


Open = Callable[[Reader], RereadingStream]


async def test_partials_come_each_320_ms_and_grow_by_what_two_agree_on(open_stream: Open) -> None:
    reader = Scripted()
    stream = open_stream(reader)
    texts: list[tuple[str, str]] = []
    revision = 0
    pcm = loud(2.2)
    for at in range(0, len(pcm), 320):
        stream.push(pcm[at : at + 320])
        await stream.settled()
        hypothesis = stream.partial()
        if hypothesis.revision != revision:
            assert hypothesis.revision > revision
            revision = hypothesis.revision
            texts.append((hypothesis.text, hypothesis.stable))
    assert np.diff(reader.lengths_s).min() >= 0.32 - 1e-6
    assert len(texts) == len(reader.lengths_s) >= 4
    for (text, _), (later, stable) in itertools.pairwise(texts):
        assert stable == text
        assert later.startswith(stable)


async def test_each_reading_starts_from_the_one_before(open_stream: Open) -> None:
    reader = Scripted()
    stream = open_stream(reader)
    await feed(stream, loud(2))
    final = await stream.final()
    assert reader.known[0] == ""
    assert reader.known[-1] != ""
    assert final.text == final.stable == "w0 w1 w2 w3"
    assert (final.confidence, final.end_of_turn) == (0.5, 0.25)


async def test_a_pause_is_read_early_and_the_final_then_reads_nothing(open_stream: Open) -> None:
    reader = Scripted()
    stream = open_stream(reader)
    await feed(stream, np.concatenate([loud(1.5), quiet(0.2)]))
    read = len(reader.lengths_s)
    assert reader.lengths_s[-1] >= 1.6 - 1e-6
    await feed(stream, quiet(1))
    assert (await stream.final()).text == "w0 w1 w2"
    assert len(reader.lengths_s) == read


async def test_silence_after_the_speech_is_not_read(open_stream: Open) -> None:
    reader = Scripted()
    stream = open_stream(reader)
    stream.push(np.concatenate([loud(1.5), quiet(3)]))
    await stream.final()
    assert max(reader.lengths_s) == pytest.approx(1.6, abs=0.03)


async def test_a_second_final_without_new_audio_reads_nothing_and_is_no_news(open_stream: Open) -> None:
    reader = Scripted()
    stream = open_stream(reader)
    stream.push(loud(1))
    first = await stream.final()
    read = len(reader.lengths_s)
    assert await stream.final() is first
    assert len(reader.lengths_s) == read


async def test_after_a_final_the_segment_goes_on(open_stream: Open) -> None:
    stream = open_stream(Scripted())
    stream.push(loud(1))
    first = await stream.final()
    await feed(stream, loud(1))
    second = await stream.final()
    assert (first.text, second.text) == ("w0 w1", "w0 w1 w2 w3")
    assert second.revision > first.revision


@pytest.mark.parametrize("pcm", [np.zeros(0, np.int16), loud(0.02), loud(0.24), quiet(3), np.zeros(48_000, np.int16)])
async def test_nothing_too_short_and_no_silence_is_ever_read(open_stream: Open, pcm: Pcm) -> None:
    reader = Scripted()
    stream = open_stream(reader)
    await feed(stream, pcm)
    assert (await stream.final()).text == ""
    assert reader.lengths_s == []


async def test_a_final_overtakes_a_partial_that_would_miss_audio(open_stream: Open) -> None:
    reader = Scripted(hold=threading.Event())
    stream = open_stream(reader)
    stream.push(loud(0.6))
    assert await asyncio.to_thread(reader.entered.wait, PATIENCE_S)
    stream.push(loud(0.6))
    final = await stream.final()
    assert await asyncio.to_thread(reader.stopped.wait, PATIENCE_S)
    assert final.text == "w0 w1"
    assert reader.lengths_s == [0.6, 1.2]


async def test_a_final_takes_the_partial_in_flight_when_that_covers_all(open_stream: Open) -> None:
    reader = Scripted(hold=threading.Event())
    stream = open_stream(reader)
    stream.push(loud(1))
    assert await asyncio.to_thread(reader.entered.wait, PATIENCE_S)
    stream.push(quiet(0.02)[:0])
    final = asyncio.create_task(stream.final())
    await asyncio.sleep(0)
    assert reader.hold is not None
    reader.hold.set()
    assert (await final).text == "w0 w1"
    assert reader.lengths_s == [1.0]


async def test_a_long_segment_is_cut_in_a_pause_and_its_text_carried_on(open_stream: Open) -> None:
    reader = Scripted()
    stream = open_stream(reader)
    stream.push(np.concatenate([loud(14), quiet(0.4), loud(16), quiet(0.4), loud(4)]))
    final = await stream.final()
    assert max(reader.lengths_s) <= 20
    assert 14 < reader.lengths_s[0] < 14.4
    assert sum(reader.lengths_s) == pytest.approx(34.8)
    assert len(final.words) == len(final.text.split()) >= 66
    starts = [word.start_s for word in final.words]
    assert starts == sorted(starts)
    assert final.words[-1].end_s == pytest.approx(34.8, abs=0.05)
    assert final.confidence == pytest.approx(0.5)


async def test_long_speech_with_partials_never_loses_shown_words(open_stream: Open) -> None:
    stream = open_stream(Scripted())
    shown = 0
    for _ in range(40):
        await feed(stream, np.concatenate([loud(0.5), quiet(0.1)]))
        words = len(stream.partial().stable.split())
        assert words >= shown
        shown = words
    assert shown >= 40


async def test_words_are_spread_over_the_speech(open_stream: Open) -> None:
    stream = open_stream(Scripted())
    stream.push(np.concatenate([quiet(0.4), loud(1.6), quiet(0.5)]))
    words = (await stream.final()).words
    assert [word.text for word in words] == ["w0", "w1", "w2", "w3"]
    assert words[0].start_s == pytest.approx(0.4, abs=0.03)
    assert words[-1].end_s == pytest.approx(2.0, abs=0.03)


async def test_a_failed_final_is_an_engine_error_and_the_next_reads_the_same_audio(open_stream: Open) -> None:
    reader = Scripted(fails=2)
    stream = open_stream(reader)
    stream.push(loud(1))
    await stream.settled()
    assert stream.partial().text == ""
    stream.push(loud(0.5))
    with pytest.raises(EngineError, match="scripted failure"):
        await stream.final()
    assert (await stream.final()).text == "w0 w1 w2"


async def test_a_full_pool_fails_the_final_and_spares_the_stream() -> None:
    async with WorkerPool(1, name="full", max_queued=1) as pool:
        stream = RereadingStream(Scripted(), pool, partial_every_ms=320)
        opened, entered = threading.Event(), threading.Event()

        def occupy() -> None:
            entered.set()
            assert opened.wait(PATIENCE_S)

        busy = [asyncio.create_task(pool.run(occupy, owner="busy"))]
        assert await asyncio.to_thread(entered.wait, PATIENCE_S)
        busy.append(asyncio.create_task(pool.run(occupy, owner="busy")))
        await asyncio.sleep(0)
        stream.push(loud(1))
        with pytest.raises(EngineOverloaded):
            await stream.final()
        opened.set()
        await asyncio.gather(*busy)
        assert (await stream.final()).text == "w0 w1"


async def test_close_stops_a_reading_in_its_thread_and_leaves_no_task(open_stream: Open, pool: WorkerPool) -> None:
    reader = Scripted(hold=threading.Event())
    stream = open_stream(reader)
    before = asyncio.all_tasks()
    stream.push(loud(1))
    assert await asyncio.to_thread(reader.entered.wait, PATIENCE_S)
    stream.close()
    stream.close()
    assert await asyncio.to_thread(reader.stopped.wait, PATIENCE_S)
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == before
    stream.push(loud(1))
    assert stream.partial().text == ""
    with pytest.raises(EngineError, match="closed"):
        await stream.final()
    await pool.close()
    assert pool.statistics.running == 0


async def test_close_ends_a_final_in_flight(open_stream: Open) -> None:
    reader = Scripted(hold=threading.Event())
    stream = open_stream(reader)
    stream.push(loud(0.3))
    final = asyncio.create_task(stream.final())
    assert await asyncio.to_thread(reader.entered.wait, PATIENCE_S)
    stream.close()
    with pytest.raises(EngineError, match="closed"):
        await final


async def test_a_cancelled_final_stops_its_reading_and_can_be_asked_again(open_stream: Open) -> None:
    reader = Scripted(hold=threading.Event())
    stream = open_stream(reader)
    stream.push(loud(0.3))
    final = asyncio.create_task(stream.final())
    assert await asyncio.to_thread(reader.entered.wait, PATIENCE_S)
    final.cancel()
    with pytest.raises(asyncio.CancelledError):
        await final
    assert await asyncio.to_thread(reader.stopped.wait, PATIENCE_S)
    stream.push(loud(0.7))
    assert (await stream.final()).text == "w0 w1"


async def test_audio_of_another_kind_is_refused(open_stream: Open) -> None:
    stream = open_stream(Scripted())
    with pytest.raises(ValueError, match="int16"):
        stream.push(np.zeros(320, np.float32))  # type: ignore[arg-type]


class _Recognizer(RereadingRecognizer):
    info = EngineInfo("scripted", "1", RATE, ("en", "zh"), streams=True)

    def reader(self, language: str, hints: object) -> Reader:
        return Scripted()


async def test_the_primary_part_of_a_tag_decides_the_language(pool: WorkerPool) -> None:
    recognizer = _Recognizer(pool, partial_every_ms=320)
    recognizer.stream(language="zh-Hant-TW").close()
    with pytest.raises(UnsupportedLanguage, match=r"scripted reads en, zh; got 'fr-CA'"):
        recognizer.stream(language="fr-CA")
    assert primary_language("EN_us") == "en"


async def test_closing_the_recognizer_closes_its_streams(pool: WorkerPool) -> None:
    recognizer = _Recognizer(pool, partial_every_ms=320)
    stream = recognizer.stream(language="en")
    await recognizer.close()
    with pytest.raises(EngineError, match="closed"):
        await stream.final()
    with pytest.raises(EngineError, match="closed"):
        recognizer.stream(language="en")


def test_a_stop_signal_runs_its_callback_once_even_if_it_comes_late() -> None:
    calls: list[int] = []
    stop = StopSignal()
    stop.set()
    stop.on_set(lambda: calls.append(1))
    stop.set()
    assert calls == [1]
