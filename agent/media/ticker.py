"""One clock for all calls of a process: `start + n * 20 ms`, absolute and monotonic.

A tick that comes late does not move those after it, so timing errors never add up. Late ticks are caught up, at most
`MAX_CATCH_UP` at once, as more would leave as a burst that fills the callers' jitter buffers; beyond that the schedule
is anchored anew and what was skipped is counted. Timestamps stay right, since callbacks get the tick's number.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Self

from agent.media.frames import FRAME_MS

__all__ = ["MAX_CATCH_UP", "Schedule", "Ticker"]

logger = logging.getLogger(__name__)

MAX_CATCH_UP = 4
"""Ticks run back to back after a stall: 80 ms, what browsers' buffers absorb without a gap."""


class Schedule:
    """Which ticks are due; pure. `start` is the time of tick 0, in seconds of any monotonic clock."""

    def __init__(self, start: float, *, interval_s: float = FRAME_MS / 1000, max_catch_up: int = MAX_CATCH_UP) -> None:
        self.interval_s = interval_s
        self.max_catch_up = max_catch_up
        self.next_tick = 0
        self.skipped = 0
        """Ticks that never ran, because the process had stalled for longer than can be caught up."""
        self._start = start

    def due_at(self, tick: int) -> float:
        """When a tick should run."""
        return self._start + tick * self.interval_s

    def take(self, now: float) -> range:
        """The ticks to run now, oldest first; at most `max_catch_up`. Skipped ticks keep their numbers."""
        # The tolerance takes up the rounding of `start + n * interval` itself.
        last = int((now - self._start) / self.interval_s + 1e-6)
        first = self.next_tick
        if last < first:
            return range(first, first)
        if last - first + 1 > self.max_catch_up:
            self.skipped += last - first + 1 - self.max_catch_up
            first = last - self.max_catch_up + 1
        self.next_tick = last + 1
        return range(first, last + 1)


class Ticker:
    """Runs callbacks every 20 ms on the event loop; an async context manager.

    A callback that raises is logged and removed; the others go on.

    Args:
        on_lag: called once a wake-up with how late it was, in seconds (metric voice_ticker_lag_seconds).
    """

    def __init__(self, *, on_lag: Callable[[float], None] | None = None) -> None:
        self.on_lag = on_lag
        self._callbacks: dict[Callable[[int], None], None] = {}
        self._schedule: Schedule | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.lag_s = 0.0
        """How late the last wake-up was."""

    @property
    def skipped(self) -> int:
        """Ticks that never ran."""
        return self._schedule.skipped if self._schedule else 0

    def add(self, callback: Callable[[int], None]) -> None:
        """Call it with the tick's number at each tick from the next on. Adding twice is adding once."""
        self._callbacks[callback] = None

    def remove(self, callback: Callable[[int], None]) -> None:
        """Call it no more; unknown callbacks are ignored."""
        self._callbacks.pop(callback, None)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._schedule = Schedule(self._loop.time())
        self._arm()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._callbacks.clear()

    def _arm(self) -> None:
        assert self._loop is not None
        assert self._schedule is not None
        self._timer = self._loop.call_at(self._schedule.due_at(self._schedule.next_tick), self._wake)

    def _wake(self) -> None:
        assert self._loop is not None
        assert self._schedule is not None
        now = self._loop.time()
        # The loop may wake us a clock resolution early; the tick is due all the same.
        due = self._schedule.due_at(self._schedule.next_tick)
        self.lag_s = max(0.0, now - due)
        if self.on_lag is not None:
            self.on_lag(self.lag_s)
        try:
            for tick in self._schedule.take(max(now, due)):
                self._run(tick)
        finally:
            if self._timer is not None:
                self._arm()

    def _run(self, tick: int) -> None:
        for callback in tuple(self._callbacks):
            if callback not in self._callbacks:
                continue
            try:
                callback(tick)
            except Exception:
                self._callbacks.pop(callback, None)
                logger.exception("a media callback failed and was removed from the ticker")
