"""Threads of our own for the engines' blocking work, shared fairly by all calls.

Never the event loop's default executor: that one belongs to name resolution and files, has no priorities, and is
first come, first served, so that one busy call delays all others.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from agent.core.fairqueue import FairQueue, Priority, QueueFull
from agent.core.load import LoadGauge
from agent.errors import EngineError, EngineOverloaded

__all__ = ["PoolStatistics", "Priority", "WorkerPool"]

T = TypeVar("T")

CLOSE_DEADLINE_S = 5.0
"""A native call cannot be interrupted from outside; the longest of ours is a whole-segment reading, about 1 s."""

MAX_PER_OWNER = 64
"""Waiting jobs one owner may hold: a quarter of the default queue, far above what a call has open at once (2 or 3)."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PoolStatistics:
    """Counters since the start, except the first two, which are of now."""

    queued: int = 0
    running: int = 0
    done: int = 0
    """Jobs that returned or raised."""
    failed: int = 0
    """Of `done`, those that raised."""
    dropped: int = 0
    """Jobs withdrawn while they waited: cancelled, past their deadline, or the pool closed."""
    refused: int = 0
    """Jobs turned away because the queue was full."""
    waited_s: float = 0.0
    """Sum of the time that started jobs spent in the queue."""
    busy_s: float = 0.0
    """Sum of the time that done jobs took."""


