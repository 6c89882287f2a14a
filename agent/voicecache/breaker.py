"""A circuit breaker: leaves alone what fails, and tries it again now and then. Pure: fed `now`."""

from __future__ import annotations

from enum import Enum

__all__ = ["Breaker", "BreakerState"]


class BreakerState(Enum):
    CLOSED = "closed"
    """All goes through."""
    OPEN = "open"
    """Nothing does."""
    PROBING = "probing"
    """One attempt is out to see whether it works again."""


class Breaker:
    """Opens after `failures` in a row; then one probe after `first_s`, doubling up to `max_s`."""

    def __init__(self, *, failures: int = 3, first_s: float = 0.5, max_s: float = 30.0) -> None:
        self.state = BreakerState.CLOSED
        self._limit = failures
        self._first_s = first_s
        self._max_s = max_s
        self._failures = 0
        self._wait_s = first_s
        self._retry_at = 0.0

    def allows(self) -> bool:
        """Whether a caller may go through. Probes are not callers: see `probe`."""
        return self.state is BreakerState.CLOSED

    def probe(self, now: float) -> bool:
        """True once when it is time for a probe; its outcome is to be told by `worked` or `failed`."""
        if self.state is not BreakerState.OPEN or now < self._retry_at:
            return False
        self.state = BreakerState.PROBING
        return True

    def worked(self) -> None:
        """An attempt succeeded."""
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._wait_s = self._first_s

    def failed(self, now: float) -> None:
        """An attempt failed."""
        self._failures += 1
        if self.state is BreakerState.PROBING:
            self._wait_s = min(self._max_s, self._wait_s * 2)
        elif self._failures < self._limit:
            return
        self.state = BreakerState.OPEN
        self._retry_at = now + self._wait_s
