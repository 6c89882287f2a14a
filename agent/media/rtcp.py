"""RTCP sender and receiver reports (RFC 3550 section 6), enough for both ends to know loss, jitter and round trip.

Pure: fed packets and `now` (monotonic seconds), returns bytes. Feedback messages for video are ignored.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from agent.media.rtp import seq_delta, ts_delta

__all__ = ["ReceptionStats", "ReportBlock", "SenderInfo", "build_bye", "build_report", "parse_rtcp"]

SR, RR, SDES, BYE = 200, 201, 202, 203
SDES_CNAME = 1
NTP_EPOCH_OFFSET_S = 2_208_988_800
"""Seconds from 1900 (NTP) to 1970 (Unix)."""
MAX_LOST = 0x7F_FFFF

BLOCK = struct.Struct("!IBBHIIII")
SENDER = struct.Struct("!QIII")


@dataclass(frozen=True, slots=True)
class ReportBlock:
    """What a receiver says of one source (RFC 3550 6.4.1). `lost_fraction` is of 256."""

    ssrc: int
    lost_fraction: int
    lost_total: int
    highest_sequence: int
    jitter: int
    last_sr: int
    delay_since_sr: int


@dataclass(frozen=True, slots=True)
class SenderInfo:
    """What a sender says of itself. `ntp` is 32.32 fixed point."""

    ssrc: int
    ntp: int
    rtp_timestamp: int
    packets: int
    octets: int


def ntp_time(unix_s: float) -> int:
    """Wall-clock seconds as a 64-bit NTP timestamp."""
    return int((unix_s + NTP_EPOCH_OFFSET_S) * (1 << 32)) & 0xFFFF_FFFF_FFFF_FFFF


def _packet(kind: int, count: int, body: bytes) -> bytes:
    return struct.pack("!BBH", 0x80 | count, kind, len(body) // 4) + body


def _block(block: ReportBlock) -> bytes:
    lost = max(-MAX_LOST - 1, min(MAX_LOST, block.lost_total)) & 0xFF_FFFF
    return BLOCK.pack(
        block.ssrc,
        block.lost_fraction & 0xFF,
        lost >> 16,
        lost & 0xFFFF,
        block.highest_sequence & 0xFFFF_FFFF,
        block.jitter & 0xFFFF_FFFF,
        block.last_sr & 0xFFFF_FFFF,
        block.delay_since_sr & 0xFFFF_FFFF,
    )


def build_report(ssrc: int, sender: SenderInfo | None, block: ReportBlock | None, cname: str) -> bytes:
    """A compound packet: SR (or RR when nothing was sent) with at most one block, then SDES CNAME."""
    reports = _block(block) if block else b""
    count = 1 if block else 0
    head = struct.pack("!I", ssrc)
    if sender is not None:
        head += SENDER.pack(sender.ntp, sender.rtp_timestamp, sender.packets & 0xFFFF_FFFF, sender.octets & 0xFFFF_FFFF)
        first = _packet(SR, count, head + reports)
    else:
        first = _packet(RR, count, head + reports)
    name = cname.encode()[:255]
    chunk = struct.pack("!IBB", ssrc, SDES_CNAME, len(name)) + name + b"\0"
    chunk += b"\0" * (-len(chunk) % 4)
    return first + _packet(SDES, 1, chunk)


def build_bye(ssrc: int) -> bytes:
    """RTCP BYE for one source."""
    return _packet(BYE, 1, struct.pack("!I", ssrc))


def parse_rtcp(data: bytes) -> Iterator[SenderInfo | ReportBlock]:
    """The sender information and report blocks in a compound packet; what is malformed or unknown is passed over."""
    at = 0
    while at + 8 <= len(data):
        first, kind, words = struct.unpack_from("!BBH", data, at)
        end = at + 4 + 4 * words
        if first >> 6 != 2 or end > len(data):
            return
        if kind in (SR, RR):
            blocks = at + 8
            if kind == SR:
                if blocks + SENDER.size > end:
                    return
                yield SenderInfo(int.from_bytes(data[at + 4 : at + 8], "big"), *SENDER.unpack_from(data, blocks))
                blocks += SENDER.size
            for index in range(first & 0x1F):
                block = blocks + index * BLOCK.size
                if block + BLOCK.size > end:
                    break
                ssrc, fraction, lost_high, lost_low, highest, jitter, last_sr, delay = BLOCK.unpack_from(data, block)
                lost = (lost_high << 16 | lost_low) - (0x100_0000 if lost_high & 0x80 else 0)
                yield ReportBlock(ssrc, fraction, lost, highest, jitter, last_sr, delay)
        at = end


class ReceptionStats:
    """Loss and jitter of one incoming source, as RFC 3550 A.3 and A.8 compute them."""

    def __init__(self, clock_hz: int) -> None:
        self.clock_hz = clock_hz
        self.ssrc: int | None = None
        self.received = 0
        self._base = 0
        self._highest = 0
        self._jitter = 0.0
        self._last_transit: float | None = None
        self._last_timestamp = 0
        self._expected_before = 0
        self._received_before = 0
        self._last_sr = 0
        self._last_sr_at = 0.0

    @property
    def jitter_s(self) -> float:
        """Interarrival jitter, smoothed (RFC 3550 6.4.1)."""
        return self._jitter / self.clock_hz

    @property
    def expected(self) -> int:
        """Packets the source sent, by its sequence numbers."""
        return self._highest - self._base + 1 if self.received else 0

    def received_packet(self, ssrc: int, sequence: int, timestamp: int, now: float) -> None:
        """Count one packet; a new SSRC starts anew."""
        if ssrc != self.ssrc:
            self.__init__(self.clock_hz)  # type: ignore[misc]
            self.ssrc = ssrc
            self._base = self._highest = sequence
        ahead = seq_delta(sequence, self._highest & 0xFFFF)
        self.received += 1
        if ahead > 0:
            self._highest += ahead
        elif self.received > 1:
            return
        elapsed = ts_delta(timestamp, self._last_timestamp)
        transit = now * self.clock_hz
        if self._last_transit is not None and elapsed:
            self._jitter += (min(abs(transit - self._last_transit - elapsed), self.clock_hz) - self._jitter) / 16
        self._last_transit = transit
        self._last_timestamp = timestamp

    def received_sr(self, sr: SenderInfo, now: float) -> None:
        """Remember a sender report, so that its sender can compute the round trip."""
        self._last_sr = sr.ntp >> 16 & 0xFFFF_FFFF
        self._last_sr_at = now

    def report(self, now: float) -> ReportBlock | None:
        """The block for the next report; the loss fraction counts from the last call."""
        if self.ssrc is None:
            return None
        expected = self.expected - self._expected_before
        lost = expected - (self.received - self._received_before)
        self._expected_before, self._received_before = self.expected, self.received
        return ReportBlock(
            self.ssrc,
            min(255, (lost << 8) // expected) if expected > 0 and lost > 0 else 0,
            self.expected - self.received,
            self._highest,
            int(self._jitter),
            self._last_sr,
            int((now - self._last_sr_at) * 65536) if self._last_sr else 0,
        )
