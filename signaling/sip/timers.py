"""Deadlines by name, and one schedule for all who have some. Pure: no clock, no task.

Times are in seconds of the monotonic clock that `now` is on. Names of RFC 3261's timers are its letters.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Deadlines", "Schedule", "Ticking", "Timings"]


@dataclass(frozen=True, slots=True)
class Timings:
    """RFC 3261 table 4, in seconds. Only tests want others."""

    t1: float = 0.5
    """Estimate of the round trip: first retransmission."""
    t2: float = 4.0
    """Longest interval of retransmissions of a non-INVITE request or an INVITE response."""
    t4: float = 5.0
    """Longest time that a message stays in the network."""

    @property
    def timeout(self) -> float:
        """Timers B, F, H, J, L and M."""
        return 64 * self.t1

    @property
    def linger_d(self) -> float:
        """Timer D: at least 32 s."""
        return max(32.0 if self.t1 >= 0.5 else 0.0, 64 * self.t1)


class Ticking(Protocol):
    """Whoever has deadlines."""

    def tick(self, now: float) -> None:
        """Act on those that have passed."""


class Schedule:
    """A heap of who is due when. A deadline that was moved leaves a stale entry, which costs one idle `tick`."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Ticking]] = []
        self._order = itertools.count()

    @property
    def next_at(self) -> float | None:
        """When `run` is wanted again; None: no deadline."""
        return self._heap[0][0] if self._heap else None

    def at(self, when: float, owner: Ticking) -> None:
        heapq.heappush(self._heap, (when, next(self._order), owner))

    def run(self, now: float) -> None:
        """Tick all who are due at `now`. Deadlines set meanwhile wait for the next run, so this always ends."""
        due: list[Ticking] = []
        while self._heap and self._heap[0][0] <= now:
            due.append(heapq.heappop(self._heap)[2])
        for owner in due:
            owner.tick(now)


class Deadlines:
    """The named deadlines of one owner."""

    __slots__ = ("_at", "_owner", "_schedule")

    def __init__(self, schedule: Schedule, owner: Ticking) -> None:
        self._schedule = schedule
        self._owner = owner
        self._at: dict[str, float] = {}

    def set(self, name: str, when: float) -> None:
        """Set or move a deadline."""
        self._at[name] = when
        self._schedule.at(when, self._owner)

    def clear(self, *names: str) -> None:
        """Remove deadlines: those named, or all."""
        for name in names or tuple(self._at):
            self._at.pop(name, None)

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def take_due(self, now: float) -> list[str]:
        """Names whose time has come, earliest first; each is removed."""
        due = sorted((when, name) for name, when in self._at.items() if when <= now)
        for _, name in due:
            del self._at[name]
        return [name for _, name in due]
