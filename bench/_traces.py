"""Packet traces in virtual time, and two receive paths that play them: stock aiortc's and ours."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterBuffer as StockBuffer
from aiortc.rtp import RtpPacket as StockPacket

from agent.media.frames import HEARING_HZ, Pcm
from agent.media.inbound import AudioReceiver
from agent.media.jitter import JitterBuffer
from agent.media.opus import OPUS_CLOCK_HZ
from agent.media.resample import resample
from agent.media.rtp import build_rtp

__all__ = ["TRACES", "Outcome", "Trace", "make_trace", "through_ours", "through_stock"]

FRAME_S = 0.02
START_S = 1000.0
PAYLOAD_TYPE = 111
PACKET_TICKS = 960
LOST_ONE = 100

Trace = list[tuple[float, int]]
"""(arrival in seconds, packet number), in order of arrival."""

Delay = Callable[[int, random.Random], float | None]
"""How late a packet comes, in seconds; None when it is lost."""


@dataclass(frozen=True)
class Outcome:
    """What a path made of a trace."""

    ok_pct: float
    """Frames from a packet of their own or from a FEC copy, of those sent."""
    fec: int
    concealed: int
    stall_ms: float
    """Longest time without new speech."""
    delay_ms: float
    """Of the last second, behind the microphone."""
    pcm: Pcm
    """What the recogniser gets: int16 [n], 16 kHz."""


def _loss(rate: float) -> Delay:
    return lambda _n, rng: None if rng.random() < rate else 0.0


def _bursts(length: int) -> Delay:
    left = 0

    def delay(n: int, rng: random.Random) -> float | None:
        nonlocal left
        if n == 0:
            left = 0
        if not left and rng.random() < 0.01:
            left = length
        left, lost = max(0, left - 1), left > 0
        return None if lost else 0.0

    return delay


TRACES: dict[str, Delay] = {
    "no loss": _loss(0.0),
    "1 % loss": _loss(0.01),
    "2 % loss": _loss(0.02),
    "5 % loss": _loss(0.05),
    "10 % loss": _loss(0.10),
    "bursts of 3": _bursts(3),
    "1 % reordered": lambda _n, rng: 0.03 if rng.random() < 0.01 else 0.0,
    "30 ms jitter": lambda _n, rng: rng.uniform(0, 0.03),
    "60 ms jitter": lambda _n, rng: rng.uniform(0, 0.06),
    "one packet lost": lambda n, _rng: None if n == LOST_ONE else 0.0,
}


def make_trace(count: int, delay: Delay, seed: int) -> Trace:
    """`count` packets sent every 20 ms."""
    rng = random.Random(seed)
    arrivals = [(START_S + n * FRAME_S + late, n) for n in range(count) if (late := delay(n, rng)) is not None]
    return sorted(arrivals)


def through_ours(payloads: list[bytes], trace: Trace) -> Outcome:
    """Our receive path: one frame each 20 ms, whatever came."""
    buffer: JitterBuffer[bytes] = JitterBuffer()
    receiver = AudioReceiver(PAYLOAD_TYPE, {}, buffer)
    at, stall, longest, started = 0, 0, 0, False
    delays: list[float] = []
    frames: list[Pcm] = []
    for tick in range(len(payloads)):
        now = START_S + 0.01 + tick * FRAME_S
        while at < len(trace) and trace[at][0] <= now:
            arrival, n = trace[at]
            packet = build_rtp(PAYLOAD_TYPE, n == 0, n & 0xFFFF, n * PACKET_TICKS, 5, payloads[n])
            receiver.receive(packet, arrival)
            at += 1
        concealed = buffer.counters.concealed
        frames.append(receiver.tick(now)[0])
        delays.append(buffer.counters.delay_ms)
        started = started or buffer.counters.delay_ms > 0
        stall = stall + 1 if started and buffer.counters.concealed > concealed else 0
        longest = max(longest, stall)
    counters = buffer.counters
    waiting = len(buffer._order)
    ok = counters.received - counters.late - counters.duplicate - counters.dropped - waiting + counters.fec
    expected = max((n for _, n in trace[:at]), default=0) + 1 - waiting
    receiver.close()
    return Outcome(
        100.0 * ok / max(1, expected),
        counters.fec,
        counters.concealed,
        longest * FRAME_S * 1000,
        sum(delays[-50:]) / 50,
        np.concatenate(frames),
    )


def through_stock(payloads: list[bytes], trace: Trace) -> Outcome:
    """Stock aiortc's: a frame when its buffer gives one; what it skips leaves no gap in what is heard."""
    buffer = StockBuffer(capacity=16, prefetch=4)
    decoder = OpusDecoder()
    frames: list[tuple[float, int]] = []
    heard: list[Pcm] = []
    for arrival, n in trace:
        packet = StockPacket(payload_type=PAYLOAD_TYPE, sequence_number=n & 0xFFFF, timestamp=n * PACKET_TICKS)
        packet._data = payloads[n]  # type: ignore[attr-defined]
        _, encoded = buffer.add(packet)
        if encoded is not None:
            heard += [frame.to_ndarray()[0, ::2] for frame in decoder.decode(encoded)]  # type: ignore[attr-defined]
            frames.append((arrival, encoded.timestamp // PACKET_TICKS))
    gaps = [b[0] - a[0] - FRAME_S for a, b in pairwise(frames)]
    # Silence until its first frame, as ours has: the recogniser reads some clips by how much comes before them.
    lead = round((frames[0][0] - START_S) * HEARING_HZ)
    delays = [at - START_S - number * FRAME_S for at, number in frames[-50:]]
    return Outcome(
        100.0 * len(frames) / max(1, frames[-1][1] + 1),
        0,
        0,
        max(0.0, *gaps) * 1000,
        sum(delays) / len(delays) * 1000,
        np.pad(resample(np.concatenate(heard), OPUS_CLOCK_HZ, HEARING_HZ), (lead, 0)),
    )
