"""A hook that says what a test wrote down, and remembers what it was asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from agent.nlu.hook import Turn

__all__ = ["ScriptedHook"]

Answer = Sequence[Any] | Callable[[Turn], Sequence[Any]]


class ScriptedHook:
    """Gives one answer a turn, in order; after the last one it stays silent.

    An answer is a list, or a function of the turn that returns one; a function answers all turns from there on, which
    is what a hook needs that is asked ahead (`turn.speculative`) and perhaps again. In a list, text and actions are
    yielded; a float is waited for in seconds; an `asyncio.Event` is waited for; an exception is raised.
    """

    def __init__(self, *answers: Answer) -> None:
        self.answers: list[Answer] = list(answers)
        self.turns: list[Turn] = []
        """What it was asked, speculative turns too."""
        self.closed = 0
        """Answers that ended, however they did."""

    async def reply(self, turn: Turn) -> AsyncIterator[Any]:
        """The next answer. Raises what it holds."""
        self.turns.append(turn)
        answer = self.answers[0] if self.answers else []
        try:
            if callable(answer):
                items = answer(turn)
            else:
                items = answer
                del self.answers[:1]
            for item in items:
                match item:
                    case float():
                        await asyncio.sleep(item)
                    case asyncio.Event():
                        await item.wait()
                    case BaseException():
                        raise item
                    case _:
                        yield item
        finally:
            self.closed += 1
