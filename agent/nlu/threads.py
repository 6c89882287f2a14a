"""Blocking hooks in worker threads: bounded in number, cancel-safe, and never able to hold up the process's exit.

Python cannot stop a thread. So a caller who stops waiting is released at once, the thread runs on to its own end with
its result dropped, and its place counts as taken until then. The threads are daemons for the same reason.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, TypeVar

from agent.errors import HookError

__all__ = ["HookThreads", "ThreadedIterator", "call_in_thread"]

T = TypeVar("T")

MAX_THREADS = 32
"""Blocking hooks that may run at once in this process."""
MAX_BACKLOG = 64
"""Blocking hooks that may wait for a thread; more are refused."""
DEMAND_DEADLINE_S = 300.0
"""A generator nobody asks for this long is closed: its reader is gone."""

_END = object()
_NEXT, _CLOSE = "next", "close"


class HookThreads:
    """Daemon threads started as needed, up to `limit`, over a bounded backlog. Safe from any loop or thread."""

    def __init__(self, limit: int = MAX_THREADS, backlog: int = MAX_BACKLOG) -> None:
        self._limit = limit
        self._jobs: queue.Queue[Callable[[], None]] = queue.Queue(backlog)
        self._lock = threading.Lock()
        self._threads = 0
        self._busy = 0

    @property
    def busy(self) -> int:
        """Jobs that run or wait."""
        return self._busy

    def submit(self, job: Callable[[], None]) -> None:
        """Run `job` in a thread as soon as one is free; it must not raise.

        Raises:
            HookError: threads and backlog are full, which means that hooks hang.
        """
        with self._lock:
            try:
                self._jobs.put_nowait(job)
            except queue.Full:
                raise HookError(
                    f"all {self._limit} threads for blocking hooks are busy and {self._jobs.maxsize} more are waiting"
                ) from None
            self._busy += 1
            if self._busy > self._threads and self._threads < self._limit:
                self._threads += 1
                threading.Thread(target=self._work, name=f"hook-{self._threads}", daemon=True).start()

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                job()
            finally:
                with self._lock:
                    self._busy -= 1


SHARED = HookThreads()


class ThreadedIterator(AsyncIterator[Any]):
    """Reads a blocking iterator from the event loop: one thread for its whole life, one step for each `__anext__`."""

    def __init__(self, iterator: Iterator[Any], threads: HookThreads = SHARED) -> None:
        self._iterator = iterator
        self._threads = threads
        self._loop = asyncio.get_running_loop()
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: asyncio.Queue[tuple[Any, BaseException | None]] = asyncio.Queue(2)
        self._started = False
        self._closed = False

    async def __anext__(self) -> Any:
        if self._closed:
            raise StopAsyncIteration
        if not self._started:
            self._threads.submit(self._work)
            self._started = True
        self._requests.put(_NEXT)
        value, error = await self._answers.get()
        if error is not None or value is _END:
            self._closed = True
        if isinstance(error, _ClosedError):
            raise HookError(f"a blocking generator was closed: nothing was asked of it for {DEMAND_DEADLINE_S:.0f} s")
        if error is not None:
            raise error
        if value is _END:
            raise StopAsyncIteration
        return value

    async def aclose(self) -> None:
        """Close the iterator in its thread and wait for it; the caller sets the deadline by cancelling the wait."""
        if self.abandon():
            value, error = await self._answers.get()
            while error is None and value is not _END:
                value, error = await self._answers.get()
            if error is not None and not isinstance(error, _ClosedError):
                raise error

    def abandon(self) -> bool:
        """Ask the thread to close the iterator, without waiting. Says whether there was anything to close."""
        if self._closed:
            return False
        self._closed = True
        if not self._started:
            return False
        self._requests.put(_CLOSE)
        return True

    def _work(self) -> None:
        while True:
            try:
                request = self._requests.get(timeout=DEMAND_DEADLINE_S)
            except queue.Empty:
                request = _CLOSE
            answer: tuple[Any, BaseException | None]
            try:
                if request == _CLOSE or self._closed:
                    close = getattr(self._iterator, "close", None)
                    if callable(close):
                        close()
                    answer = None, _ClosedError()
                else:
                    answer = next(self._iterator, _END), None
            except BaseException as exc:
                answer = None, exc
            try:
                self._loop.call_soon_threadsafe(self._post, answer)
            except RuntimeError:  # the loop is closed: nobody is left to tell
                return
            if answer[1] is not None or answer[0] is _END:
                return

    def _post(self, answer: tuple[Any, BaseException | None]) -> None:
        if self._answers.full():  # the reader gave up on earlier answers; only the newest can matter
            self._answers.get_nowait()
        self._answers.put_nowait(answer)


class _ClosedError(Exception):
    """The thread has closed its iterator."""


async def call_in_thread(function: Callable[[], T], threads: HookThreads = SHARED) -> T:
    """Call a blocking function in a thread. Cancelling the wait returns at once and drops the result."""
    steps = ThreadedIterator((function() for _ in range(1)), threads)
    try:
        value: T = await anext(steps)
        return value
    finally:
        steps.abandon()
