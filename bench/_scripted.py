"""Scripted engines of known cost, and callers who use them: what overload and staircase put before a core.

An engine here is a number of workers and a time for each piece of work, during which a thread of the real `WorkerPool`
sleeps. So its capacity is known to the millisecond and does not depend on what else this machine does; what it costs a
real engine in CPU or GPU is not shown here.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from dataclasses import dataclass, field

from agent.core.admission import Admission, Admitted, Queued
from agent.core.admission_load import FirstPackets
from agent.core.pool import WorkerPool
from agent.errors import EngineOverloaded

__all__ = ["Caller", "Engine", "Level", "offer"]


@dataclass(frozen=True, slots=True)
class Engine:
    """So many workers, each `cost_s` a turn."""

    workers: int = 4
    cost_s: float = 0.04

    def calls_at(self, share: float, period_s: float) -> int:
        """Calls of one turn a `period_s` that keep that share of the workers busy."""
        return math.floor(share * self.workers * period_s / self.cost_s)


@dataclass(frozen=True, slots=True)
class Caller:
    """Turns one after the other, with a pause before each of `period_s`, half of it random."""

    turns: int = 4
    period_s: float = 0.8
    poll_s: float = 0.2
    """How often it asks while it waits in the queue."""

    @property
    def length_s(self) -> float:
        """About how long a call is."""
        return self.turns * self.period_s


@dataclass(slots=True)
class Level:
    """What happened at one offered load."""

    arrivals: int = 0
    admitted: int = 0
    completed: int = 0
    waited: int = 0
    """Of the admitted, those that had to queue."""
    refused: Counter[str] = field(default_factory=Counter)
    first_ms: list[float] = field(default_factory=list)
    """From the end of a turn to its first packet, of the turns of admitted calls after the first call's length."""
    failed_turns: int = 0
    """The engine's bounded queue was full."""
    longest_queue: int = 0
    """Callers waiting for admission."""
    longest_backlog: int = 0
    """Turns waiting for the engine."""
    most_live: int = 0
    seconds: float = 0.0
    """For which turns were counted."""
    task_errors: int = 0


async def offer(
    admission: Admission | None,
    engine: Engine,
    caller: Caller,
    *,
    calls_per_s: float,
    seconds: float,
    seed: int = 1,
    report_s: float = 0.1,
    window_s: float = 0.5,
) -> Level:
    """Callers arrive for `seconds` at random times (Poisson) and talk; then all hang up.

    Turns are counted once the first calls would be over: until then the house is not yet full.

    Args:
        admission: decides; None admits everybody.
        calls_per_s: offered load.
        report_s: how often the core's load is reported.
        window_s: over how long its mean is taken.
    """
    level = Level()
    source = random.Random(seed)
    packets = FirstPackets(window_s)
    live: set[str] = set()
    async with WorkerPool(engine.workers, name="scripted", max_queued=4096) as pool:

        async def call(number: int) -> None:
            name = f"call-{number}"
            if admission is not None and not await _admitted(admission, name, caller, level):
                return
            level.admitted += 1
            live.add(name)
            level.most_live = max(level.most_live, len(live))
            try:
                for _ in range(caller.turns):
                    await asyncio.sleep(caller.period_s * source.uniform(0.5, 1.0))
                    began = time.monotonic()
                    try:
                        await pool.run(time.sleep, engine.cost_s, owner=name)
                    except EngineOverloaded:
                        level.failed_turns += 1
                        continue
                    now = time.monotonic()
                    if now >= counted_from:
                        level.first_ms.append((now - began) * 1000)
                    packets.add((now - began) * 1000, now)
                level.completed += 1
            finally:
                live.discard(name)
                if admission is not None:
                    await admission.release(name)

        async def watch() -> None:
            while True:
                level.longest_backlog = max(level.longest_backlog, pool.statistics.queued)
                if admission is not None:
                    await admission.renew(live)
                    await admission.report("core", packets.load(0.1, time.monotonic()))
                    level.longest_queue = max(level.longest_queue, (await admission.overview()).queue)
                await asyncio.sleep(report_s)

        began = time.monotonic()
        counted_from = began + caller.length_s
        watching = asyncio.create_task(watch(), name="watch")
        tasks: list[asyncio.Task[None]] = []
        due = 0.0
        while (due := due + source.expovariate(calls_per_s)) < seconds:
            await asyncio.sleep(max(0.0, began + due - time.monotonic()))
            level.arrivals += 1
            tasks.append(asyncio.create_task(call(level.arrivals), name=f"call {level.arrivals}"))
        await asyncio.sleep(max(0.0, began + seconds - time.monotonic()))
        level.seconds = time.monotonic() - counted_from
        for task in (watching, *tasks):
            task.cancel()
        outcomes = await asyncio.gather(watching, *tasks, return_exceptions=True)
        level.task_errors = sum(isinstance(outcome, Exception) for outcome in outcomes)
    return level


async def _admitted(admission: Admission, name: str, caller: Caller, level: Level) -> bool:
    queued = False
    while True:
        match await admission.ask(name):
            case Admitted():
                level.waited += queued
                return True
            case Queued():
                queued = True
                await asyncio.sleep(caller.poll_s)
            case refused:
                level.refused[refused.reason] += 1
                return False
