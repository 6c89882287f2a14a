"""Telephone calls a core: G.711 over SIP with the agent talking, set-up times, and where frames begin to be late."""

from __future__ import annotations

import asyncio

from bench._media import percentile
from bench._sip import LoadResult, measure
from bench.harness import Report

__all__ = ["run"]

LOADS = (25, 50, 100, 150, 200)
QUICK_LOADS = (25, 100)
ON_TIME = 0.999
"""Of frames within 20 ms of their schedule: one late frame in twenty seconds of speech."""
ROUNDS = 2
"""Of a load that was late: neighbours on the machine only ever add."""


def run(*, quick: bool) -> Report:
    """Loads one after the other, each with a server of its own."""
    seconds = 4.0 if quick else 15.0
    results = [_best(calls, seconds) for calls in (QUICK_LOADS if quick else LOADS)]
    on_time = [result.calls for result in results if _on_time(result)]
    hundred = next(result for result in results if result.calls == 100)
    setups = [value for result in results for value in result.setups_ms]
    keys: dict[str, float | int | str] = {
        "cpu_pct_per_call": round(hundred.cpu_pct_per_call, 3),
        "calls_on_time": max(on_time, default=0),
        "setup_p50_ms": round(percentile(setups, 0.5), 2),
        "setup_p99_ms": round(percentile(setups, 0.99), 2),
        "late_frames_100_pct": round(100 * hundred.late_share, 3),
        "lateness_100_p99_ms": round(percentile(hundred.lateness_ms, 0.99), 2),
    }
    columns = ("calls", "CPU a call, %", "frames/s out", "frames/s in", "late over 20 ms, %", "set-up p50 / p99, ms")
    notes = (
        "One process, one core; the callers share the machine. No engine runs: hearing, hook and voice come on top.",
        f"On time: {ON_TIME:.1%} of the frames within 20 ms of their schedule.",
    )
    return Report(
        f"SIP calls with PCMU both ways, {seconds:.0f} s each", columns, [_row(r) for r in results], keys, notes
    )


def _best(calls: int, seconds: float) -> LoadResult:
    results: list[LoadResult] = []
    for _ in range(ROUNDS):
        results.append(asyncio.run(measure(calls, seconds)))
        if _on_time(results[-1]):
            break
    return min(results, key=lambda result: result.late_share)


def _on_time(result: LoadResult) -> bool:
    return 1.0 - result.late_share >= ON_TIME


def _row(result: LoadResult) -> tuple[object, ...]:
    return (
        result.calls,
        f"{result.cpu_pct_per_call:.2f}",
        f"{result.sent_fps:.1f}",
        f"{result.heard_fps:.1f}",
        f"{100 * result.late_share:.2f}",
        f"{result.setup_ms(0.5):.1f} / {result.setup_ms(0.99):.1f}",
    )
