"""The staircase's plane on a virtual clock: it carries what its engines can, and no more."""

from __future__ import annotations

import asyncio

import pytest

from agent.replay.loop import VirtualLoop
from bench._media import percentile
from bench._plane import Costs, Step, climb

COSTS = Costs(batch_s=0.005, frame_s=0.0003, voices=2, first_packet_s=0.06)


def climbed(calls: int, seconds: float = 20.0, costs: Costs = COSTS) -> Step:
    async def frozen() -> Step:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.freeze(100.0)
        try:
            return await climb(calls, seconds, costs=costs)
        finally:
            loop.thaw()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(frozen())


def test_the_end_of_the_engines_is_the_nearer_of_the_two() -> None:
    assert COSTS.calls == 50
    assert Costs(batch_s=0.005, frame_s=0.0003, voices=100, first_packet_s=0.06).calls == 50
    assert Costs(batch_s=0.005, frame_s=0.0003, voices=1, first_packet_s=0.6).calls == 10


def test_one_call_waits_for_the_engines_work_and_nothing_else() -> None:
    step = climbed(1)
    assert step.failed == 0
    assert percentile(step.answers_ms, 1.0) == pytest.approx(65.3, abs=0.1)


def test_well_below_its_end_the_core_answers_all_turns_in_time() -> None:
    step = climbed(25)
    assert (step.failed, step.dropped, step.stalled, step.smallest_window) == (0, 0, 0, 8)
    assert percentile(step.answers_ms, 0.99) < 180


def test_above_its_end_the_window_shrinks_and_silence_is_what_is_lost_first() -> None:
    step = climbed(200, costs=Costs(batch_s=0.005, frame_s=0.0006, voices=200, first_packet_s=0.06))
    assert step.smallest_window < 8
    assert step.dropped > 0


def test_two_climbs_are_alike() -> None:
    one, other = climbed(30, 10.0), climbed(30, 10.0)
    assert one.answers_ms == other.answers_ms
