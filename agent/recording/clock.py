"""The clock of a recording: slots of 20 ms, one a tick of the pacer, those that never ran among them. Pure."""

from __future__ import annotations

from agent.media.frames import FRAME_MS

__all__ = ["PacerClock"]

MAX_GAP = 3_000
"""A minute without ticks becomes silence; of a longer one (a ticker that began anew) the rest is left out."""


class PacerClock:
    """Turns tick numbers into places in the recording."""

    def __init__(self) -> None:
        self.slots = 0
        """Slots up to the end of the newest tick's."""
        self._last: int | None = None

    @property
    def t_ms(self) -> int:
        """Where the newest tick's slot begins; 0 before the first."""
        return max(0, self.slots - 1) * FRAME_MS

    def advance(self, tick: int) -> int:
        """One tick; returns how many slots before it never ran."""
        gap = 0 if self._last is None else min(MAX_GAP, max(0, tick - self._last - 1))
        self._last = tick
        self.slots += gap + 1
        return gap
