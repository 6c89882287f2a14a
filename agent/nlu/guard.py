"""The wall between a hook and a call: whatever a hook does, the call sees checked items, one HookError, or the end.

The hook is driven by one task of its own, from first step to clean-up. That keeps `asyncio.timeout` and other
task-bound tools inside a hook sound, and lets the call walk away from a hook that will not let itself be cancelled.
The task advances only when the next item is asked for, so a hook is never ahead of its reader.
"""

from __future__ import annotations

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncGenerator
from pathlib import Path
from types import TracebackType
from typing import Any

from agent.errors import HookError
from agent.nlu.actions import check_item
from agent.nlu.hook import Action, Nlu, Turn
from agent.nlu.hook_steps import HookSteps
from agent.nlu.spread import spread

__all__ = ["GuardedReply", "guarded"]

CLOSE_DEADLINE_S = 1.0
"""How long a hook's clean-up may take before the call stops waiting for it."""

HELD_S = 0.1
"""A step of a hook that holds the event loop longer is worth a warning: every call's sound waits for it."""

OURS = str(Path(__file__).parents[1])
"""The package; what lies outside of it is the hook's."""

log = logging.getLogger(__name__)

_leaving: set[asyncio.Task[None]] = set()
"""Hooks on their way out, held so that their clean-up is not garbage-collected under them."""


def guarded(nlu: Nlu, turn: Turn, *, max_chars: int) -> GuardedReply:
    """Ask the hook and check everything it says. See GuardedReply.

    Args:
        nlu: the hook.
        turn: what the caller did.
        max_chars: most characters of text in the reply; every item counts as at least one.
    """
    return GuardedReply(nlu, turn, max_chars)


class GuardedReply:
    """A reply in progress: an async iterator of `str | Action`.

    Cancelling `__anext__` loses nothing: the next call goes on waiting for the same item, so a deadline may be put
    around it. The reader ends with `aclose()` (or `async with`) unless it read to the end or to an error; a reply that
    is dropped without it is closed when it is collected, with nobody waiting for its clean-up.

    Raises (from `__anext__`):
        HookError: the hook failed (its exception is the `__cause__`), or yielded something that is not a reply.
    """

    def __init__(self, nlu: Nlu, turn: Turn, max_chars: int) -> None:
        self._driver = _Driver(nlu, turn, max_chars)
        self._task: asyncio.Task[None] | None = None
        self._asked = False

    def __aiter__(self) -> GuardedReply:
        return self

    async def __anext__(self) -> str | Action:
        driver = self._driver
        if driver.ended:
            raise StopAsyncIteration
        if self._task is None:
            self._task = asyncio.create_task(driver.run(), name=f"hook {driver.turn.session.id}")
        if not self._asked:
            self._asked = True
            driver.wanted.set()
        answer = await driver.answers.get()
        self._asked = False
        if isinstance(answer, HookError):
            await self.aclose()
            raise answer
        if answer is None:
            await self.aclose()
            raise StopAsyncIteration
        return answer

    async def aclose(self) -> None:
        """End the hook and wait for its clean-up, at most one second. Idempotent; never raises what the hook raises."""
        task = self._leave()
        if task is None:
            return
        task.cancel()
        _, late = await asyncio.wait({task}, timeout=CLOSE_DEADLINE_S)
        if late:
            log.warning("hook of call %s did not end when closed; left behind", self._driver.turn.session.id)
            task.cancel()
            # A loop that is run to its end waits for all the tasks that it knows, and so for this one for ever.
            asyncio._unregister_task(task)

    async def __aenter__(self) -> GuardedReply:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __del__(self) -> None:
        task = self._leave()
        if task is not None and not task.get_loop().is_closed():
            task.get_loop().call_soon_threadsafe(task.cancel)

    def _leave(self) -> asyncio.Task[None] | None:
        """Stop reading. Returns the hook's task if it still runs, held elsewhere until it ends."""
        self._driver.ended = True
        task, self._task = self._task, None
        if task is None or task.done():
            return None
        _hold(task)
        return task


def _hold(task: asyncio.Task[None]) -> None:
    _leaving.add(task)
    task.add_done_callback(_leaving.discard)


