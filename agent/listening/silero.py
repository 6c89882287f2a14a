"""Silero VAD for every call of a process: one session, one thread, all calls' windows in one run.

Audio never waits for the network and the event loop never waits for the graph. A call hands over 512-sample windows;
those of all calls that arrived in one pass of the loop go to the thread together, one window a call and run, and each
run's results come back in one loop callback. A window in a batch gives bit for bit what it gives alone.

The recurrent state is kept over gaps in the audio and never reset: after a gap, a state reset to zero found onsets up
to 700 ms later than one simply kept (recorded speech, gaps of 1 and 3 s), while a kept one matched a graph that had run
all the time. A new stream does start from zeros: the state that a second of silence leaves finds a first word 20 ms
sooner, and takes mains hum that comes with the first packet for speech.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

import numpy as np

from agent.errors import EngineError, EngineOverloaded
from agent.listening.graph import (
    CONTEXT_SAMPLES,
    MODEL_FILE,
    STATE_WIDTH,
    WINDOW_SAMPLES,
    Float32,
    SileroGraph,
    VadGraph,
)
from agent.media.frames import Pcm

__all__ = ["MODEL_FILE", "WINDOW_SAMPLES", "VadEngine", "VadStatistics", "VadStream"]

log = logging.getLogger(__name__)

MAX_BATCH = 32
"""Windows a run at most: about 2 ms of compute, so that a window waits at most for one such run before its turn."""

MAX_PENDING = 20
"""Windows of one call that may wait (640 ms). Later than that, a decision is worth less than a cruder one now."""

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 5.0
SETTLE_TIMEOUT_S = 30.0


@dataclass(slots=True)
class VadStatistics:
    """Counts since the engine started. `busy_s` is CPU time of its thread."""

    windows: int = 0
    batches: int = 0
    largest_batch: int = 0
    failures: int = 0
    overloads: int = 0
    busy_s: float = 0.0


@dataclass(slots=True, eq=False)
class _Job:
    stream: VadStream
    epoch: int
    window: Pcm
    end_sample: int
    probability: float | None = None
    error: EngineError | None = None


class VadStream:
    """One call's audio on its way through the engine. Event loop only.

    Positions count samples on the call's audio clock. Results come in order, for contiguous windows of 512 samples;
    `resume` begins a new run of windows after a gap.
    """

    def __init__(
        self,
        engine: VadEngine,
        on_probability: Callable[[float, int], None],
        on_failure: Callable[[EngineError], None],
    ) -> None:
        self._engine = engine
        # The engine's thread alone reads and writes it.
        self._state: Float32 = np.zeros((2, STATE_WIDTH), dtype=np.float32)
        self._on_probability = on_probability
        self._on_failure = on_failure
        self._epoch = 0
        self._buffer = np.zeros(CONTEXT_SAMPLES + WINDOW_SAMPLES, dtype=np.int16)
        self._fill = 0
        self._next = 0
        self._outstanding = 0
        self._live = True
        self.closed = False

    @property
    def ready(self) -> bool:
        """Whether the engine would take windows now."""
        return not self.closed and self._engine.running and self._outstanding < MAX_PENDING

    @property
    def pending(self) -> int:
        """Windows handed over and not yet answered."""
        return self._outstanding

    def push(self, pcm: Pcm) -> None:
        """Add int16 [n] samples. Ignored once closed or, until `resume`, once failed."""
        taken = 0
        while taken < len(pcm) and self._live:
            part = pcm[taken : taken + WINDOW_SAMPLES - self._fill]
            at = CONTEXT_SAMPLES + self._fill
            self._buffer[at : at + len(part)] = part
            self._fill += len(part)
            self._next += len(part)
            taken += len(part)
            if self._fill == WINDOW_SAMPLES:
                self._hand_over()

    def resume(self, at_sample: int) -> None:
        """The next `push` begins at this position. Part of a window from before a gap is dropped."""
        if at_sample != self._next:
            self._fill = 0
        self._next = at_sample
        self._live = not self.closed

    def close(self) -> None:
        """No callback comes after this. Idempotent."""
        self.closed = True
        self._live = False
        self._epoch += 1

    def _hand_over(self) -> None:
        if not self.ready:
            if self._engine.running:
                self._engine.statistics.overloads += 1
                self._fail(EngineOverloaded(f"{MAX_PENDING} windows of one call wait for the voice-activity detector"))
            else:
                self._fail(EngineError("the voice-activity detector is not running"))
            return
        self._outstanding += 1
        self._engine._queue_window(_Job(self, self._epoch, self._buffer.copy(), self._next))
        self._buffer[:CONTEXT_SAMPLES] = self._buffer[-CONTEXT_SAMPLES:]
        self._fill = 0

    def _fail(self, error: EngineError) -> None:
        self._live = False
        self._epoch += 1
        self._fill = 0
        self._on_failure(error)

    def _settle(self, job: _Job) -> None:
        self._outstanding -= 1
        if job.epoch != self._epoch:
            return
        if job.error is not None:
            self._fail(job.error)
        elif job.probability is not None:
            self._on_probability(job.probability, job.end_sample)


@dataclass(slots=True)
class _Backlog:
    """Windows on the engine's thread, served one a stream in turn."""

    streams: dict[int, deque[_Job]] = field(default_factory=dict)

    def add(self, jobs: list[_Job]) -> None:
        for job in jobs:
            self.streams.setdefault(id(job.stream), deque()).append(job)

    def take(self, limit: int) -> list[_Job]:
        """The oldest window of up to `limit` streams; a stream with more goes to the back of the line."""
        batch = []
        for key in list(self.streams)[:limit]:
            waiting = self.streams.pop(key)
            batch.append(waiting.popleft())
            if waiting:
                self.streams[key] = waiting
        return batch


