"""One key press that comes twice, as telephone-event (RFC 4733) and as SIP INFO, counts once. Pure."""

from __future__ import annotations

from collections import deque
from typing import Literal

__all__ = ["KeyMerge", "Way"]

Way = Literal["rtp", "info"]
APART_S = 1.0
"""Both copies of a press come within this; INFO may be sent again by UDP's timers, 0.5 s later."""
REMEMBERED = 16


class KeyMerge:
    """Fed each press with the way it came; says whether it is a new one."""

    def __init__(self) -> None:
        self._single: deque[tuple[str, Way, float]] = deque(maxlen=REMEMBERED)
        """Presses whose other copy has not come."""

    def take(self, digit: str, way: Way, now: float) -> bool:
        """False for the second copy. The same key pressed twice has two copies of each."""
        for earlier in self._single:
            known, by, at = earlier
            if known == digit and by != way and now - at <= APART_S:
                self._single.remove(earlier)
                return False
        self._single.append((digit, way, now))
        return True
