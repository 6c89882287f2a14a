from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.nlu.hook_steps import HookSteps


class Clock:
    """Moves only when a hook under test holds the loop."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s

    def hold(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


async def test_what_a_hook_holds_is_counted_and_what_it_waits_is_not(clock: Clock) -> None:
    steps = HookSteps(lambda stray: None, clock)

    async def hook() -> AsyncIterator[str]:
        clock.hold(0.25)
        yield "One."
        asyncio.get_running_loop().call_soon(clock.hold, 60.0)  # passes while the hook waits
        await asyncio.sleep(0)
        clock.hold(0.5)
        await asyncio.sleep(0)
        clock.hold(0.125)
        yield "Two."

    items = hook()
    assert await steps.drive(anext(items)) == "One."
    assert steps.longest_s == 0.25
    assert await steps.drive(anext(items)) == "Two."
    assert steps.longest_s == 0.5
    with pytest.raises(StopAsyncIteration):
        await steps.drive(anext(items))


async def test_a_step_that_fails_or_is_cancelled_is_counted_too(clock: Clock) -> None:
    steps = HookSteps(lambda stray: None, clock)

    async def failing() -> None:
        clock.hold(1.0)
        raise ValueError("x")

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            clock.hold(2.0)
            return "seen"
        return "never"

    with pytest.raises(ValueError, match="x"):
        await steps.drive(failing())
    assert steps.longest_s == 1.0

    async def drive() -> str:
        return await steps.drive(stubborn())

    task = asyncio.create_task(drive())
    await asyncio.sleep(0)
    task.cancel()
    assert await task == "seen"
    assert steps.longest_s == 2.0


async def test_a_dropped_generator_goes_to_its_owner_and_others_stay_with_the_loop(clock: Clock) -> None:
    strays: list[Any] = []
    steps = HookSteps(strays.append, clock)
    closed: list[str] = []
    loop_closed_its_own = asyncio.Event()

    async def endless(name: str) -> AsyncIterator[str]:
        try:
            while True:
                yield name
        finally:
            closed.append(name)
            loop_closed_its_own.set()

    async def hook() -> None:
        await anext(endless("hook's"))

    await steps.drive(hook())
    await anext(endless("another's"))
    gc.collect()
    await asyncio.wait_for(loop_closed_its_own.wait(), 5)
    assert closed == ["another's"]
    assert len(strays) == 1
    await strays[0].aclose()
    assert closed == ["another's", "hook's"]
