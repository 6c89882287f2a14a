"""Single flight: who asks for speech that is being made already gets the same pieces, from the first one on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial

from agent.core.fairqueue import Priority
from agent.core.urgency import Urgency, urgency
from agent.tts.protocol import Speech
from agent.voicecache.key import SpeechKey

__all__ = ["Flights"]

END_DEADLINE_S = 1.0
"""How long a synthesis that nobody wants any more may take to end, at close."""

Make = Callable[[], AsyncIterator[Speech]]


class _Flight:
    """One synthesis in a task of its own, and those who follow it."""

    def __init__(self, key: SpeechKey, make: Make, priority: Priority) -> None:
        self.key = key
        self.followers = 0
        self.urgency = Urgency(priority)
        self.pieces: list[Speech] = []
        self.ended = False
        self.error: BaseException | None = None
        self.moved = asyncio.Event()
        self._make = make
        self.task = asyncio.create_task(self._run(), name="synthesis")

    @property
    def urgent(self) -> bool:
        return self.urgency.priority <= Priority.NORMAL

    async def _run(self) -> None:
        urgency.set(self.urgency)
        pieces = self._make()
        try:
            async for piece in pieces:
                self.pieces.append(piece)
                self._move()
        except BaseException as exc:
            self.error = exc
            if isinstance(exc, asyncio.CancelledError):
                raise
        finally:
            self.ended = True
            self._move()
            close = getattr(pieces, "aclose", None)
            if close is not None:
                # Shielded by nothing: a cancelled engine gives up by itself within its own deadline.
                with contextlib.suppress(Exception):
                    await close()

    def _move(self) -> None:
        self.moved.set()
        self.moved = asyncio.Event()


class Flights:
    """All syntheses that are under way.

    Args:
        on_change: told when the number of urgent ones changes.
    """

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._flights: dict[SpeechKey, _Flight] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def urgent(self) -> int:
        """Syntheses that somebody waits for."""
        return sum(flight.urgent for flight in self._flights.values())

    def __contains__(self, key: SpeechKey) -> bool:
        return key in self._flights

    async def follow(self, key: SpeechKey, make: Make, priority: Priority) -> AsyncGenerator[Speech]:
        """Pieces of the speech of `key`, from the flight that is out or from a new one of `make`.

        Closing it leaves the flight; the last one to leave ends it. Raises what `make` raised.
        """
        flight = self._board(key, make, priority)
        flight.followers += 1
        try:
            at = 0
            while True:
                while at < len(flight.pieces):
                    at += 1
                    yield flight.pieces[at - 1]
                if flight.ended:
                    break
                await flight.moved.wait()
            if isinstance(flight.error, asyncio.CancelledError):
                # The flight was ended, not the one who follows it.
                raise InterruptedError("the synthesis was given up")
            if flight.error is not None:
                raise flight.error
        finally:
            flight.followers -= 1
            if not flight.followers and not flight.ended:
                flight.task.cancel()
                self._forget(flight)

    async def close(self) -> None:
        """End all of them."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=END_DEADLINE_S)

    def _board(self, key: SpeechKey, make: Make, priority: Priority) -> _Flight:
        flight = self._flights.get(key)
        if flight is not None and priority <= Priority.NORMAL and not flight.urgent:
            if flight.pieces:
                flight.urgency.priority = priority
                self._on_change()
                return flight
            # Its job may wait behind everything else, and a waiting job cannot be moved: begun anew at the front.
            flight.task.cancel()
            flight = None
        if flight is not None and not flight.ended:
            return flight
        flight = _Flight(key, make, priority)
        self._flights[key] = flight
        self._tasks.add(flight.task)
        flight.task.add_done_callback(partial(self._landed, flight))
        self._on_change()
        return flight

    def _landed(self, flight: _Flight, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._forget(flight)

    def _forget(self, flight: _Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
        self._on_change()
