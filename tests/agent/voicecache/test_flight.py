"""Single flight within a process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from agent.core.fairqueue import Priority
from agent.errors import EngineError
from agent.tts.protocol import Speech
from agent.voicecache.flight import Flights
from tests.agent.voicecache.support import STYLE, VOICE, Parrot, key_of


class Line:
    """Flights over a parrot."""

    def __init__(self) -> None:
        self.parrot = Parrot()
        self.changes: list[int] = []
        self.flights = Flights(lambda: self.changes.append(self.flights.urgent))

    def make(self, text: str) -> AsyncIterator[Speech]:
        return self.parrot.stream(text, VOICE, STYLE)

    async def hear(self, text: str, priority: Priority = Priority.NORMAL) -> list[Speech]:
        pieces = self.flights.follow(key_of(text), lambda: self.make(text), priority)
        async with aclosing(pieces):
            return [piece async for piece in pieces]


async def test_a_hundred_who_miss_at_once_synthesise_once() -> None:
    line = Line()
    heard = await asyncio.gather(*(line.hear("Hello.") for _ in range(100)))
    assert line.parrot.begun["Hello."] == 1
    assert all(len(pieces) == 2 and pieces[0] is heard[0][0] for pieces in heard)
    await asyncio.sleep(0)
    assert key_of("Hello.") not in line.flights
    assert line.flights.urgent == 0


async def test_who_joins_late_hears_it_from_the_first_piece_on() -> None:
    line = Line()
    pieces = line.flights.follow(key_of("a"), lambda: line.make("a"), Priority.NORMAL)
    line.parrot.tail.clear()
    first = await anext(pieces)
    late = asyncio.create_task(line.hear("a"))
    await asyncio.sleep(0)
    line.parrot.tail.set()
    rest = [piece async for piece in pieces]
    assert [id(piece) for piece in await late] == [id(piece) for piece in (first, *rest)]
    assert line.parrot.begun["a"] == 1


async def test_the_last_to_leave_ends_the_work_and_not_the_first() -> None:
    line = Line()
    line.parrot.gate.clear()
    one, two = (asyncio.create_task(line.hear("a")) for _ in range(2))
    for _ in range(3):
        await asyncio.sleep(0)
    one.cancel()
    await asyncio.wait({one})
    assert not line.parrot.given_up["a"]
    two.cancel()
    await asyncio.wait({two})
    await line.flights.close()
    assert line.parrot.given_up["a"] == 1
    assert line.flights.urgent == 0


async def test_a_failure_reaches_all_who_wait() -> None:
    line = Line()
    line.parrot.fails.add("a")
    results = await asyncio.gather(*(line.hear("a") for _ in range(3)), return_exceptions=True)
    assert all(isinstance(result, EngineError) for result in results)
    line.parrot.fails.clear()
    assert len(await line.hear("a")) == 2


async def test_idle_work_that_has_no_sound_yet_begins_anew_at_the_front_when_somebody_waits() -> None:
    line = Line()
    line.parrot.gate.clear()
    idle = asyncio.create_task(line.hear("a", Priority.IDLE))
    for _ in range(3):
        await asyncio.sleep(0)
    assert line.flights.urgent == 0
    live = asyncio.create_task(line.hear("a"))
    for _ in range(3):
        await asyncio.sleep(0)
    assert line.flights.urgent == 1
    line.parrot.gate.set()
    assert len(await live) == 2
    with pytest.raises(InterruptedError):
        await idle
    assert line.parrot.priorities == [Priority.IDLE, Priority.NORMAL]


async def test_idle_work_that_sounds_already_becomes_urgent() -> None:
    line = Line()
    pieces = line.flights.follow(key_of("a"), lambda: line.make("a"), Priority.IDLE)
    line.parrot.tail.clear()
    await anext(pieces)
    follower = asyncio.create_task(line.hear("a"))
    await asyncio.sleep(0)
    assert line.flights.urgent == 1
    line.parrot.tail.set()
    assert len([piece async for piece in pieces]) == 1
    assert len(await follower) == 2
    assert line.parrot.begun["a"] == 1


async def test_close_ends_all() -> None:
    line = Line()
    line.parrot.gate.clear()
    waiting = [asyncio.create_task(line.hear(text)) for text in "abc"]
    for _ in range(3):
        await asyncio.sleep(0)
    await line.flights.close()
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(result, InterruptedError) for result in results)
