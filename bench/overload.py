"""Overload: what admitted callers feel when half to three times as many call as the core can serve."""

from __future__ import annotations

import asyncio
import os

from agent.core.admission import AdmissionLimits
from agent.core.admission_book import LocalAdmission
from bench._media import percentile
from bench._scripted import Caller, Engine, Level, offer
from bench.harness import Report

__all__ = ["run"]

FACTORS = (0.5, 1.0, 1.5, 2.0, 3.0)
UTILISATION = 0.65
"""Capacity: the share of its workers that a core is filled to (docs/admission.md says why not more)."""

TARGET_MS = 200.0
"""A turn answered later than this is no good one: five times the work itself."""

ENGINE = Engine(workers=4, cost_s=0.04)
CALLER = Caller(turns=4, period_s=0.8)


def limits(capacity: int) -> AdmissionLimits:
    """A small part of the usual times, as calls are short here; thresholds by the work's own 40 ms."""
    return AdmissionLimits(
        streams=capacity,
        first_packet_high_ms=100.0,
        first_packet_low_ms=85.0,
        queue=capacity,
        queue_s=3.0,
        pace_s=0.04,
        lease_s=3.0,
        presence_s=1.0,
        load_s=2.0,
    )


async def _run(seconds: float) -> Report:
    # A turn's period on average: the pause and the work itself.
    period_s = CALLER.period_s * 0.75 + ENGINE.cost_s
    capacity = ENGINE.calls_at(UTILISATION, period_s)
    rate = capacity / (CALLER.turns * period_s)
    levels = {
        factor: await offer(
            LocalAdmission(limits(capacity)), ENGINE, CALLER, calls_per_s=factor * rate, seconds=seconds
        )
        for factor in FACTORS
    }
    # The places are counted for a quicker core: only the soft threshold can notice.
    slow = Engine(ENGINE.workers, 1.5 * ENGINE.cost_s)
    slowed = await offer(LocalAdmission(limits(capacity)), slow, CALLER, calls_per_s=1.5 * rate, seconds=seconds)
    slowed_open = await offer(None, slow, CALLER, calls_per_s=1.5 * rate, seconds=seconds)
    open_door = await offer(None, ENGINE, CALLER, calls_per_s=FACTORS[-1] * rate, seconds=seconds)
    one, three = levels[1.0], levels[3.0]
    keys: dict[str, float | int | str] = {
        "capacity_calls": capacity,
        "p99_1x_ms": round(percentile(one.first_ms, 0.99), 1),
        "p99_3x_ms": round(percentile(three.first_ms, 0.99), 1),
        "p99_ratio_3x": round(percentile(three.first_ms, 0.99) / percentile(one.first_ms, 0.99), 3),
        "goodput_1x_per_s": round(_goodput(one), 1),
        "goodput_3x_per_s": round(_goodput(three), 1),
        "goodput_ratio_3x": round(_goodput(three) / _goodput(one), 3),
        "refused_3x_pct": round(100 * three.refused.total() / three.arrivals, 1),
        "longest_queue_calls": max(level.longest_queue for level in (*levels.values(), slowed)),
        "slow_core_p99_ms": round(percentile(slowed.first_ms, 0.99), 1),
        "slow_core_p99_without_admission_ms": round(percentile(slowed_open.first_ms, 0.99), 1),
        "p99_3x_without_admission_ms": round(percentile(open_door.first_ms, 0.99), 1),
        "goodput_3x_without_admission_per_s": round(_goodput(open_door), 1),
        "failed_calls_count": sum(level.task_errors + level.failed_turns for level in levels.values()),
    }
    rows = [_row(f"{factor:g}", level) for factor, level in levels.items()]
    rows.append(_row(f"{FACTORS[-1]:g}, all admitted", open_door))
    rows.append(_row("1.5, a turn costs 1.5 times", slowed))
    rows.append(_row("the same, all admitted", slowed_open))
    columns = (
        "offered / capacity", "calls", "admitted", "of them queued", "refused", "longest queue", "most live",
        "first packet p50, ms", "p99, ms", "good turns/s",
    )  # fmt: skip
    notes = (
        f"Capacity {capacity} calls: {ENGINE.workers} scripted workers, {ENGINE.cost_s * 1000:.0f} ms a turn, filled "
        f"to {UTILISATION:.0%}. Calls of {CALLER.turns} turns, arriving at random for {seconds:.0f} s a row.",
        "Simulated: engines (threads of the real worker pool that sleep) and callers. Real: admission, its queue, the "
        "worker pool, the clock. No audio, no network, no Redis.",
        f"A good turn has its first packet within {TARGET_MS:.0f} ms. One process ({os.getpid()}), alive at the end.",
    )
    return Report("Overload: first packets of the admitted", columns, rows, keys, notes)


def _goodput(level: Level) -> float:
    """Good turns a second."""
    return sum(first <= TARGET_MS for first in level.first_ms) / level.seconds


def _row(name: str, level: Level) -> tuple[object, ...]:
    return (
        name,
        level.arrivals,
        level.admitted,
        level.waited,
        level.refused.total(),
        level.longest_queue,
        level.most_live,
        f"{percentile(level.first_ms, 0.5):.0f}",
        f"{percentile(level.first_ms, 0.99):.0f}",
        f"{_goodput(level):.1f}",
    )


def run(*, quick: bool) -> Report:
    """Five loads, a slow core, and two without admission, 6 s each (quick) or 40 s."""
    return asyncio.run(_run(6.0 if quick else 40.0))
