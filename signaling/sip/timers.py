"""Deadlines by name, and one schedule for all who have some. Pure: no clock, no task.

Times are in seconds of the monotonic clock that `now` is on. Names of RFC 3261's timers are its letters.
"""

from __future__ import annotations

import heapq
import itertools
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Deadlines", "Schedule", "Ticking", "Timings"]

MIN_SWEEP = 64
"""Cancelled entries that are not worth a sweep."""


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
        return max(32.0, self.timeout)


class Ticking(Protocol):
    """Whoever has deadlines."""

    def tick(self, now: float) -> None:
        """Act on those that have passed."""


class Entry:
    """One deadline in the heap; a cancelled one has no owner."""

    __slots__ = ("order", "owner", "queued", "when")

    def __init__(self, when: float, order: int, owner: Ticking) -> None:
        self.when = when
        self.order = order
        self.owner: Ticking | None = owner
        self.queued = True

    def __lt__(self, other: Entry) -> bool:
        return (self.when, self.order) < (other.when, other.order)


class Schedule:
    """Who is due when: a heap. Cancelled entries are swept out once they are the greater part."""

    def __init__(self) -> None:
        self._heap: list[Entry] = []
        self._order = itertools.count()
        self._dead = 0

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def next_at(self) -> float | None:
        """When `run` is wanted again; None: no deadline."""
        while self._heap and self._heap[0].owner is None:
            heapq.heappop(self._heap)
            self._dead -= 1
        return self._heap[0].when if self._heap else None

    def at(self, when: float, owner: Ticking) -> Entry:
        """Have `owner` ticked then."""
        entry = Entry(when, next(self._order), owner)
        heapq.heappush(self._heap, entry)
        return entry

    def cancel(self, entry: Entry) -> None:
        """Forget a deadline that has not passed."""
        if entry.owner is None:
            return
        entry.owner = None
        self._dead += entry.queued
        if self._dead > MIN_SWEEP and 2 * self._dead > len(self._heap):
            self._heap = [kept for kept in self._heap if kept.owner is not None]
            heapq.heapify(self._heap)
            self._dead = 0

    def run(self, now: float) -> None:
        """Tick all who are due at `now`. Deadlines set meanwhile wait for the next run, so this always ends."""
        due: list[Entry] = []
        while self._heap and self._heap[0].when <= now:
            entry = heapq.heappop(self._heap)
            entry.queued = False
            if entry.owner is None:
                self._dead -= 1
            else:
                due.append(entry)
        for entry in due:
            # An earlier one's tick may have cancelled it.
            owner, entry.owner = entry.owner, None
            if owner is not None:
                owner.tick(now)


class Deadlines:
    """The named deadlines of one owner."""

    __slots__ = ("_at", "_owner", "_schedule")

    def __init__(self, schedule: Schedule, owner: Ticking) -> None:
        self._schedule = schedule
        self._owner = owner
        self._at: dict[str, Entry] = {}

    def set(self, name: str, when: float) -> None:
        """Set or move a deadline."""
        if name in self._at:
            self.clear(name)
        self._at[name] = self._schedule.at(when, self._owner)

    def clear(self, *names: str) -> None:
        """Remove deadlines: those named, or all."""
        for name in names or tuple(self._at):
            entry = self._at.pop(name, None)
            if entry is not None:
                self._schedule.cancel(entry)

    def __contains__(self, name: str) -> bool:
        return name in self._at

    def take_due(self, now: float) -> list[str]:
        """Names whose time has come, earliest first; each is removed."""
        due = sorted((entry.when, name) for name, entry in self._at.items() if entry.when <= now)
        for _, name in due:
            self.clear(name)
        return [name for _, name in due]
