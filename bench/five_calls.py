"""Five callers at once in one process: is any frame of the agent late on the wire?

Both sides talk all the time; what is measured is what each caller sees: packets against the schedule that its earliest
packet sets, and the time between packets. The callers run in a process of their own on the same machine.
"""

from __future__ import annotations

from bench._media import measure, percentile
from bench.harness import Report

__all__ = ["run"]

CALLS = 5
LATE_MS = 20.0
PRIORITY = "Both processes ask for the real-time policy (agent.media.priority); it needs root or CAP_SYS_NICE."


def run(*, quick: bool) -> Report:
    """Five full-duplex calls for 15 s (quick) or 60 s."""
    seconds = 15.0 if quick else 60.0
    result = measure("ours", CALLS, seconds)
    intervals, lateness = result.intervals_ms, result.lateness_ms
    late = sum(value > LATE_MS for value in lateness)
    keys: dict[str, float | int | str] = {
        "late_frames_over_20ms_count": late,
        "lateness_p99_ms": round(percentile(lateness, 0.99), 2),
        "lateness_max_ms": round(max(lateness, default=0.0), 2),
        "interval_p50_ms": round(percentile(intervals, 0.5), 2),
        "interval_p99_ms": round(percentile(intervals, 0.99), 2),
        "interval_max_ms": round(max(intervals, default=0.0), 2),
        "tick_lag_p99_ms": round(percentile(result.lags_ms, 0.99), 2),
        "cpu_pct_per_call_pct": round(result.cpu_pct_per_call, 2),
        "out_fps": round(result.fps, 2),
        "in_fps": round(result.heard_fps, 2),
    }
    rows: list[tuple[object, ...]] = [
        ("packets seen by the callers", len(lateness)),
        ("frames a second a call, out / in", f"{result.fps:.1f} / {result.heard_fps:.1f}"),
        ("frames later than 20 ms", late),
        ("lateness p99 / max, ms", f"{keys['lateness_p99_ms']} / {keys['lateness_max_ms']}"),
        (
            "interval p50 / p99 / max, ms",
            f"{keys['interval_p50_ms']} / {keys['interval_p99_ms']} / {keys['interval_max_ms']}",
        ),
        ("tick lag p99, ms", keys["tick_lag_p99_ms"]),
        ("server's CPU a call, % of a core", keys["cpu_pct_per_call_pct"]),
        ("ticks skipped", result.skipped),
    ]
    return Report(f"{CALLS} calls, {seconds:.0f} s, both sides talking", ("measure", "value"), rows, keys, (PRIORITY,))
