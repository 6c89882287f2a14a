"""The same packet traces through stock aiortc's receive path and ours: what is left of the speech, and how late.

In virtual time: recorded speech, encoded with in-band FEC as a browser does, dropped, delayed and reordered by seeded
chance. A frame is "ok" if its own packet or a FEC copy of it was decoded. A stall is time without new speech. The delay
is that of the last frames behind the microphone.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

from aiortc.codecs.opus import OpusDecoder
from aiortc.jitterbuffer import JitterBuffer as StockBuffer
from aiortc.rtp import RtpPacket as StockPacket

from agent.media.inbound import AudioReceiver
from agent.media.jitter import JitterBuffer
from agent.media.opus import Encoder
from agent.media.rtp import build_rtp
from bench._media import speech
from bench.harness import Report

__all__ = ["run"]

FRAME_S = 0.02
START = 1000.0
RATE_HZ = 16_000

Trace = list[tuple[float, int]]
"""(arrival, packet number), in order of arrival."""


@dataclass(frozen=True)
class Outcome:
    ok_pct: float
    fec: int
    concealed: int
    stall_ms: float
    delay_ms: float


def _trace(count: int, delay: Callable[[int, random.Random], float | None], seed: int = 7) -> Trace:
    rng = random.Random(seed)
    arrivals = [(START + n * FRAME_S + late, n) for n in range(count) if (late := delay(n, rng)) is not None]
    return sorted(arrivals)


def _loss(rate: float) -> Callable[[int, random.Random], float | None]:
    return lambda _n, rng: None if rng.random() < rate else 0.0


def _bursts(length: int) -> Callable[[int, random.Random], float | None]:
    left = 0

    def delay(_n: int, rng: random.Random) -> float | None:
        nonlocal left
        if not left and rng.random() < 0.01:
            left = length
        left, lost = max(0, left - 1), left > 0
        return None if lost else 0.0

    return delay


TRACES: dict[str, Callable[[int, random.Random], float | None]] = {
    "no loss": _loss(0.0),
    "1 % loss": _loss(0.01),
    "2 % loss": _loss(0.02),
    "5 % loss": _loss(0.05),
    "10 % loss": _loss(0.10),
    "bursts of 3": _bursts(3),
    "1 % reordered": lambda _n, rng: 0.03 if rng.random() < 0.01 else 0.0,
    "30 ms jitter": lambda _n, rng: rng.uniform(0, 0.03),
    "60 ms jitter": lambda _n, rng: rng.uniform(0, 0.06),
    "one packet lost": lambda n, _rng: None if n == 200 else 0.0,
}


def _ours(payloads: list[bytes], trace: Trace) -> Outcome:
    buffer: JitterBuffer[bytes] = JitterBuffer()
    receiver = AudioReceiver(111, {}, buffer)
    at, stall, longest, started = 0, 0, 0, False
    delays: list[float] = []
    for tick in range(len(payloads)):
        now = START + 0.01 + tick * FRAME_S
        while at < len(trace) and trace[at][0] <= now:
            arrival, n = trace[at]
            receiver.receive(build_rtp(111, n == 0, n & 0xFFFF, n * 960, 5, payloads[n]), arrival)
            at += 1
        concealed = buffer.counters.concealed
        receiver.tick(now)
        delays.append(buffer.counters.delay_ms)
        started = started or buffer.counters.delay_ms > 0
        stall = stall + 1 if started and buffer.counters.concealed > concealed else 0
        longest = max(longest, stall)
    counters = buffer.counters
    waiting = len(buffer._order)
    ok = counters.received - counters.late - counters.duplicate - counters.dropped - waiting + counters.fec
    expected = max(n for _, n in trace[:at]) + 1 - waiting
    receiver.close()
    return Outcome(
        100.0 * ok / max(1, expected),
        counters.fec,
        counters.concealed,
        longest * 20.0,
        sum(delays[-50:]) / 50,
    )


def _stock(payloads: list[bytes], trace: Trace) -> Outcome:
    buffer = StockBuffer(capacity=16, prefetch=4)
    decoder = OpusDecoder()
    frames: list[tuple[float, int]] = []
    for arrival, n in trace:
        packet = StockPacket(payload_type=111, sequence_number=n & 0xFFFF, timestamp=n * 960)
        packet._data = payloads[n]  # type: ignore[attr-defined]
        _, encoded = buffer.add(packet)
        if encoded is not None:
            decoder.decode(encoded)
            frames.append((arrival, encoded.timestamp // 960))
    gaps = [b[0] - a[0] - FRAME_S for a, b in pairwise(frames)]
    delays = [at - START - number * FRAME_S for at, number in frames[-50:]]
    return Outcome(
        100.0 * len(frames) / max(1, frames[-1][1] + 1),
        0,
        0,
        max(0.0, *gaps) * 1000,
        sum(delays) / len(delays) * 1000,
    )


def run(*, quick: bool) -> Report:
    """20 s of speech a trace (quick) or 120 s."""
    pcm = speech(RATE_HZ)
    encoder = Encoder(RATE_HZ, bitrate=32_000, expected_loss_pct=5)
    count = (20 if quick else 120) * 50
    frames = len(pcm) // 320
    payloads = [encoder.encode(pcm[n % frames * 320 : (n % frames + 1) * 320]) for n in range(count)]
    results: dict[str, tuple[Outcome, Outcome]] = {}
    for name, delay in TRACES.items():
        trace = _trace(count, delay)
        results[name] = (_ours(payloads, trace), _stock(payloads, trace))
    rows: list[tuple[object, ...]] = [
        (
            name,
            f"{ours.ok_pct:.1f}",
            f"{stock.ok_pct:.1f}",
            f"{ours.fec} / {ours.concealed}",
            f"{ours.stall_ms:.0f}",
            f"{stock.stall_ms:.0f}",
            f"{ours.delay_ms:.0f}",
            f"{stock.delay_ms:.0f}",
        )
        for name, (ours, stock) in results.items()
    ]
    calm, one = results["no loss"], results["one packet lost"]
    keys: dict[str, float | int | str] = {
        "ours_ok_loss2_pct": round(results["2 % loss"][0].ok_pct, 2),
        "stock_ok_loss2_pct": round(results["2 % loss"][1].ok_pct, 2),
        "ours_added_delay_one_loss_ms": round(one[0].delay_ms - calm[0].delay_ms, 1),
        "stock_added_delay_one_loss_ms": round(one[1].delay_ms - calm[1].delay_ms, 1),
        "ours_longest_stall_loss5_ms": results["5 % loss"][0].stall_ms,
        "stock_longest_stall_loss5_ms": round(results["5 % loss"][1].stall_ms, 1),
    }
    columns = (
        "trace", "ours ok, %", "stock ok, %", "ours FEC / concealed",
        "ours stall, ms", "stock stall, ms", "ours delay, ms", "stock delay, ms",
    )  # fmt: skip
    return Report(f"Receive path under {count // 50} s of speech a trace", columns, rows, keys)