class _Job:
    """One call to run in a thread; compared by identity."""

    __slots__ = ("args", "fn", "future", "loop", "owner", "priority", "queued_at", "started")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], owner: Hashable, priority: Priority) -> None:
        self.fn = fn
        self.args = args
        self.owner = owner
        self.priority = priority
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self.queued_at = time.monotonic()
        self.started = False

    def settle(self, result: Any, error: BaseException | None) -> None:
        """Hand the outcome to the waiter. Called in a worker thread."""
        try:
            self.loop.call_soon_threadsafe(self._resolve, result, error)
        except RuntimeError:
            # The loop closed while the job ran: there is no waiter left to tell.
            log.debug("a job's event loop closed before its result")

    def _resolve(self, result: Any, error: BaseException | None) -> None:
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class WorkerPool:
    """A fixed number of threads behind one bounded, fair queue.

    Work below NORMAL never takes the last free thread (when there are two or more), so that a final reading or a
    live clause does not wait behind partials.

    Args:
        threads: worker threads; 0 means one a core.
        name: what the threads are called.
        max_queued: jobs that may wait in all; one more is refused at once.
        prepare: called first in each thread, to set its priority; must not raise.
    """

    def __init__(
        self, threads: int, *, name: str, max_queued: int = 256, prepare: Callable[[], object] | None = None
    ) -> None:
        if threads < 0:
            raise ValueError("threads must be 0 (one a core) or more")
        self.threads = threads or os.cpu_count() or 1
        self.name = name
        self._prepare = prepare
        self._queue: FairQueue[_Job] = FairQueue(max_items=max_queued, max_per_owner=min(max_queued, MAX_PER_OWNER))
        self._wake = threading.Condition()
        self._workers: list[threading.Thread] = []
        self._alive = 0
        self._closed = False
        self._all_ended: Callable[[], object] | None = None
        self._running = 0
        self._running_low = 0
        self._done = 0
        self._failed = 0
        self._dropped = 0
        self._refused = 0
        self._waited_s = 0.0
        self._busy_s = 0.0
        self._load = LoadGauge(self.threads, time.monotonic())

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def start(self) -> None:
        """Start the threads. Idempotent; raises EngineError once closed."""
        with self._wake:
            if self._closed:
                raise EngineError(f"pool {self.name} is closed")
            while len(self._workers) < self.threads:
                # Daemons, so that a native call that never returns cannot keep the process from exiting.
                worker = threading.Thread(target=self._work, name=f"{self.name}-{len(self._workers)}", daemon=True)
                self._workers.append(worker)
                self._alive += 1
                worker.start()

    @property
    def statistics(self) -> PoolStatistics:
        """A consistent copy of the counters."""
        with self._wake:
            return PoolStatistics(
                queued=len(self._queue),
                running=self._running,
                done=self._done,
                failed=self._failed,
                dropped=self._dropped,
                refused=self._refused,
                waited_s=self._waited_s,
                busy_s=self._busy_s,
            )

    @property
    def load(self) -> float:
        """Share of the threads in use lately, 0 to 1; see LoadGauge."""
        with self._wake:
            return self._load.read(time.monotonic())

    async def run(
        self,
        fn: Callable[..., T],
        *args: Any,
        owner: Hashable,
        priority: Priority = Priority.NORMAL,
        deadline_s: float | None = None,
    ) -> T:
        """Run `fn(*args)` in a worker thread and return what it returns.

        Cancelling the waiter withdraws the job if it still waits in the queue; a job that has started runs to its
        end and its result is dropped.

        Args:
            owner: whose job this is (a call); owners of one priority take turns.
            deadline_s: longest wait for the result.

        Raises:
            EngineOverloaded: the queue is full, or the job did not start within `deadline_s`.
            EngineError: the pool is closed, or the job started but did not end within `deadline_s`.
            BaseException: whatever `fn` raised.
        """
        job = _Job(fn, args, owner, priority)
        with self._wake:
            if self._closed or not self._workers:
                raise EngineError(f"pool {self.name} is {'closed' if self._closed else 'not started'}")
            try:
                self._queue.push(job, owner=owner, priority=priority)
            except QueueFull:
                self._refused += 1
                raise EngineOverloaded(f"pool {self.name}: {len(self._queue)} jobs are waiting") from None
            # All, because a thread that must not take low work may be the one that a single notify wakes.
            self._wake.notify_all()
        try:
            async with asyncio.timeout(deadline_s):
                result: T = await job.future
                return result
        except TimeoutError:
            # `fn` may raise TimeoutError itself; the future of a job that missed its deadline was cancelled by us.
            if not job.future.cancelled():
                raise
            if job.started:
                raise EngineError(f"pool {self.name}: a job took longer than {deadline_s:g} s") from None
            raise EngineOverloaded(f"pool {self.name}: no thread was free within {deadline_s:g} s") from None
        finally:
            self._withdraw(job)

    async def close(self, deadline_s: float = CLOSE_DEADLINE_S) -> None:
        """Refuse new jobs, fail the waiting ones, let the running ones end, stop the threads. Idempotent.

        Returns after `deadline_s` at the latest; a thread still busy then is left to end with the process.
        """
        loop = asyncio.get_running_loop()
        ended = asyncio.Event()
        with self._wake:
            self._closed = True
            waiting = self._queue.drain()
            self._dropped += len(waiting)
            if self._alive:
                self._all_ended = lambda: loop.call_soon_threadsafe(ended.set)
            else:
                ended.set()
            self._wake.notify_all()
        for job in waiting:
            job.settle(None, EngineError(f"pool {self.name} closed before the job started"))
        try:
            async with asyncio.timeout(deadline_s):
                await ended.wait()
        except TimeoutError:
            log.warning("pool %s: a job was still running %g s after close", self.name, deadline_s)
        finally:
            with self._wake:
                self._all_ended = None

    def _withdraw(self, job: _Job) -> None:
        with self._wake:
            if not job.started and self._queue.remove(job, owner=job.owner, priority=job.priority):
                self._dropped += 1

    def _work(self) -> None:
        if self._prepare is not None:
            self._prepare()
        while (job := self._next()) is not None:
            began = time.monotonic()
            result: Any = None
            error: BaseException | None = None
            try:
                result = job.fn(*job.args)
            except BaseException as exc:
                error = exc
            self._finished(job, time.monotonic() - began, error is not None)
            job.settle(result, error)
            # Hold nothing of a finished job while waiting for the next one.
            del job, result, error
        with self._wake:
            self._alive -= 1
            if not self._alive and self._all_ended is not None:
                self._all_ended()

    def _next(self) -> _Job | None:
        with self._wake:
            while True:
                room_for_low = self.threads == 1 or self._running_low < self.threads - 1
                job = self._queue.pop(lowest=Priority.IDLE if room_for_low else Priority.NORMAL)
                if job is not None:
                    job.started = True
                    self._running += 1
                    self._load.change(self._running, time.monotonic())
                    self._running_low += job.priority > Priority.NORMAL
                    self._waited_s += time.monotonic() - job.queued_at
                    return job
                if self._closed:
                    return None
                self._wake.wait()

    def _finished(self, job: _Job, took_s: float, failed: bool) -> None:
        with self._wake:
            self._running -= 1
            self._load.change(self._running, time.monotonic())
            self._done += 1
            self._failed += failed
            self._busy_s += took_s
            if job.priority > Priority.NORMAL:
                self._running_low -= 1
                self._wake.notify()
