"""How evenly the agent's packets leave, as the kernel of the caller stamps them (SO_TIMESTAMPNS).

Jitter is how far two packets that follow each other in media time are from 20 ms apart; a caller's jitter buffer adds
about its 99th percentile to the answer's delay. Lateness is against the schedule that the earliest packet sets.
"""

from __future__ import annotations

from bench._media import Measured, measure, percentile
from bench.harness import Report

__all__ = ["run"]

FRAME_MS = 20.0
PARTS = (("p50", 0.50), ("p99", 0.99), ("p999", 0.999))


def run(*, quick: bool) -> Report:
    """Ours with 1 and 40 calls, stock aiortc with 1 and 10."""
    seconds = 8.0 if quick else 40.0
    ours = {calls: measure("ours", calls, seconds, stamped=True) for calls in (1, 40)}
    stock = {calls: measure("stock", calls, seconds, stamped=True) for calls in (1, 10)}
    rows = [_row("ours", result) for result in ours.values()] + [_row("stock aiortc", r) for r in stock.values()]
    keys: dict[str, float | int | str] = {}
    for prefix, results in (("", ours), ("stock_", stock)):
        for calls, result in results.items():
            for name, part in PARTS:
                keys[f"{prefix}jitter_{name}_n{calls}_ms"] = round(percentile(_jitter_ms(result), part), 3)
    columns = ("path", "calls", "packets", "jitter p50, ms", "p99, ms", "p99.9, ms", "late p99.9, ms")
    return Report(f"Pacing of outgoing packets, {seconds:.0f} s each", columns, rows, keys)


def _jitter_ms(result: Measured) -> list[float]:
    return [abs(interval - FRAME_MS) for interval in result.intervals_ms]


def _row(name: str, result: Measured) -> tuple[object, ...]:
    jitter = [f"{percentile(_jitter_ms(result), part):.3f}" for _, part in PARTS]
    return (name, result.calls, len(result.lateness_ms), *jitter, f"{percentile(result.lateness_ms, 0.999):.2f}")
