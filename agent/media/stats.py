"""What a port knows of its own health: plain numbers, taken at one moment."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.media.jitter import JitterCounters

__all__ = ["PortStats"]


@dataclass(frozen=True, slots=True)
class PortStats:
    """A snapshot; counters are from the start of the call."""

    connected: bool = False
    inbound: JitterCounters = field(default_factory=JitterCounters)
    """What the jitter buffer did with the caller's packets."""
    corrupt: int = 0
    """Packets that could not be parsed, authenticated or decoded."""
    packets_sent: int = 0
    bytes_sent: int = 0
    """RTP payload."""
    send_failures: int = 0
    remote_lost_fraction: float = 0.0
    """Of what we sent, by the peer's last receiver report; 0 to 1."""
    round_trip_s: float | None = None
    jitter_s: float = 0.0
    """Interarrival jitter of the caller's packets (RFC 3550)."""
    rtp_silence_s: float = 0.0
    """Since the last RTP packet from the caller, or since the connection."""
    rtp_silent: bool = False
    """That is longer than the setting media.rtp_silence_s."""
    peer_silence_s: float = 0.0
    """Since anything at all came from the peer: RTP, RTCP, or an answer to an ICE consent check (RFC 7675)."""
    messages_dropped: int = 0
    """Outgoing messages lost because the queue was full or the channel closed."""
    messages_ignored: int = 0
    """Incoming ones that were binary or too long."""
