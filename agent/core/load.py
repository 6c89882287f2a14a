"""How busy a fixed number of workers has been lately. Pure: no clock."""

from __future__ import annotations

import math

__all__ = ["LoadGauge"]

LOAD_S = 1.0
"""Time constant: long enough to see past one job, short enough to follow a caller's turn."""


class LoadGauge:
    """Share of workers in use, 0 to 1, averaged over about the last second; what was a second ago counts a third.

    Args:
        workers: how many there are.
        now: any monotonic clock in seconds, here and below.
    """

    def __init__(self, workers: int, now: float) -> None:
        self._workers = workers
        self._busy = 0
        self._share = 0.0
        self._at = now

    def change(self, busy: int, now: float) -> None:
        """From now on so many are in use."""
        self._share = self.read(now)
        self._at = now
        self._busy = busy

    def read(self, now: float) -> float:
        """The share now."""
        kept = math.exp((self._at - now) / LOAD_S)
        return self._share * kept + self._busy / self._workers * (1 - kept)
