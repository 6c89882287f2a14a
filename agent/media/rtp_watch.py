"""How long a call may go without RTP, by what is expected of the peer. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

__all__ = ["Expected", "RtpLimits", "RtpWatch"]


class Expected(Enum):
    """What should be coming."""

    SPEECH = auto()
    NOTHING = auto()
    """On hold, or the peer only listens."""


@dataclass(frozen=True, slots=True)
class RtpLimits:
    """In seconds."""

    first_s: float = 30.0
    """From the answer to the first packet."""
    silence_s: float = 60.0
    """Between packets of a conversation. Telephones that detect silence (VAD) pause, though seldom for so long."""
    hold_s: float = 1800.0
    """On hold: nobody waits for longer, and the line is wanted."""


class RtpWatch:
    """Fed what is expected and the time of the last packet; says when to give up.

    Args:
        began_at: when the media was agreed on, in seconds of any monotonic clock.
    """

    def __init__(self, limits: RtpLimits, began_at: float) -> None:
        self._limits = limits
        self._expected = Expected.SPEECH
        self._since = began_at

    def expect(self, expected: Expected, now: float) -> None:
        """The state has changed."""
        if expected is not self._expected:
            self._expected, self._since = expected, now

    def restart(self, now: float) -> None:
        """The call has been answered: count from here."""
        self._since = now

    def fault(self, last_packet_at: float | None, now: float) -> str | None:
        """What to log when the call is beyond its limit, else None."""
        if self._expected is Expected.NOTHING:
            if now - self._since < self._limits.hold_s:
                return None
            return f"on hold for {self._limits.hold_s:.0f} s"
        if last_packet_at is None:
            if now - self._since < self._limits.first_s:
                return None
            return (
                f"no RTP at all came within {self._limits.first_s:.0f} s of the answer: check that the peer can reach "
                "sip.advertised_address at the UDP ports sip.rtp_port_min to sip.rtp_port_max"
            )
        if now - max(last_packet_at, self._since) < self._limits.silence_s:
            return None
        return f"no RTP came for {self._limits.silence_s:.0f} s"
