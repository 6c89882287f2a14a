"""Makes the likely openings that are not there yet, while nobody waits for the engine."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agent.errors import EngineError
from agent.tts.protocol import Style, Voice
from agent.voicecache.plan import Candidate, CpuBudget, PrefetchPlan

__all__ = ["Job", "Prefetcher"]

MAKE_DEADLINE_S = 20.0
"""Idle work may wait long for a free thread; after this it is given up and the next one tried."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Job:
    """A clause to be made ahead, as the engine reads it."""

    text: str
    voice: Voice
    style: Style


class Prefetcher:
    """One piece of idle work at a time, dropped as soon as somebody waits for the engine.

    Args:
        make: synthesises and stores a job, at idle priority; cancelled when it must give way.
        busy: whether somebody waits for the engine now.
        cpu_s_per_hour: the budget. Work is charged by its duration, which is never less than its CPU time but for
            engines that use several threads.
        now: a monotonic clock in seconds.
    """

    def __init__(
        self,
        make: Callable[[Job], Awaitable[None]],
        busy: Callable[[], bool],
        cpu_s_per_hour: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._busy = busy
        self._now = now
        self.plan = PrefetchPlan(CpuBudget(cpu_s_per_hour, now()))
        self.made = 0
        self.gave_way = 0
        self.spent_s = 0.0
        self._wake = asyncio.Event()
        self._rests = asyncio.Event()
        self._runner: asyncio.Task[None] | None = None
        self._making: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to work."""
        self._runner = asyncio.create_task(self._run(), name="prefetcher")

    def want(self, call: str, jobs: Sequence[tuple[Job, float]]) -> None:
        """What this call needs next, each with its probability; in place of what it needed before."""
        self.plan.want(call, [Candidate(job, probability) for job, probability in jobs])
        self._begin()

    def forget(self, call: str) -> None:
        """The call needs none of it any more."""
        self.plan.forget(call)

    def load_changed(self) -> None:
        """Somebody began or ceased to wait for the engine."""
        if not self._busy():
            self._begin()
        elif self._making is not None and not self._making.done():
            self.gave_way += 1
            self._making.cancel()

    async def settled(self) -> None:
        """Wait until nothing more is wanted, or may be made for now."""
        if self._runner is not None:
            await self._rests.wait()

    async def close(self) -> None:
        """Drop all work."""
        for task in (self._runner, self._making):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def _begin(self) -> None:
        self._rests.clear()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            if not self._wake.is_set():
                self._rests.set()
            await self._wake.wait()
            self._wake.clear()
            while not self._busy() and (candidate := self.plan.next(self._now())) is not None:
                job = candidate.key
                assert isinstance(job, Job)
                if await self._one(job):
                    self.plan.done(job)

    async def _one(self, job: Job) -> bool:
        """Make one; False if it gave way and is to be tried again."""
        began = self._now()
        self._making = asyncio.create_task(self._bounded(job), name="prefetch")
        try:
            await asyncio.wait({self._making})
        finally:
            self._making.cancel()
            took_s = self._now() - began
            self.spent_s += took_s
            self.plan.budget.spend(took_s, self._now())
        if self._making.cancelled():
            return False
        error = self._making.exception()
        if isinstance(error, InterruptedError):
            # Somebody needs this very clause at once and makes it.
            return True
        if error is not None:
            level = logging.INFO if isinstance(error, EngineError | TimeoutError) else logging.ERROR
            log.log(level, "a likely opening was not made: %s", type(error).__name__)
        else:
            self.made += 1
        return True

    async def _bounded(self, job: Job) -> None:
        async with asyncio.timeout(MAKE_DEADLINE_S):
            await self._make(job)
