"""The order in which waiting jobs are served: by priority, then round robin over owners. Pure: no threads, no clock.

Not for running anything: `agent.core.pool` does that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Hashable
from enum import IntEnum
from typing import Generic, TypeVar

__all__ = ["FairQueue", "Priority", "QueueFull"]

T = TypeVar("T")


class Priority(IntEnum):
    """Lower is served first; a lower class waits as long as a higher one has work."""

    FINAL = 0
    """Someone waits in silence for this: the last reading of a turn."""
    LIVE = 0
    """The same class under the name that synthesis uses: the clause a caller is about to hear."""
    NORMAL = 1
    PARTIAL = 2
    """Work that a newer piece of the same kind replaces."""
    IDLE = 3
    """Work for later: prefetching, warming up."""


class QueueFull(Exception):
    """The queue, or the owner's share of it, is full."""


class FairQueue(Generic[T]):
    """Bounded queue of items, each with an owner and a priority.

    Args:
        max_items: how many may wait in all.
        max_per_owner: how many of them one owner may hold, so that a busy owner cannot use up the room of the others.
    """

    def __init__(self, *, max_items: int, max_per_owner: int) -> None:
        if max_items < 1 or max_per_owner < 1:
            raise ValueError("max_items and max_per_owner must be at least 1")
        self._max_items = max_items
        self._max_per_owner = max_per_owner
        # Each lane maps owner to its waiting items; the first owner is served next and then moves to the end.
        self._lanes: dict[Priority, OrderedDict[Hashable, deque[T]]] = {p: OrderedDict() for p in Priority}
        self._held: dict[Hashable, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def push(self, item: T, *, owner: Hashable, priority: Priority) -> None:
        """Queue `item`.

        Raises:
            QueueFull: the queue or the owner's share is full.
        """
        held = self._held.get(owner, 0)
        if self._size >= self._max_items or held >= self._max_per_owner:
            raise QueueFull
        self._lanes[priority].setdefault(owner, deque()).append(item)
        self._held[owner] = held + 1
        self._size += 1

    def pop(self, *, lowest: Priority = Priority.IDLE) -> T | None:
        """Take the next item whose priority is `lowest` or more urgent; None when none waits."""
        for priority, lane in self._lanes.items():
            if priority > lowest:
                break
            if lane:
                owner, items = next(iter(lane.items()))
                item = items.popleft()
                if items:
                    lane.move_to_end(owner)
                else:
                    del lane[owner]
                self._forget(owner)
                return item
        return None

    def remove(self, item: T, *, owner: Hashable, priority: Priority) -> bool:
        """Withdraw a waiting item; False when it no longer waits."""
        lane = self._lanes[priority]
        items = lane.get(owner)
        if items is None or item not in items:
            return False
        items.remove(item)
        if not items:
            del lane[owner]
        self._forget(owner)
        return True

    def drain(self) -> list[T]:
        """Take everything that waits, in serving order."""
        items: list[T] = []
        while (item := self.pop()) is not None:
            items.append(item)
        return items

    def _forget(self, owner: Hashable) -> None:
        self._size -= 1
        self._held[owner] -= 1
        if not self._held[owner]:
            del self._held[owner]
