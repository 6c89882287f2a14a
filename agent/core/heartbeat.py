"""When to ask a silent peer whether it lives, and when to give it up. Pure: fed `now`, a monotonic clock in seconds."""

from __future__ import annotations

from enum import Enum

__all__ = ["BEAT_S", "Beat", "Heartbeat"]

BEAT_S = 0.25
"""A quiet link is asked this often: two small messages, nothing beside 50 frames a second of each call."""


class Beat(Enum):
    """What to do at a beat."""

    NOTHING = "nothing"
    PING = "ping"
    LOST = "lost"


class Heartbeat:
    """One link's.

    Args:
        silence_s: the peer is given up when nothing came for so long.
        now: the time of the link's beginning.
    """

    def __init__(self, silence_s: float, now: float) -> None:
        self._silence_s = silence_s
        self._heard_at = now
        self._beat_at = now
        self._heard_since = False

    def heard(self, now: float) -> None:
        """Anything came from the peer."""
        self._heard_at = now
        self._heard_since = True

    def beat(self, now: float) -> Beat:
        """Call it every `BEAT_S`."""
        # A beat that comes late is this process's fault: what came meanwhile waits to be read, and gets its turn first.
        self._heard_at += max(0.0, now - self._beat_at - BEAT_S)
        heard_since = self._heard_since
        self._heard_since = False
        self._beat_at = now
        if now - self._heard_at >= self._silence_s:
            return Beat.LOST
        return Beat.NOTHING if heard_since else Beat.PING
