"""Tests in virtual time: a wait of ten seconds takes none, and every run is the same.

The clock stands still while anything runs and jumps to the next timer when nothing does (`agent.replay.loop`). What a
hook does outside the event loop, in a thread or over a socket, is waited for.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from agent.replay.loop import VirtualLoop

__all__ = ["run_virtual", "virtual_time"]

P = ParamSpec("P")
T = TypeVar("T")

STARTS_AT_S = 1_000.0
"""What the clock shows first: an arbitrary moment, the same in every run."""


def run_virtual(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in a loop of its own whose clock is virtual; returns what it returns, or raises."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.freeze(STARTS_AT_S)
        try:
            return await work
        finally:
            # What is cleaned up from here on, such as threads, is real.
            loop.thaw()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def virtual_time(test: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Make an `async def` test one that runs in virtual time. It needs no plugin; its fixtures must not be async."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        return run_virtual(test(*args, **kwargs))

    return run
