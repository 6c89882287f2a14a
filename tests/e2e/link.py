"""A bad network as a program: moves IP packets between two TUN devices, late, out of order, and not all of them.

Run as `python link.py FD_A FD_B` with the devices already open. Each line on stdin is a JSON object of LinkSettings'
members, or {"counts": true}, which is answered by one line. What `tc netem` does, on kernels built without it too, and
from a seed.
"""

from __future__ import annotations

import heapq
import json
import os
import random
import selectors
import sys
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field

MAX_WAITING = 4_000
"""Packets on their way; more are dropped, as a router does."""
MAX_PACKET_BYTES = 2_048
UDP = 17


@dataclass
class LinkSettings:
    """Both directions alike. A packet takes delay_ms plus or minus jitter_ms (uniform, so packets overtake)."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    loss: float = 0.0
    """Chance of each UDP packet to vanish."""
    cut: bool = False
    """Nothing passes."""


@dataclass
class Counts:
    """Of one direction."""

    packets: int = 0
    rtp: int = 0
    rtp_lost: int = 0


def is_rtp(packet: bytes) -> bool:
    """IPv4, UDP, and by its first bytes RTP (RFC 7983) and not RTCP (RFC 5761)."""
    if len(packet) < 30 or packet[0] >> 4 != 4 or packet[9] != UDP:
        return False
    payload = 4 * (packet[0] & 15) + 8
    return len(packet) > payload + 1 and 128 <= packet[payload] <= 191 and not 192 <= packet[payload + 1] <= 223


@dataclass
class Link:
    settings: LinkSettings
    rng: random.Random
    counts: tuple[Counts, Counts] = field(default_factory=lambda: (Counts(), Counts()))
    waiting: list[tuple[float, int, int, bytes]] = field(default_factory=list)
    number: int = 0

    def take(self, packet: bytes, direction: int, now: float) -> None:
        """A packet that came out of device `direction`."""
        counts, settings = self.counts[direction], self.settings
        rtp = is_rtp(packet)
        counts.packets += 1
        counts.rtp += rtp
        # TCP is spared: the page and its files are not what is tested, and a lost SYN costs a second.
        lossy = len(packet) > 9 and packet[9] == UDP
        if settings.cut or (lossy and self.rng.random() < settings.loss) or len(self.waiting) >= MAX_WAITING:
            counts.rtp_lost += rtp
            return
        late = max(0.0, settings.delay_ms + self.rng.uniform(-settings.jitter_ms, settings.jitter_ms)) / 1000
        self.number += 1
        heapq.heappush(self.waiting, (now + late, self.number, direction, packet))

    def due(self, now: float) -> list[tuple[int, bytes]]:
        """Packets to put out now, with the device they came from."""
        out = []
        while self.waiting and self.waiting[0][0] <= now:
            _, _, direction, packet = heapq.heappop(self.waiting)
            out.append((direction, packet))
        return out


def main(devices: tuple[int, int]) -> None:
    """Until stdin ends."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))
    link = Link(LinkSettings(), random.Random(11))
    selector = selectors.DefaultSelector()
    for direction, device in enumerate(devices):
        os.set_blocking(device, False)
        selector.register(device, selectors.EVENT_READ, direction)
    selector.register(sys.stdin, selectors.EVENT_READ, None)
    while True:
        wait = max(0.0, link.waiting[0][0] - time.monotonic()) if link.waiting else None
        for key, _ in selector.select(wait):
            if key.data is None:
                line = sys.stdin.readline()
                if not line:
                    return
                told = json.loads(line)
                if told.pop("counts", False):
                    print(json.dumps([asdict(counts) for counts in link.counts]), flush=True)
                else:
                    link.settings = LinkSettings(**told)
                continue
            try:
                while True:
                    link.take(os.read(devices[key.data], MAX_PACKET_BYTES), key.data, time.monotonic())
            except BlockingIOError:
                pass
            except OSError:
                return  # the namespace is gone, and the device with it
        for direction, packet in link.due(time.monotonic()):
            with suppress(OSError):
                os.write(devices[1 - direction], packet)


if __name__ == "__main__":
    main((int(sys.argv[1]), int(sys.argv[2])))
