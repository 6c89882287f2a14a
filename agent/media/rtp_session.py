"""What a negotiation of plain RTP came to, as the media path needs it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from agent.media.codec import Codec

__all__ = ["Address", "RtpSession", "SrtpKey", "SrtpSuite"]

Address = tuple[str, int]
SrtpSuite = Literal["AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32"]


@dataclass(frozen=True, slots=True)
class SrtpKey:
    """An SDES key (RFC 4568 section 6)."""

    suite: SrtpSuite
    key: bytes = field(repr=False)
    """Master key and salt, 30 bytes."""


@dataclass(frozen=True, slots=True)
class RtpSession:
    """One audio stream both ways."""

    remote: Address
    """Where the peer says that it receives."""
    codec: Codec
    payload_type: int
    event: tuple[int, int] | None = None
    """Payload type and clock in Hz of telephone-event (RFC 4733)."""
    sends: bool = True
    """We may send; False: the peer holds us."""
    hears: bool = True
    """The peer sends."""
    known: bool = False
    """The peer's signalling comes from the same host, so that it is no third party's."""
    rtcp_mux: bool = False
    """RTCP on the port of RTP (RFC 5761)."""
    send_key: SrtpKey | None = None
    receive_key: SrtpKey | None = None
    """Both or none."""
