"""Streaming with an engine that reads whole segments: it reads the growing segment again as audio comes in.

The asyncio half only: what to show is `Agreement`, where speech ended is `SpeechBuffer`, the reading itself is a
`Reader` in a thread of the pool.

A reading is due
- after each `partial_every_ms` of new audio, or three times what the last reading took if that is more, so that a long
  segment on a busy machine costs a third of a core and not all of it;
- once as soon as speech has paused for 100 ms. It mostly is the final reading: `final()` finds that only silence was
  added since, and returns at once.
"""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from agent.asr.agreement import Agreement, split_words
from agent.asr.protocol import EngineInfo, Hypothesis, Word
from agent.asr.reading import Reader, Reading, ReadingStopped, StopSignal
from agent.asr.segment import RATE_HZ, SpeechBuffer
from agent.core.pool import Priority, WorkerPool
from agent.errors import EngineError, UnsupportedLanguage
from agent.language import primary_language

__all__ = ["RereadingRecognizer", "RereadingStream"]

MIN_SAMPLES = RATE_HZ // 4
"""Recognisers invent words on less than 250 ms."""

PAUSE_SAMPLES = RATE_HZ // 10
"""A reading that goes this far into a pause is as good as one of all of it."""

TAIL_SAMPLES = PAUSE_SAMPLES
"""No more of a pause than this is read: silence makes words. Read whole, 3 of 20 synthetic sentences
were followed by "Thank you."; with 200 ms there were 6 wrong words in 201, with 100 ms none. Over the recorded clips
the errors at 16 kHz and telephone band are 2.6 and 2.9 % with 100 ms, 2.2 and 3.3 % with 200 ms, 2.2 and 3.6 % with
everything: no difference that 50 clips can show. Chosen on the same data."""

WINDOW_SAMPLES = 20 * RATE_HZ
"""A longer segment is cut: models are trained on up to 30 s, and the cost of a reading grows with its length."""

CUT_FROM_SAMPLES = 12 * RATE_HZ
"""The earliest place for the cut, so that the next window is not full again at once."""

COST_SHARE = 3.0
"""A stream's partials take at most one third of a core."""

READ_DEADLINE_S = 10.0
"""The slowest engine reads a full window in 4 s; beyond this the caller has long given up."""

log = logging.getLogger(__name__)


