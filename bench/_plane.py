"""Many calls before one core, on any clock: what the staircase climbs.

Real: credits, the core's window, each call's fail-over clock, worker limits. Scripted: the engines, whose work takes
a known time and no CPU, and the callers, who speak and listen in turns. There is no link and no codec between edge and
core here, so the CPU that is measured is that of the plane's own rules.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from agent.core.breaker import Breaker
from agent.core.credits import FRAME_MS, CreditedQueue, CreditWindow, Sendable
from agent.core.failover import Failover, StreamState

__all__ = ["Costs", "Step", "climb"]

TICK_S = FRAME_MS / 1000

SPEECH_S = 2.0
"""What a caller says in a turn."""

PERIOD_S = 6.0
"""From one turn to the next: two seconds spoken, four listened and thought."""

LATE_S = 1.0
"""A turn that is answered later has failed."""


@dataclass(frozen=True, slots=True)
class Costs:
    """The scripted engines, like those of one GPU: a batch of all frames that wait, and voices side by side."""

    batch_s: float = 0.005
    """A batch of the listening engine, however many are in it."""
    frame_s: float = 8e-6
    """Each frame in it."""
    voices: int = 16
    """First packets that are made side by side."""
    first_packet_s: float = 0.06

    @property
    def calls(self) -> int:
        """Where the engines end: one batch a tick, or all voices always busy."""
        listening = (TICK_S - self.batch_s) / self.frame_s
        return int(min(listening, self.voices / self.first_packet_s * PERIOD_S))


@dataclass(slots=True)
class Step:
    """What was seen at one number of calls."""

    calls: int
    answers_ms: list[float] = field(default_factory=list)
    """From the end of a turn to its first packet."""
    failed: int = 0
    """Turns answered later than `LATE_S`, or lost part of their speech."""
    dropped: int = 0
    """Frames without speech that never went out."""
    frames: int = 0
    stalled: int = 0
    """Streams that fail-over would have moved."""
    lags_ms: list[float] = field(default_factory=list)
    """How late each tick was."""
    smallest_window: int = 8

    @property
    def error_pct(self) -> float:
        """Failed turns of all."""
        return 100 * self.failed / max(1, self.failed + len(self.answers_ms))


class _Call:
    """One caller: its queue of frames, its stream, and where it is in its turn."""

    def __init__(self, phase_s: float, now: float) -> None:
        self.queue: CreditedQueue[float] = CreditedQueue()
        self.stream = Failover(lambda: ("core",), Breaker())
        self.stream.start(now)
        self.stream.opened(1)
        self.at_s = phase_s
        self.spoken = 0
        self.lost = 0
        self.ends: deque[tuple[int, float]] = deque()
        """Last frames of turns that the core has not heard yet, and when they were spoken."""
        self.stalled = False


class _Plane:
    def __init__(self, calls: int, costs: Costs, own_s: float, seed: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._costs = costs
        self._own_s = own_s
        source = random.Random(seed)
        now = self._loop.time()
        self.step = Step(calls)
        self._calls = [_Call(source.uniform(0, PERIOD_S), now) for _ in range(calls)]
        self._inbox: deque[tuple[_Call, Sendable[float]]] = deque()
        self._work = asyncio.Event()
        self._window = CreditWindow(now)
        self._voices = asyncio.Semaphore(costs.voices)
        self._answers: set[asyncio.Task[None]] = set()

    async def run(self, seconds: float) -> Step:
        listening = asyncio.create_task(self._listen(), name="listening engine")
        try:
            await self._tick(round(seconds / TICK_S))
        finally:
            for task in (listening, *self._answers):
                task.cancel()
            await asyncio.gather(listening, *self._answers, return_exceptions=True)
        return self.step

    async def _tick(self, ticks: int) -> None:
        """The edge: each 20 ms a frame of every caller."""
        began = self._loop.time()
        for number in range(ticks):
            await asyncio.sleep(max(0.0, began + number * TICK_S - self._loop.time()))
            now = self._loop.time()
            self.step.lags_ms.append(max(0.0, now - began - number * TICK_S) * 1000)
            for call in self._calls:
                call.at_s += TICK_S
                if call.at_s >= PERIOD_S:
                    call.at_s -= PERIOD_S
                speaks = call.at_s < SPEECH_S
                call.spoken += 1
                if speaks and call.at_s + TICK_S >= SPEECH_S:
                    call.ends.append((call.spoken, now))
                self._send(call, call.queue.push(now, speech=speaks), now)
            if self._own_s:
                await asyncio.sleep(len(self._calls) * self._own_s)
            self._work.set()

    def _send(self, call: _Call, ready: list[Sendable[float]], now: float) -> None:
        for item in ready:
            self._inbox.append((call, item))
            call.stream.sent(now)
        self.step.frames += len(ready)

    async def _listen(self) -> None:
        """The core: whatever waits is one batch."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._inbox:
                batch, self._inbox = list(self._inbox), deque()
                await asyncio.sleep(self._costs.batch_s + len(batch) * self._costs.frame_s)
                now = self._loop.time()
                oldest = self._inbox[0][1].frame if self._inbox else now
                window = self._window.observe((now - oldest) * 1000, now)
                self.step.smallest_window = min(self.step.smallest_window, window)
                for call, item in batch:
                    self._acked(call, item.seq, window, now)

    def _acked(self, call: _Call, seq: int, window: int, now: float) -> None:
        if call.stream.tick(now) and not call.stalled:
            call.stalled = True
            self.step.stalled += 1
        if call.stream.state is StreamState.LIVE:
            call.stream.progress(1, now, outstanding=call.queue.in_flight > 1)
        self._send(call, call.queue.acked(seq, window), now)
        while call.ends and call.ends[0][0] <= seq:
            _, ended_at = call.ends.popleft()
            if call.queue.dropped.speech > call.lost:
                call.lost = call.queue.dropped.speech
                self.step.failed += 1
            else:
                self._own(self._answer(ended_at))

    async def _answer(self, ended_at: float) -> None:
        async with self._voices:
            await asyncio.sleep(self._costs.first_packet_s)
        took_s = self._loop.time() - ended_at
        if took_s > LATE_S:
            self.step.failed += 1
        else:
            self.step.answers_ms.append(took_s * 1000)

    def _own(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._answers.add(task)
        task.add_done_callback(self._answers.discard)

    def dropped(self) -> int:
        """Frames without speech that never went out, over all calls."""
        return sum(call.queue.dropped.silence for call in self._calls)


async def climb(
    calls: int,
    seconds: float,
    *,
    costs: Costs,
    own_s: float = 0.0,
    seed: int = 1,
    measured: Callable[[], object] | None = None,
) -> Step:
    """So many calls at once for so long, on the running loop's clock.

    Args:
        own_s: time that a frame takes the edge, for a clock that does not see it; 0 on a real one.
        measured: called when the calls are set up, before the first tick.
    """
    plane = _Plane(calls, costs, own_s, seed)
    if measured is not None:
        measured()
    step = await plane.run(seconds)
    step.dropped = plane.dropped()
    return step
