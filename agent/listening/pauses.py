"""How long one caller's pauses inside turns are. Pure."""

from __future__ import annotations

__all__ = ["PauseTracker"]

SHORTEST_MS, LONGEST_MS = 150.0, 2000.0
"""Shorter ones are closures inside words; a longer one says that the caller was interrupted, not how they speak."""

NEWEST_WEIGHT = 0.3
"""Of the newest pause in the average: about the last five count."""


class PauseTracker:
    """A moving average. Feed it each pause after which the same turn went on, whether or not it was waited out."""

    def __init__(self) -> None:
        self._typical_ms: float | None = None

    @property
    def typical_ms(self) -> float | None:
        """The average so far, in milliseconds, 150 to 2000; None before the first pause."""
        return self._typical_ms

    def turn_went_on(self, pause_ms: float) -> None:
        """A pause of this length lay inside a turn. Shorter than 150 ms, or not a number, is no pause."""
        if not pause_ms >= SHORTEST_MS:
            return
        held = min(pause_ms, LONGEST_MS)
        before = held if self._typical_ms is None else self._typical_ms
        self._typical_ms = before + NEWEST_WEIGHT * (held - before)