class RereadingRecognizer(ABC):
    """A Recognizer whose streams read their whole segment again; an engine adds `info` and `reader`.

    Word times of its hypotheses are estimates: words are spread over the speech in proportion to their length.

    Args:
        pool: its owner closes it.
        partial_every_ms: new audio after which a partial reading is due.
    """

    info: EngineInfo

    def __init__(self, pool: WorkerPool, *, partial_every_ms: int) -> None:
        self._pool = pool
        self._partial_every_ms = partial_every_ms
        self._streams: weakref.WeakSet[RereadingStream] = weakref.WeakSet()
        self._closed = False
        self.clock: Callable[[], float] = time.monotonic
        """Times the readings of streams opened from here on; a replay puts its own clock here."""

    @abstractmethod
    def reader(self, language: str, hints: Sequence[str]) -> Reader:
        """What reads the segments of one stream. `language` is a BCP 47 tag whose primary part `info` names."""

    def stream(self, *, language: str, hints: Sequence[str] = ()) -> RereadingStream:
        """Open a segment.

        Args:
            language: BCP 47 tag; its primary part decides.
            hints: words that are likely to be said.

        Raises:
            UnsupportedLanguage: the engine does not know the language.
            EngineError: the recogniser is closed.
        """
        if primary_language(language) not in self.info.languages:
            known = ", ".join(self.info.languages)
            raise UnsupportedLanguage(f"language: {self.info.name} reads {known}; got {language!r}")
        if self._closed:
            raise EngineError("the recogniser is closed")
        reader = self.reader(language, hints)
        stream = RereadingStream(reader, self._pool, partial_every_ms=self._partial_every_ms, clock=self.clock)
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Close every stream. Idempotent."""
        self._closed = True
        for stream in list(self._streams):
            stream.close()


class RereadingStream:
    """A RecognizerStream over a Reader. All methods belong to one event loop."""

    def __init__(
        self,
        reader: Reader,
        pool: WorkerPool,
        *,
        partial_every_ms: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reader = reader
        self._pool = pool
        self._clock = clock
        self._every = partial_every_ms * RATE_HZ // 1000
        self._audio = SpeechBuffer()
        self._agreement = Agreement()
        self._known = Reading()
        self._read_to = 0
        """Samples of the window that `_known` covers."""
        self._tried_to = 0
        """Samples of the window that the newest attempt covers, whether it succeeds or not."""
        self._took_s = 0.0
        """How long the newest reading ran."""
        self._carried = Hypothesis()
        """What earlier windows held."""
        self._carried_s = 0.0
        self._hypothesis = Hypothesis()
        self._partial: asyncio.Task[None] | None = None
        self._stop = StopSignal()
        self._started = False
        self._turn = asyncio.Lock()
        self._closed = False

    def push(self, pcm: npt.NDArray[np.int16]) -> None:
        """Add audio: int16 [n], 16 kHz mono; never blocks. After `close` it is dropped.

        Raises:
            ValueError: `pcm` is not int16 [n].
        """
        if self._closed:
            return
        self._audio.append(pcm)
        if self._partial is None and not self._turn.locked() and self._due() is not None:
            self._partial = asyncio.get_running_loop().create_task(self._read_partials(), name="asr-partial")

    def partial(self) -> Hypothesis:
        """The newest reading."""
        return self._hypothesis

    async def final(self) -> Hypothesis:
        """Read everything pushed so far; `stable` is all of the text.

        Raises:
            EngineError: the engine failed, has no room, or the stream is closed. The audio is kept: the next call reads
                it again.
        """
        async with self._turn:
            if self._closed:
                raise EngineError("the stream is closed")
            await self._settle_partial()
            if self._closed:
                raise EngineError("the stream is closed")
            while len(self._audio) > WINDOW_SAMPLES:
                await self._read_head(Priority.FINAL)
            if not self._covered(self._read_to):
                await self._read(self._end(), Priority.FINAL)
            self._publish(final=True)
            return self._hypothesis

    async def settled(self) -> None:
        """Wait until no partial reading is in flight: for those who feed faster than real time. Raises EngineError."""
        if self._partial is not None:
            _, late = await asyncio.wait({self._partial}, timeout=READ_DEADLINE_S)
            if late:
                raise EngineError(f"a partial reading took longer than {READ_DEADLINE_S:g} s")

    def close(self) -> None:
        """Drop pending work: what is queued never runs, what runs is told to stop. Idempotent."""
        self._closed = True
        self._abandon_partial()
        self._stop.set()

    async def _settle_partial(self) -> None:
        """Wait for the partial in flight if it is as good as a final reading, else get it out of the way."""
        partial = self._partial
        if partial is None:
            return
        if self._started and self._covered(self._tried_to):
            await asyncio.wait({partial}, timeout=READ_DEADLINE_S)
        self._abandon_partial()

    def _abandon_partial(self) -> None:
        if self._partial is not None:
            self._stop.set()
            self._partial.cancel()
            self._partial = None

    def _end(self) -> int:
        """How far a reading goes: to the end, or a little into the pause."""
        return min(len(self._audio), max(MIN_SAMPLES, self._audio.speech()[1] + TAIL_SAMPLES))

    def _covered(self, read_to: int) -> bool:
        """Whether a reading up to `read_to` says all there is: nothing follows but a pause."""
        if len(self._audio) < MIN_SAMPLES or self._audio.silent or read_to == len(self._audio):
            return True
        return read_to >= max(MIN_SAMPLES, self._audio.speech()[1] + PAUSE_SAMPLES)

    def _due(self) -> Priority | None:
        """With which priority a partial reading is due now, if one is."""
        fresh = len(self._audio) - self._tried_to
        # The first test alone answers most pushes: they are 20 ms each.
        if fresh < PAUSE_SAMPLES or self._covered(self._tried_to):
            return None
        if len(self._audio) >= self._audio.speech()[1] + PAUSE_SAMPLES:
            return Priority.NORMAL
        return Priority.PARTIAL if fresh >= max(self._every, COST_SHARE * self._took_s * RATE_HZ) else None

    async def _read_partials(self) -> None:
        try:
            while not self._turn.locked() and (priority := self._due()) is not None:
                if len(self._audio) > WINDOW_SAMPLES:
                    await self._read_head(priority)
                else:
                    await self._read(self._end(), priority)
                    self._publish(final=False)
        except EngineError as exc:
            # The next attempt comes with new audio; a final reading reports its own failure.
            log.warning("partial reading failed: %s", type(exc).__name__)
        finally:
            if self._partial is asyncio.current_task():
                self._partial = None

    async def _read_head(self, priority: Priority) -> None:
        """Read the window up to a pause, carry its text, and begin a new window behind it."""
        at = self._audio.quietest(CUT_FROM_SAMPLES, WINDOW_SAMPLES)
        await self._read(at, priority)
        self._carried = self._whole(self._known.text, self._known.text, at)
        self._carried_s += at / RATE_HZ
        self._audio.cut(at)
        self._agreement = Agreement()
        self._known = Reading()
        self._read_to = self._tried_to = 0

    async def _read(self, end: int, priority: Priority) -> None:
        """Read the window's first `end` samples into `_known`. Raises EngineError."""
        self._tried_to = end
        if end < MIN_SAMPLES:
            self._known, self._read_to = Reading(), end
            return
        self._stop = stop = StopSignal()
        self._started = False
        try:
            reading = await self._pool.run(
                self._read_in_thread,
                self._audio.slice(end),
                self._known,
                stop,
                owner=self,
                priority=priority,
                deadline_s=READ_DEADLINE_S,
            )
        except ReadingStopped:
            raise EngineError("the stream is closed") from None
        except EngineError:
            raise
        except Exception as exc:
            raise EngineError(f"the recogniser failed: {exc}") from exc
        finally:
            # Nobody waits any more, whether it was cancelled, late, or done.
            stop.set()
        self._known, self._read_to = reading, end

    def _read_in_thread(self, pcm: npt.NDArray[np.int16], known: Reading, stop: StopSignal) -> Reading:
        stop.check()
        self._started = stop is self._stop
        began = self._clock()
        reading = self._reader.read(pcm, known, stop)
        self._took_s = self._clock() - began
        return reading

    def _publish(self, *, final: bool) -> None:
        if final:
            self._agreement.settle(self._known.text)
        else:
            self._agreement.read(self._known.text)
        fresh = self._whole(self._agreement.text, self._agreement.stable, self._read_to)
        # A final that found nothing new is not news.
        if not final or (fresh.text, fresh.stable) != (self._hypothesis.text, self._hypothesis.stable):
            self._hypothesis = fresh

    def _whole(self, text: str, stable: str, read_to: int) -> Hypothesis:
        """The hypothesis for the carried windows and this one."""
        carried = self._carried
        start, end = self._audio.speech()
        words = _spread(text, (start, min(end, max(start, read_to))), self._carried_s)
        # A space between windows, also where the script has none: the cut lies in a pause.
        joint = " " if carried.text and text else ""
        weight = len(words) + len(carried.words)
        confidence = self._known.confidence
        if carried.words and weight:
            confidence = (confidence * len(words) + carried.confidence * len(carried.words)) / weight
        return Hypothesis(
            text=carried.text + joint + text,
            stable=carried.text + (joint + stable if stable else ""),
            words=carried.words + words,
            confidence=confidence,
            end_of_turn=self._known.end_of_turn,
            revision=self._hypothesis.revision + 1,
        )


def _spread(text: str, speech: tuple[int, int], offset_s: float) -> tuple[Word, ...]:
    """Words with times in proportion to their length, between where speech begins and ends.

    An estimate: it is right to about a word over a few seconds, and knows nothing of pauses in between.
    """
    words = split_words(text)
    letters = sum(len(word) for word in words)
    start_s = offset_s + speech[0] / RATE_HZ
    per_letter_s = (speech[1] - speech[0]) / RATE_HZ / max(1, letters)
    out: list[Word] = []
    for word in words:
        end_s = start_s + len(word) * per_letter_s
        out.append(Word(word, round(start_s, 3), round(end_s, 3)))
        start_s = end_s
    return tuple(out)
