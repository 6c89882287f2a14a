"""A hook's steps on the event loop: how long each holds it, and where the generators go that the hook drops.

A step is what runs between two suspensions. Nothing else of the server runs meanwhile, so a long one is a fault.
"""

from __future__ import annotations

import sys
import types
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from functools import partial
from typing import Any, TypeVar

__all__ = ["HookSteps"]

T = TypeVar("T")


class HookSteps:
    """Runs what a hook is made of, in one task."""

    def __init__(self, on_stray: Callable[[AsyncGenerator[Any, Any]], None], now: Callable[[], float]) -> None:
        """Measure with `now` (monotonic seconds).

        `on_stray` gets each asynchronous generator that began in these steps and was dropped before its end. It is
        called by the garbage collector, in any thread. Left to itself, asyncio closes such a generator in a task whose
        errors nobody retrieves, and whose KeyboardInterrupt or SystemExit ends the loop.
        """
        self.longest_s = 0.0
        """The longest step so far."""
        self._on_stray = on_stray
        self._now = now

    def call(self, step: Callable[[], T]) -> T:
        """Run one step."""
        loops_own = sys.get_asyncgen_hooks().finalizer
        sys.set_asyncgen_hooks(finalizer=self._on_stray)
        began = self._now()
        try:
            return step()
        finally:
            self.longest_s = max(self.longest_s, self._now() - began)
            sys.set_asyncgen_hooks(finalizer=loops_own)

    @types.coroutine
    def drive(self, awaitable: Awaitable[T]) -> Generator[Any, Any, T]:
        """Await `awaitable` in the current task, each of its steps by `call`."""
        steps: Any = awaitable.__await__()
        resume: Callable[[], Any] = partial(steps.send, None)
        while True:
            try:
                waits_for = self.call(resume)
            except StopIteration as end:
                result: T = end.value
                return result
            try:
                resume = partial(steps.send, (yield waits_for))
            except GeneratorExit:
                self.call(steps.close)
                raise
            except BaseException as exc:  # a cancellation, for the hook to see
                resume = partial(steps.throw, exc)
