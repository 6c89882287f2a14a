"""What a call costs: our media path against stock aiortc, all calls talking both ways, in one run on this machine."""

from __future__ import annotations

from bench._media import Measured, measure, percentile
from bench.harness import Report

__all__ = ["run"]

LOADS = (10, 25, 40, 60)
QUICK_LOADS = (10, 40)
COMPARED = 10
HEAVY = 40


ROUNDS = 2
"""Each path in turn, the lower figure counts: neighbours on the machine only ever add."""


def run(*, quick: bool) -> Report:
    """Stock, ours and ours with speech encoded once at 10 calls, alternating; then ours at the higher loads."""
    seconds = 3.0 if quick else 15.0
    rounds = [{mode: measure(mode, COMPARED, seconds) for mode in ("stock", "ours", "cached")} for _ in range(ROUNDS)]
    stock, least, cached = (
        min((results[mode] for results in rounds), key=lambda result: result.cpu_pct_per_call)
        for mode in ("stock", "ours", "cached")
    )
    loads = [calls for calls in (QUICK_LOADS if quick else LOADS) if calls != COMPARED]
    ours = {COMPARED: least} | {calls: measure("ours", calls, seconds) for calls in loads}
    rows = [_row("stock aiortc", stock), *(_row("ours", result) for result in ours.values())]
    rows.append(_row("ours, encoded once", cached))
    heavy = ours[HEAVY]
    keys: dict[str, float | int | str] = {
        "cpu_ratio_n10": round(ours[COMPARED].cpu_pct_per_call / stock.cpu_pct_per_call, 3),
        "cpu_ratio_cached_n10": round(cached.cpu_pct_per_call / stock.cpu_pct_per_call, 3),
        "stock_cpu_pct_per_call_n10": round(stock.cpu_pct_per_call, 2),
        "cpu_pct_per_call_n10": round(ours[COMPARED].cpu_pct_per_call, 2),
        "cpu_pct_per_call_n40": round(heavy.cpu_pct_per_call, 2),
        "fps_n40": round(heavy.fps, 2),
        "stock_fps_n10": round(stock.fps, 2),
        "lag_p99_ms_n40": round(percentile(heavy.lags_ms, 0.99), 2),
    }
    columns = ("path", "calls", "CPU a call, %", "frames/s out", "frames/s in", "tick lag p99, ms", "late over 20 ms")
    return Report(f"CPU of full-duplex Opus calls, {seconds:.0f} s each", columns, rows, keys)


def _row(name: str, result: Measured) -> tuple[object, ...]:
    late = sum(value > 20.0 for value in result.lateness_ms)
    lag = f"{percentile(result.lags_ms, 0.99):.1f}" if name != "stock aiortc" else "-"
    return (
        name,
        result.calls,
        f"{result.cpu_pct_per_call:.2f}",
        f"{result.fps:.1f}",
        f"{result.heard_fps:.1f}",
        lag,
        f"{late} of {len(result.lateness_ms)}",
    )
