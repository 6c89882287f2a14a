"""The shared clock: absolute, catching up with bounds, and no callback can stop another."""

from __future__ import annotations

import asyncio
import logging

import pytest

from agent.media.ticker import MAX_CATCH_UP, Schedule, Ticker


def test_ticks_fall_on_the_absolute_schedule_however_late_each_was() -> None:
    schedule = Schedule(1000.0)
    ran: list[int] = []
    for n in range(500):
        late = 0.004 if n % 3 else 0.0
        ran += schedule.take(1000.0 + n * 0.02 + late)
    assert ran == list(range(500))
    assert schedule.due_at(500) == pytest.approx(1010.0)


def test_nothing_is_due_before_its_time() -> None:
    schedule = Schedule(5.0)
    assert list(schedule.take(4.9)) == []
    assert list(schedule.take(5.0)) == [0]
    assert list(schedule.take(5.019)) == []
    assert list(schedule.take(5.02)) == [1]


def test_rounding_of_large_clocks_neither_skips_nor_repeats() -> None:
    schedule = Schedule(123_456.789)
    ran = [tick for n in range(100_000) for tick in schedule.take(schedule.due_at(n))]
    assert ran == list(range(100_000))
    assert schedule.skipped == 0


def test_a_short_stall_is_caught_up() -> None:
    schedule = Schedule(0.0)
    schedule.take(0.0)
    assert list(schedule.take(0.065)) == [1, 2, 3]
    assert schedule.skipped == 0


def test_a_long_stall_is_skipped_and_counted() -> None:
    schedule = Schedule(0.0)
    schedule.take(0.0)
    assert list(schedule.take(1.0)) == list(range(51 - MAX_CATCH_UP, 51))
    assert schedule.skipped == 50 - MAX_CATCH_UP
    assert list(schedule.take(1.02)) == [51]


async def until(condition: asyncio.Event) -> None:
    async with asyncio.timeout(10):
        await condition.wait()


async def test_callbacks_get_consecutive_numbers_and_lag_is_reported() -> None:
    lags: list[float] = []
    ticks: list[int] = []
    enough = asyncio.Event()

    def callback(tick: int) -> None:
        ticks.append(tick)
        if len(ticks) == 10:
            enough.set()

    async with Ticker(on_lag=lags.append) as ticker:
        ticker.add(callback)
        ticker.add(callback)
        await until(enough)
        skipped = ticker.skipped
    assert ticks[-1] - ticks[0] == len(ticks) - 1 + skipped
    assert len(lags) >= 1
    assert min(lags) >= 0.0


async def test_a_raising_callback_is_removed_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    failures: list[int] = []
    ticks: list[int] = []
    enough = asyncio.Event()

    def bad(tick: int) -> None:
        failures.append(tick)
        raise ValueError("broken call")

    def good(tick: int) -> None:
        ticks.append(tick)
        if len(ticks) == 5:
            enough.set()

    with caplog.at_level(logging.ERROR):
        async with Ticker() as ticker:
            ticker.add(bad)
            ticker.add(good)
            await until(enough)
    assert len(failures) == 1
    assert "removed from the ticker" in caplog.text


async def test_a_callback_may_remove_itself_or_another_while_running() -> None:
    calls: list[str] = []
    enough = asyncio.Event()
    async with Ticker() as ticker:

        def first(tick: int) -> None:
            calls.append("first")
            ticker.remove(first)
            ticker.remove(second)

        def second(tick: int) -> None:
            calls.append("second")

        def third(tick: int) -> None:
            calls.append("third")
            if calls.count("third") == 3:
                enough.set()

        for callback in (first, second, third):
            ticker.add(callback)
        await until(enough)
    assert calls.count("first") == 1
    assert "second" not in calls


async def test_it_stops_when_left() -> None:
    ticks: list[int] = []
    enough = asyncio.Event()
    async with Ticker() as ticker:
        ticker.add(lambda tick: (ticks.append(tick), enough.set())[0])
        await until(enough)
    count = len(ticks)
    await asyncio.sleep(0.06)
    assert len(ticks) == count
