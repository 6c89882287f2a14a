"""Several callers at once in one process, real engines on the real clock: none of them hears a hole in a word."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.app import Agent
from agent.config import Settings
from agent.events import CallEvent, ReplyFinished
from agent.nlu.hook import Session, Turn
from agent.testing import ScriptedPort

pytestmark = pytest.mark.alone

CALLS = 3
ANSWER_S = 40.0
SHORTEST_FRAMES = 250
"""The sentence takes eight seconds or more; five would mean that some of it was lost."""

NAMES = itertools.cycle(("Amber", "Basil", "Cedar", "Dahlia", "Elder", "Fennel", "Ginger", "Hazel"))


async def one_breath(turn: Turn) -> AsyncIterator[str]:
    """A sentence without a pause, another one each time, so that no cache has it."""
    if turn.kind == "greeting":
        return
    yield (
        f"The order that you placed for {next(NAMES)} at our shop on the market square will be brought to the door of "
        "your house by the driver of the green van on the morning of the second Monday of the coming month."
    )


class Line:
    """A caller who types, on a port that the real ticker drives."""

    def __init__(self, agent: Agent, number: int) -> None:
        self.port = ScriptedPort()
        self._done = asyncio.Event()
        session = Session(f"call_{number}", "browser")
        self._call = agent.start_call(port=self.port, session=session, observer=self._told)

    def tick(self, _tick: int) -> None:
        self.port.tick()

    def _told(self, event: CallEvent) -> None:
        if isinstance(event, ReplyFinished):
            self._done.set()

    async def greeted(self) -> None:
        await self._done.wait()

    async def answer(self) -> list[bool]:
        """Whether each frame from the first to the last of the next answer was speech."""
        self._done.clear()
        self.port.sent.clear()
        self._call.type_text("go on")
        await self._done.wait()
        spoken = [frame is not None for frame in self.port.sent]
        first, last = spoken.index(True), len(spoken) - spoken[::-1].index(True)
        return spoken[first:last]


async def test_sound_does_not_gap_inside_words_when_three_calls_run_at_once(tmp_path: Path) -> None:
    module = Path(__file__)
    settings = Settings(
        nlu={"kind": "function", "target": f"{module}:one_breath"},
        cache={"folder": tmp_path},
        server={"max_lag_ms": 0},
    )
    async with asyncio.timeout(ANSWER_S * 2), Agent.open(settings) as agent:
        lines = [Line(agent, number) for number in range(CALLS)]
        for line in lines:
            agent.ticker.add(line.tick)
        await asyncio.gather(*(line.greeted() for line in lines))
        for _ in range(2):
            for frames in await asyncio.gather(*(line.answer() for line in lines)):
                assert len(frames) >= SHORTEST_FRAMES
                assert all(frames), f"silence after {frames.index(False)} of {len(frames)} frames"
        for line in lines:
            agent.ticker.remove(line.tick)
