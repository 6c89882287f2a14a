"""How long this caller's pauses inside turns are. Pure."""

from __future__ import annotations

__all__ = ["PauseTracker"]

WEIGHT = 0.3
"""Share of the newest pause in the moving average."""

MIN_MS, MAX_MS = 100.0, 3000.0
"""Shorter gaps lie inside words, longer ones are no hesitation."""


class PauseTracker:
    """Exponential moving average of the pauses after which a turn went on, in milliseconds."""

    def __init__(self) -> None:
        self._typical_ms: float | None = None

    @property
    def typical_ms(self) -> float | None:
        """None before the first pause."""
        return self._typical_ms

    def turn_went_on(self, pause_ms: float) -> None:
        """The caller paused this long and went on with the same turn."""
        pause_ms = min(max(pause_ms, MIN_MS), MAX_MS)
        if self._typical_ms is None:
            self._typical_ms = pause_ms
        else:
            self._typical_ms += WEIGHT * (pause_ms - self._typical_ms)
