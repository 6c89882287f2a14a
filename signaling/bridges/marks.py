"""What the other end of a line has played, told by marks that it echoes. Pure.

A mark goes out behind the audio it stands for and comes back once that was played, or was cleared: which of the two
only the sender knows, so a clear forgets all marks that are on their way.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Marks"]

SPACING_MS = 200
"""Often enough to tell words apart; more would be messages for nothing."""

MAX_PENDING = 100
"""20 s of audio; a peer further behind than that does not echo, and the oldest counts as played."""


class Marks:
    """Counts samples at `rate_hz`."""

    def __init__(self, rate_hz: int) -> None:
        self._spacing = rate_hz * SPACING_MS // 1000
        self._sent = 0
        self._marked = 0
        self._played = 0
        self._named = 0
        self._pending: deque[tuple[str, int]] = deque()
        self._answered = False

    def sent(self, samples: int) -> str | None:
        """Audio went out; the name of the mark that is to follow it, if one is due."""
        self._sent += samples
        return self._mark() if self._sent - self._marked >= self._spacing else None

    def last(self) -> str | None:
        """The mark that covers all that went out; None when one has gone already."""
        return self._mark() if self._sent > self._marked else None

    def echoed(self, name: str) -> None:
        """A mark is back. Marks of cleared audio, and of nobody, say nothing."""
        if not any(name == pending for pending, _ in self._pending):
            return
        self._answered = True
        while self._pending:
            pending, position = self._pending.popleft()
            self._played = position
            if pending == name:
                return

    def clear(self) -> None:
        """The other end drops what it has not played."""
        self._pending.clear()
        self._played = self._marked = self._sent

    @property
    def unplayed(self) -> int:
        """Samples that are out and not played yet; 0 while the other end has not echoed anything."""
        return self._sent - self._played if self._answered else 0

    @property
    def unheard(self) -> int:
        """Samples that were surely not played: the newest echo may be one spacing old."""
        return max(0, self.unplayed - self._spacing)

    def _mark(self) -> str:
        self._named += 1
        self._marked = self._sent
        name = f"m{self._named}"
        self._pending.append((name, self._sent))
        if len(self._pending) > MAX_PENDING:
            self._played = self._pending.popleft()[1]
        return name
