"""A call whose every clock is one that the test moves: the loop's timers and the caller's frames."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import numpy as np

from agent.conversation import protocol as turns
from agent.replay.loop import VirtualLoop
from tests.agent.test_call import FRAME, Stage

__all__ = ["VirtualStage", "virtual"]


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on a clock that stands still while there is work."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        async def frozen() -> None:
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            loop.freeze(100.0)
            try:
                await test(*args, **kwargs)
            finally:
                loop.thaw()

        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(frozen())

    return run


class VirtualStage(Stage):
    """A stage in virtual time, whose turn machine can be made to guess."""

    _guessed = 0

    @property
    def now(self) -> float:  # type: ignore[override]
        return asyncio.get_running_loop().time()

    @now.setter
    def now(self, _: float) -> None:
        """The loop keeps the time."""

    async def hear(self, pcm: np.ndarray) -> None:
        for start in range(0, len(pcm) - FRAME + 1, FRAME):
            await asyncio.sleep(0.02)
            self.port.tick(pcm[start : start + FRAME])
            await self.settle()

    async def guess(self, text: str) -> None:
        """What the turn machine says at a likely end of the turn; the next question is marked as guessed."""
        machine = self.call._machine
        self._guessed = machine.revision + 1
        real = machine.on

        def on(event: turns.Event, now: float) -> list[turns.Command]:
            return [
                replace(command, speculated=True)
                if isinstance(command, turns.Ask) and command.revision == self._guessed
                else command
                for command in real(event, now)
            ]

        machine.on = on  # type: ignore[method-assign]
        self.call._do(turns.Speculate(self._guessed, text))
        await self.settle()

    async def drop(self) -> None:
        """The turn went on after all."""
        self.call._do(turns.DropSpeculation(self._guessed))
        await self.settle()

    def told(self) -> list[turns.Event]:
        """Everything the turn machine is told from here on, as it comes."""
        machine = self.call._machine
        real = machine.on
        events: list[turns.Event] = []

        def on(event: turns.Event, now: float) -> list[turns.Command]:
            events.append(event)
            return real(event, now)

        machine.on = on  # type: ignore[method-assign]
        return events

    def speculations(self, result: str) -> float:
        return self.parts.metrics.value("voice_speculations_total", result=result)
