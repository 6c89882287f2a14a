"""RTCP of one call (RFC 3550 section 6): when our reports are due, what they say, what the peer's tell. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable

from agent.media.fec import FecPolicy
from agent.media.inbound import AudioReceiver
from agent.media.outbound import AudioSender
from agent.media.rtcp import SenderInfo, build_bye, build_report, parse_rtcp

__all__ = ["CNAME", "Reports"]

REPORT_TICKS = 50
"""One report a second, varied by half so that reports of many calls do not fall together (RFC 3550 section 6.2)."""

REMEMBERED = 4
"""Reports of ours that the peer may still answer; it names one by the middle of its NTP time."""

CNAME = "rejoinder"
"""RFC 7022 wants it unlinkable between sessions: one name for every call says nothing."""


class Reports:
    """What both sides tell each other. Sender and receiver are handed in, since a new agreement replaces them.

    Args:
        expected_loss_pct: what in-band FEC prepares for until the path is known.
        chance: uniform in [0, 1).
    """

    def __init__(self, expected_loss_pct: int, *, chance: Callable[[], float] = random.random) -> None:
        self.remote_lost_fraction = 0.0
        """Of our packets, by the peer's newest report."""
        self.round_trip_s: float | None = None
        self._fec = FecPolicy(expected_loss_pct)
        self._chance = chance
        self._next_tick = 0
        self._sent_at: dict[int, float] = {}

    @property
    def fec_percent(self) -> int:
        """The loss that the encoder should prepare for now."""
        return self._fec.percent

    def due(self, tick: int) -> bool:
        """Whether a report is to be sent at this tick of the call; once for each."""
        if tick < self._next_tick:
            return False
        self._next_tick = tick + int(REPORT_TICKS * (0.5 + self._chance()))
        return True

    def build(self, sender: AudioSender, receiver: AudioReceiver, now: float, unix_s: float) -> bytes:
        """A report, sent now.

        Args:
            now: monotonic seconds.
            unix_s: the same moment on the wall clock, which NTP time stamps are of.
        """
        info = sender.sender_info(unix_s)
        if info is not None:
            self._sent_at[info.ntp >> 16 & 0xFFFF_FFFF] = now
            while len(self._sent_at) > REMEMBERED:
                del self._sent_at[next(iter(self._sent_at))]
        return build_report(sender.ssrc, info, receiver.reception.report(now), CNAME)

    def goodbye(self, sender: AudioSender) -> bytes:
        """The last packet of the call."""
        return build_report(sender.ssrc, None, None, CNAME) + build_bye(sender.ssrc)

    def take(self, data: bytes, sender: AudioSender, receiver: AudioReceiver, now: float) -> bool:
        """A compound packet of the peer's; True if `fec_percent` has changed. Anything at all may be in it."""
        before = self._fec.percent
        for item in parse_rtcp(data):
            if isinstance(item, SenderInfo):
                if item.ssrc == receiver.reception.ssrc:
                    receiver.reception.received_sr(item, now)
            elif item.ssrc == sender.ssrc:
                self.remote_lost_fraction = item.lost_fraction / 256
                sent_at = self._sent_at.get(item.last_sr)
                if sent_at is not None:
                    self.round_trip_s = max(0.0, now - sent_at - item.delay_since_sr / 65536)
                self._fec.report(self.remote_lost_fraction, now)
        return self._fec.percent != before
