"""The replay's clock: it stands, it jumps, and it waits for what it cannot hurry."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from agent.replay.loop import VirtualLoop

T = TypeVar("T")


def run(work: Callable[[VirtualLoop], Awaitable[T]]) -> T:
    async def main() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.freeze(50.0)
        try:
            return await work(loop)
        finally:
            loop.thaw()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def test_an_hour_of_timers_takes_no_time_and_keeps_its_order() -> None:
    async def work(loop: VirtualLoop) -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []

        async def after(name: str, seconds: float) -> None:
            await asyncio.sleep(seconds)
            seen.append((name, loop.time() - 50.0))

        await asyncio.gather(after("long", 3600.0), after("short", 0.5), after("middle", 60.0))
        return seen

    began = time.monotonic()
    assert [name for name, _ in run(work)] == ["short", "middle", "long"]
    assert time.monotonic() - began < 60


def test_deadlines_ring_in_virtual_time() -> None:
    async def work(loop: VirtualLoop) -> float:
        try:
            async with asyncio.timeout(10.0):
                await asyncio.Event().wait()
        except TimeoutError:
            return loop.time() - 50.0
        return 0.0

    assert round(run(work), 6) == 10.0


def test_the_script_comes_after_all_that_is_due_before_it() -> None:
    async def work(loop: VirtualLoop) -> list[str]:
        seen: list[str] = []
        done = asyncio.Event()

        def scripted() -> None:
            seen.append(f"script {loop.time():.0f}")
            done.set()

        loop.call_later(1.0, seen.append, "timer 51")
        loop.call_later(3.0, seen.append, "timer 53")
        loop.script(52.0, scripted)
        await done.wait()
        await asyncio.sleep(5.0)
        return seen

    assert run(work) == ["timer 51", "script 52", "timer 53"]


def test_work_in_a_thread_takes_no_time_of_the_clock() -> None:
    async def work(loop: VirtualLoop) -> float:
        loop.script(50.02, lambda: None)
        await asyncio.to_thread(time.sleep, 0.15)
        return loop.time()

    assert run(work) == 50.0


def test_what_outlasts_a_deadline_misses_it() -> None:
    async def work(loop: VirtualLoop) -> tuple[bool, float]:
        ticks: list[float] = []

        def tick() -> None:
            ticks.append(loop.time())
            loop.script(loop.time() + 0.02, tick)

        loop.script(50.02, tick)
        try:
            async with asyncio.timeout(0.1):
                await asyncio.to_thread(time.sleep, 0.5)
        except TimeoutError:
            return True, len(ticks)
        return False, len(ticks)

    missed, ticks = run(work)
    assert missed
    assert 4 <= ticks <= 5