class _Driver:
    """Runs one hook for one turn. Refers to nothing of its reader, so that a dropped reader can be collected."""

    def __init__(self, nlu: Nlu, turn: Turn, max_chars: int) -> None:
        self.turn = turn
        self.ended = False
        """Nobody reads any more."""
        self.wanted = asyncio.Event()
        """The reader waits for the next item."""
        self.answers: asyncio.Queue[str | Action | HookError | None] = asyncio.Queue(2)
        """One item for each demand, then a HookError or None for the end."""
        self._nlu = nlu
        self._chars_left = self._max_chars = max_chars
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clean_up_failed = False

    async def run(self) -> None:
        """Read the hook as it is asked for, to its end."""
        self._loop = asyncio.get_running_loop()
        steps = HookSteps(self._on_stray, time.monotonic)
        try:
            await self._read_hook(steps)
        except asyncio.CancelledError:
            if self._being_cancelled():
                raise
            self._tell(HookError("the hook cancelled itself"))
        except HookError as exc:
            self._tell(exc)
        except BaseException as exc:
            # KeyboardInterrupt and SystemExit among them: a task that ends with one of those ends the loop and with it
            # every call. A real interrupt comes by the loop's signal handler, not from here.
            if self.ended:
                self._warn_of_clean_up(exc)
            else:
                self._tell(_hook_error(exc))
        else:
            self._tell(None)
        finally:
            if steps.longest_s > HELD_S:
                log.warning(
                    "call %s: the hook held the event loop for %.1f s: use a plain def, or await",
                    self.turn.session.id,
                    steps.longest_s,
                )

    async def _read_hook(self, steps: HookSteps) -> None:
        await self._demand()
        items = spread(steps.call(lambda: self._nlu.reply(self.turn)))
        try:
            while True:
                try:
                    item = await steps.drive(anext(items))
                except StopAsyncIteration:
                    return
                if self.ended:  # it answered its cancellation with one more item, which must not be its last step
                    return
                try:
                    checked = self._checked(item)
                except HookError as exc:
                    self._tell(exc)  # before the clean-up, which may hang
                    return
                self._tell(checked)
                await self._demand()
        finally:
            await self._clean_up(items, steps)

    async def _clean_up(self, items: AsyncGenerator[Any, Any], steps: HookSteps) -> None:
        try:
            await steps.drive(items.aclose())
        except asyncio.CancelledError:
            raise
        except BaseException as exc:  # the reply is over; a failing clean-up is worth a line and no more
            self._warn_of_clean_up(exc)

    def _warn_of_clean_up(self, exc: BaseException) -> None:
        if not self._clean_up_failed:
            log.warning("hook of call %s failed in its clean-up: %s", self.turn.session.id, type(exc).__name__)
        self._clean_up_failed = True

    def _on_stray(self, stray: AsyncGenerator[Any, Any]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._close_stray, stray)

    def _close_stray(self, stray: AsyncGenerator[Any, Any]) -> None:
        _hold(asyncio.create_task(self._end_stray(stray), name=f"hook clean-up {self.turn.session.id}"))

    async def _end_stray(self, stray: AsyncGenerator[Any, Any]) -> None:
        try:
            async with asyncio.timeout(CLOSE_DEADLINE_S):
                await self._clean_up(stray, HookSteps(self._on_stray, time.monotonic))
        except TimeoutError as exc:
            self._warn_of_clean_up(exc)

    async def _demand(self) -> None:
        await self.wanted.wait()
        self.wanted.clear()

    def _checked(self, item: object) -> str | Action:
        checked = check_item(item)
        self._chars_left -= max(1, len(checked)) if isinstance(checked, str) else 1
        if self._chars_left < 0:
            raise HookError(f"the reply is longer than max_reply_chars ({self._max_chars})")
        return checked

    def _tell(self, answer: str | Action | HookError | None) -> None:
        if not self.ended:
            self.answers.put_nowait(answer)

    def _being_cancelled(self) -> bool:
        task = asyncio.current_task()
        return self.ended or (task is not None and task.cancelling() > 0)


def _hook_error(exc: BaseException) -> HookError:
    # The message of a hook's exception often quotes the caller; the cause has it for whoever debugs the hook.
    error = HookError(f"the hook raised {type(exc).__name__}")
    error.__cause__ = exc
    error.at = _raised_at(exc)
    return error


def _raised_at(exc: BaseException) -> str:
    """The innermost line of the file in which the hook's own code begins; empty for an adapter of ours."""
    steps = [(frame.f_code, line) for frame, line in traceback.walk_tb(exc.__traceback__)]
    first = next((code.co_filename for code, _ in steps if not code.co_filename.startswith(OURS)), None)
    code, line = next(((code, line) for code, line in reversed(steps) if code.co_filename == first), (None, 0))
    return f"{code.co_filename}:{line} {code.co_name}" if code is not None else ""
