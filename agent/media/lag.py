"""Is the media clock late? The ticker's lag over its last wake-ups, as a decision with hysteresis. Pure.

The clock of this is the ticker itself: a wake-up is 20 ms, so a count of them is a stretch of time.
"""

from __future__ import annotations

from collections import deque

__all__ = ["LagGate"]

WINDOW = 150
"""Wake-ups looked at: three seconds."""

EVERY = 25
"""Judged each half second; sorting 150 numbers takes about 10 us."""

REOPEN = 0.5
"""Open again at this share of the limit, so that a clock at the limit does not flap."""


class LagGate:
    """Fed each wake-up's lag; `late` while its 99th percentile is too high.

    Args:
        limit_ms: closes above it; 0 never closes.
    """

    def __init__(self, limit_ms: float) -> None:
        self.limit_ms = limit_ms
        self.late = False
        self._lags: deque[float] = deque(maxlen=WINDOW)
        self._until = EVERY

    def add(self, lag_s: float) -> None:
        """One wake-up came `lag_s` seconds after it was due."""
        self._lags.append(lag_s)
        self._until -= 1
        if self._until <= 0:
            self._until = EVERY
            p99_ms = self.p99_ms
            self.late = 0 < self.limit_ms < p99_ms or (self.late and p99_ms > self.limit_ms * REOPEN)

    @property
    def p99_ms(self) -> float:
        """By nearest rank; 0.0 before the first wake-up. A single stall in a full window does not show."""
        if not self._lags:
            return 0.0
        ordered = sorted(self._lags)
        return ordered[max(0, -(-len(ordered) * 99 // 100) - 1)] * 1000
