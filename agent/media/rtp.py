"""RTP packets and their wrapping arithmetic (RFC 3550 sections 5.1 and A.1). Pure; no sockets, no crypto."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from agent.errors import ProtocolError

__all__ = [
    "RtpPacket",
    "build_rtp",
    "is_rtcp",
    "parse_rtp",
    "seq_delta",
    "ts_delta",
]

HEADER = struct.Struct("!BBHII")
VERSION = 2


@dataclass(frozen=True, slots=True)
class RtpPacket:
    """One received packet. `timestamp` is in the payload's clock (48 kHz for Opus, RFC 7587)."""

    payload_type: int
    marker: bool
    sequence: int
    timestamp: int
    ssrc: int
    payload: bytes


def seq_delta(a: int, b: int) -> int:
    """How far 16-bit sequence `a` is ahead of `b`: -32768..32767."""
    return ((a - b + 0x8000) & 0xFFFF) - 0x8000


def ts_delta(a: int, b: int) -> int:
    """How far 32-bit timestamp `a` is ahead of `b`: -2**31..2**31-1."""
    return ((a - b + 0x8000_0000) & 0xFFFF_FFFF) - 0x8000_0000


def is_rtcp(data: bytes) -> bool:
    """True for RTCP among multiplexed packets: payload types 64 to 95 are never RTP here (RFC 5761 section 4)."""
    return len(data) >= 2 and 192 <= data[1] <= 223


def parse_rtp(data: bytes) -> RtpPacket:
    """Parse one packet; header extensions and padding are stripped (RFC 3550 5.1, 5.3.1).

    Raises ProtocolError, naming the field, on anything malformed.
    """
    if len(data) < HEADER.size:
        raise ProtocolError(f"RTP packet of {len(data)} bytes, at least {HEADER.size} expected", field="rtp")
    first, second, sequence, timestamp, ssrc = HEADER.unpack_from(data)
    if first >> 6 != VERSION:
        raise ProtocolError(f"RTP version {first >> 6}, 2 expected", field="rtp.version")
    start = HEADER.size + 4 * (first & 0x0F)
    end = len(data)
    if first & 0x10:
        if end < start + 4:
            raise ProtocolError("RTP header extension is cut short", field="rtp.extension")
        start += 4 + 4 * int.from_bytes(data[start + 2 : start + 4], "big")
    if first & 0x20:
        padding = data[-1]
        if not padding or padding > end - start:
            raise ProtocolError(f"RTP padding of {padding} bytes does not fit", field="rtp.padding")
        end -= padding
    if start > end:
        raise ProtocolError("RTP header is longer than the packet", field="rtp.csrc")
    return RtpPacket(second & 0x7F, second >= 0x80, sequence, timestamp, ssrc, data[start:end])


def build_rtp(payload_type: int, marker: bool, sequence: int, timestamp: int, ssrc: int, payload: bytes) -> bytes:
    """Serialise one packet without CSRCs, extensions or padding."""
    second = payload_type | 0x80 if marker else payload_type
    return HEADER.pack(VERSION << 6, second, sequence, timestamp, ssrc) + payload