class VadEngine:
    """The detector that all calls share. `async with` loads it on its own thread and ends that thread.

    Args:
        file: the graph, `MODEL_FILE` inside the model folder.
        load: makes the graph; tests pass their own.
        prepare: called first in the thread, to set its priority; must not raise.

    Raises (on entering):
        ModelMissing, EngineError: the graph cannot be loaded.
    """

    def __init__(
        self,
        file: Path,
        *,
        load: Callable[[Path], VadGraph] = SileroGraph,
        prepare: Callable[[], object] | None = None,
    ) -> None:
        self._file = file
        self._load = load
        self._prepare = prepare
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        # Not bounded itself: each stream hands over at most MAX_PENDING windows.
        self._handed: queue.SimpleQueue[list[_Job] | None] = queue.SimpleQueue()
        self._gathered: list[_Job] = []
        self._unanswered = 0
        self._settling: list[asyncio.Future[None]] = []
        self._failing = False
        self.running = False
        self.statistics = VadStatistics()

    async def __aenter__(self) -> VadEngine:
        self._loop = asyncio.get_running_loop()
        loaded: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, args=(loaded,), name="vad", daemon=True)
        self._thread.start()
        try:
            await asyncio.wait_for(loaded, START_TIMEOUT_S)
        except TimeoutError as exc:
            raise EngineError(f"{self._file} was not loaded within {START_TIMEOUT_S:.0f} s") from exc
        finally:
            # Cancelled, too late or failed: the thread ends as soon as it can, and a daemon holds nothing up.
            if not loaded.done() or loaded.cancelled() or loaded.exception() is not None:
                self._handed.put(None)
        self.running = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running = False
        self._handed.put(None)
        assert self._thread is not None
        await asyncio.to_thread(self._thread.join, STOP_TIMEOUT_S)
        if self._thread.is_alive():
            log.warning("the voice-activity thread did not end within %.0f s", STOP_TIMEOUT_S)

    @property
    def pending(self) -> int:
        """Windows of all calls that are handed over and not yet answered."""
        return self._unanswered

    def open(
        self, on_probability: Callable[[float, int], None], on_failure: Callable[[EngineError], None]
    ) -> VadStream:
        """Start listening to a call.

        Args:
            on_probability: called on the event loop with a probability of speech, 0 to 1, and the position in samples
                at which its 512-sample window ends.
            on_failure: called once on the event loop when windows can no longer be answered; `push` is ignored then
                until `resume`.
        """
        return VadStream(self, on_probability, on_failure)

    async def settled(self) -> None:
        """Wait until every window handed over has been answered: for reading files faster than real time.

        Raises:
            EngineError: that took unreasonably long.
        """
        if not self._unanswered:
            return
        settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._settling.append(settled)
        try:
            await asyncio.wait_for(settled, SETTLE_TIMEOUT_S)
        except TimeoutError as exc:
            raise EngineError(f"the voice-activity detector did not answer within {SETTLE_TIMEOUT_S:.0f} s") from exc

    def snapshot(self) -> VadStatistics:
        """A copy of the counts."""
        return replace(self.statistics)

    def _queue_window(self, job: _Job) -> None:
        assert self._loop is not None
        if not self._gathered:
            # After everything else that is ready now: calls that tick in the same pass share one hand-over.
            self._loop.call_soon(self._hand_over)
        self._gathered.append(job)
        self._unanswered += 1

    def _hand_over(self) -> None:
        self._handed.put(self._gathered)
        self._gathered = []

    def _deliver(self, batch: list[_Job]) -> None:
        self._unanswered -= len(batch)
        for job in batch:
            try:
                job.stream._settle(job)
            except Exception as exc:  # one call's fault must not keep the others from their results
                assert self._loop is not None
                self._loop.call_exception_handler({"message": "a voice-activity callback failed", "exception": exc})
        if not self._unanswered:
            for waiting in self._settling:
                if not waiting.done():
                    waiting.set_result(None)
            self._settling.clear()

    # The thread

    def _post(self, callback: Callable[..., object], *args: object) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            log.debug("the event loop ended before the voice-activity thread")

    def _work(self, loaded: asyncio.Future[None]) -> None:
        if self._prepare is not None:
            self._prepare()
        try:
            graph = self._load(self._file)
        except BaseException as exc:  # whatever it is belongs to the one who waits for the start
            self._post(_settle_future, loaded, exc)
            return
        self._post(_settle_future, loaded, None)
        backlog = _Backlog()
        while True:
            handed = self._handed.get() if not backlog.streams else None
            if handed is None and not backlog.streams:
                return
            if handed is not None:
                backlog.add(handed)
            while not self._handed.empty():
                more = self._handed.get()
                if more is None:
                    return
                backlog.add(more)
            batch = backlog.take(MAX_BATCH)
            self._run(graph, [job for job in batch if job.epoch == job.stream._epoch])
            self._post(self._deliver, batch)

    def _run(self, graph: VadGraph, jobs: list[_Job]) -> None:
        if not jobs:
            return
        windows = np.stack([job.window for job in jobs]).astype(np.float32) / np.float32(32768)
        state = np.stack([job.stream._state for job in jobs], axis=1)
        counts = self.statistics
        try:
            probabilities, after = graph.run(windows, state)
            if not (np.isfinite(probabilities).all() and np.isfinite(after).all()):
                raise EngineError("the voice-activity graph answered with something that is not a number")
        except Exception as exc:
            error = exc if isinstance(exc, EngineError) else EngineError(f"the voice-activity detector failed: {exc}")
            if not self._failing:
                log.error("%s; calls go on with energy alone", error)
            self._failing = True
            counts.failures += 1
            for job in jobs:
                job.error = error
        else:
            self._failing = False
            for index, job in enumerate(jobs):
                job.probability = float(probabilities[index])
                job.stream._state = after[:, index]
        counts.windows += len(jobs)
        counts.batches += 1
        counts.largest_batch = max(counts.largest_batch, len(jobs))
        counts.busy_s = time.thread_time()


def _settle_future(future: asyncio.Future[None], outcome: BaseException | None) -> None:
    if future.done():
        return
    if outcome is not None:
        future.set_exception(outcome)
    else:
        future.set_result(None)
