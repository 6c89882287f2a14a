"""Key presses as RTP telephone-events (RFC 4733 section 2). Pure.

A press is a run of packets with one timestamp whose duration grows; the last is sent three times with the end bit. A
receiver counts a press once a timestamp, at its first end packet, and also when a new event or a silence shows that all
three ends were lost. No marker bit is needed: some senders never set it.
"""

from __future__ import annotations

import struct
from collections import deque
from dataclasses import dataclass

from agent.errors import MediaError
from agent.media.frames import FRAME_MS
from agent.media.rtp import ts_delta

__all__ = ["DIGITS", "DtmfReceiver", "DtmfSender", "EventPacket"]

DIGITS = "0123456789*#ABCD"
"""Event codes 0 to 15 (RFC 4733 section 3.2, table 3)."""

EVENT = struct.Struct("!BBH")
LOST_END_S = 0.3
"""No packet of an unfinished event for this long: its end packets are lost. Senders repeat every 20 to 50 ms."""
REMEMBERED = 16
"""Finished timestamps kept, so that reordered or repeated end packets are not counted again."""
TONE_MS = 100
GAP_MS = 60
"""Longer than the 40 ms tone and 40 ms gap that receivers must accept (ITU-T Q.24)."""
END_PACKETS = 3
MAX_QUEUED = 64
VOLUME_DBM0 = 10
MAX_DURATION = 0xFFFF


class DtmfReceiver:
    """Fed telephone-event payloads; returns each finished digit once."""

    def __init__(self) -> None:
        self._open: tuple[int, int] | None = None
        self._seen_at = 0.0
        self._done: deque[int] = deque(maxlen=REMEMBERED)

    def receive(self, timestamp: int, payload: bytes, now: float) -> list[str]:
        """Digits finished by this packet, oldest first. What is not an event 0 to 15 is ignored."""
        if len(payload) < EVENT.size:
            return []
        code, flags, _duration = EVENT.unpack_from(payload)
        if code >= len(DIGITS) or timestamp in self._done:
            return []
        finished = []
        if self._open is not None and self._open[1] != timestamp:
            if ts_delta(timestamp, self._open[1]) < 0:
                return []
            finished.append(self._finish())
        self._open = (code, timestamp)
        self._seen_at = now
        if flags & 0x80:
            finished.append(self._finish())
        return finished

    def tick(self, now: float) -> list[str]:
        """The digit whose end packets were all lost, once that is sure."""
        if self._open is not None and now - self._seen_at >= LOST_END_S:
            return [self._finish()]
        return []

    def _finish(self) -> str:
        assert self._open is not None
        code, timestamp = self._open
        self._open = None
        self._done.append(timestamp)
        return DIGITS[code]


@dataclass(frozen=True, slots=True)
class EventPacket:
    """One packet to send: `timestamp` is the start of the event."""

    timestamp: int
    marker: bool
    payload: bytes


class DtmfSender:
    """Queued key presses, one packet a 20 ms tick, then three ends.

    Args:
        clock_hz: the RTP clock of the telephone-event payload type.
    """

    def __init__(self, clock_hz: int) -> None:
        self._step = clock_hz * FRAME_MS // 1000
        self._steps = TONE_MS // FRAME_MS
        self._gap_ticks = 0
        self._queue: deque[int] = deque()
        self._start: int | None = None
        self._sent = 0

    @property
    def busy(self) -> bool:
        """A digit is being sent or waits."""
        return self._start is not None or bool(self._queue)

    def send(self, digits: str) -> None:
        """Queue digits 0-9 * # A-D. Raises MediaError on another, or when too many wait; nothing is queued then."""
        codes = [DIGITS.find(digit) for digit in digits.upper()]
        if -1 in codes:
            raise MediaError(f"DTMF digits must be of {DIGITS}")
        if len(self._queue) + len(codes) > MAX_QUEUED:
            raise MediaError(f"more than {MAX_QUEUED} DTMF digits are waiting")
        self._queue.extend(codes)

    def tick(self, timestamp: int) -> list[EventPacket]:
        """Packets for this tick, whose media time is `timestamp`."""
        if self._start is None:
            if self._gap_ticks:
                self._gap_ticks -= 1
                return []
            if not self._queue:
                return []
            self._start, self._sent = timestamp, 0
        self._sent += 1
        last = self._sent >= self._steps
        duration = min(MAX_DURATION, self._sent * self._step)
        payload = EVENT.pack(self._queue[0], VOLUME_DBM0 | (0x80 if last else 0), duration)
        packet = EventPacket(self._start, self._sent == 1, payload)
        if not last:
            return [packet]
        self._queue.popleft()
        self._start = None
        self._gap_ticks = GAP_MS // FRAME_MS
        return [packet] * END_PACKETS
