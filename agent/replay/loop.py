"""An event loop whose clock is a number: it stands still while there is work, and jumps when there is none.

Until `freeze` it is an ordinary loop, so that engines load as they always do. From then on a wait of ten seconds takes
no time, and everything that is done between two moments of the clock is done at the first of them.

What is replayed, or played by a test, comes in by `script`. Work outside the loop (a hook's HTTP request, its thread)
is waited for with the clock standing still, unless a timer of the call's own would have rung in real time before it is
done: then the clock goes on up to that timer, as it would in a call.
"""

from __future__ import annotations

import asyncio
import selectors
import time
from asyncio import Future
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

__all__ = ["VirtualLoop"]

LOOK_S = 1.0
"""With no timer set, how long the loop sleeps before it looks again at what it waits for."""


class _Selector(selectors.BaseSelector):
    """The system's selector, asked in vain at most when something outside is at work."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()
        self.loop: VirtualLoop | None = None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        loop = self.loop
        if loop is None or not loop.frozen or (timeout is not None and timeout <= 0):
            return self._real.select(timeout)
        ready = self._real.select(0)
        if not ready and loop.waits_outside():
            ready = self._real.select(LOOK_S if timeout is None else timeout)
            if not ready and timeout is not None:
                loop.give_up_for(timeout)
        elif not ready and not loop.advance(timeout):
            ready = self._real.select(LOOK_S)
        return ready

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class VirtualLoop(asyncio.SelectorEventLoop):
    """See the module. `outside` says whether something in the call waits for the world outside the loop."""

    def __init__(self) -> None:
        selector = _Selector()
        self.frozen = False
        self.outside: Callable[[], bool] = lambda: False
        self._at = 0.0
        self._script: tuple[float, Callable[[], object]] | None = None
        self._given_up_until = 0.0
        self._offset = 0.0
        self._executing = 0
        super().__init__(selector)
        self._channels = selector
        self._own_channels = len(selector.get_map())
        selector.loop = self

    def time(self) -> float:
        """Seconds: of the frozen clock, else of the machine's."""
        return self._at if self.frozen else time.monotonic() + self._offset

    def freeze(self, at: float) -> None:
        """Stop the clock at `at`; timers that were set before then ring at once or late."""
        self.frozen = True
        self._at = at

    def thaw(self) -> None:
        """Let it run on with the machine's."""
        self._offset = self._at - time.monotonic()
        self.frozen = False

    def script(self, at: float, callback: Callable[[], object]) -> None:
        """Call it when the clock reaches `at`, once all before it is done. One may be set at a time."""
        assert self._script is None
        self._script = at, callback

    def unscript(self) -> None:
        """Forget what was set by `script`. Idempotent."""
        self._script = None

    def advance(self, timer_s: float | None) -> bool:
        """Move the frozen clock to the script or to the next timer, whichever is first; False if there is neither."""
        script = self._script
        if script is not None and (timer_s is None or script[0] <= self._at + timer_s):
            self._script = None
            self._at = max(self._at, script[0])
            self.call_soon(script[1])
        elif timer_s is not None:
            self._at += timer_s
        return script is not None or timer_s is not None

    def give_up_for(self, seconds: float) -> None:
        """What is under way outside takes at least this long: let that much of the call go on without it."""
        self._given_up_until = self._at + seconds

    def waits_outside(self) -> bool:
        """Whether something is under way that the loop cannot hurry, and still worth waiting for."""
        return self._at >= self._given_up_until and (self._executing > 0 or self.outside())

    @property
    def has_channels(self) -> bool:
        """Whether anything is registered beside the loop's own wake-up: sockets, pipes."""
        return len(self._channels.get_map()) > self._own_channels

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        """See asyncio; counted, so that the clock waits for it."""
        future = super().run_in_executor(executor, func, *args)
        self._executing += 1
        future.add_done_callback(self._executed)
        return future

    def _executed(self, _future: Future[Any]) -> None:
        self._executing -= 1
