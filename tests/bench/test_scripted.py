"""Scripted engines and callers before admission."""

from __future__ import annotations

import asyncio

from agent.core.admission import AdmissionLimits
from agent.core.admission_book import LocalAdmission
from bench._scripted import Caller, Engine, offer


def test_capacity_follows_from_what_a_turn_costs() -> None:
    assert Engine(workers=4, cost_s=0.05).calls_at(0.5, 1.0) == 40
    assert Engine(workers=1, cost_s=0.05).calls_at(1.0, 0.5) == 10


def test_no_more_calls_are_live_than_were_admitted_and_every_arrival_is_accounted_for() -> None:
    admission = LocalAdmission(AdmissionLimits(streams=2, first_packet_high_ms=5000.0, first_packet_low_ms=5000.0))
    caller = Caller(turns=1, period_s=0.2)
    level = asyncio.run(
        offer(admission, Engine(workers=2, cost_s=0.001), caller, calls_per_s=100.0, seconds=0.6, report_s=0.02)
    )
    assert level.most_live <= 2
    assert level.refused["streams"] > 0
    assert level.admitted + level.refused.total() == level.arrivals
    assert level.task_errors == 0


def test_without_admission_all_are_live_at_once() -> None:
    caller = Caller(turns=1, period_s=10.0)
    level = asyncio.run(offer(None, Engine(), caller, calls_per_s=200.0, seconds=0.3))
    assert level.admitted == level.most_live
    assert level.arrivals - 1 <= level.most_live <= level.arrivals
