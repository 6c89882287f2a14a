"""Silence of RTP: told once when it has lasted too long, and once when packets are back. Pure.

A caller's line is never silent on the wire: even with DTX a packet comes each 400 ms (RFC 7587 section 3.1.3). Nothing
for seconds means a muted device, a lost route or a page put to sleep; whether the peer still lives is decided by
consent (RFC 7675), not here.
"""

from __future__ import annotations

from typing import Literal

__all__ = ["SilenceWatch"]


class SilenceWatch:
    """Fed the time of the last packet; answers with what has changed.

    Args:
        after_s: silence that is worth telling.
    """

    def __init__(self, after_s: float) -> None:
        self.stalled = False
        """Told of a silence whose end has not come."""
        self._after_s = after_s
        self._since = 0.0

    def check(self, last_packet_at: float, now: float) -> tuple[Literal["stalled", "resumed"], float] | None:
        """What to tell, with the seconds of silence: so far when it stalled, in all when it resumed."""
        if not self.stalled:
            if now - last_packet_at <= self._after_s:
                return None
            self.stalled, self._since = True, last_packet_at
            return "stalled", now - last_packet_at
        if last_packet_at <= self._since:
            return None
        self.stalled = False
        return "resumed", last_packet_at - self._since
