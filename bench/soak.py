"""Half an hour of short calls in a row against the real server: memory, descriptors, threads and tasks stay flat.

Callers come over WebRTC and over the WebSocket, hear a bit of the greeting or ask a question, and leave as callers do:
with a goodbye, in the middle of a word, or without a trace. Slopes are least squares over the run after its warm-up;
what is left is counted when all calls are over, against the same moment after the warm-up.

Not part of `python -m bench all`: run it by name, or by `make soak`.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import numpy as np

from agent.errors import EnvironmentFault, RejoinderError
from agent.media.ticker import Ticker
from bench._callers import RtcCaller, Server, StreamCaller, prepare, serving
from bench._speech import clips
from bench.harness import Report, Value

__all__ = ["run"]

FULL_S, QUICK_S = 1800.0, 14.0
WARM_S, QUICK_WARM_S = 60.0, 6.0
LANES = 2
"""Callers at once."""
VANISH_S = 10.0
"""Longest time in which calls whose caller vanished are given up."""
ANSWER_S = 15.0
MAX_TOLD = 10
"""Failures told one by one."""
SEED = 5


@dataclass(frozen=True, slots=True)
class Sample:
    """What the server held at one moment."""

    at_s: float
    calls: int
    rss_kb: float
    descriptors: int
    threads: int
    tasks: int


class Soak:
    """Callers on their lanes, and a count of what became of them."""

    def __init__(self, server: Server, http: aiohttp.ClientSession, ticker: Ticker) -> None:
        self.server, self.http, self.ticker = server, http, ticker
        self.calls = 0
        self.failures: list[str] = []
        self.questions = 0
        self._rng = random.Random(SEED)
        self._question = prepare(next(clip for clip in clips("en") if len(clip.pcm()) < 4 * 16_000).pcm())

    async def lane(self, until_s: float) -> None:
        """One call after the other."""
        while time.monotonic() < until_s:
            try:
                await self._call()
            except (RejoinderError, OSError, TimeoutError, aiohttp.ClientError) as exc:
                self.failures.append(f"call {self.calls}: {type(exc).__name__} {exc}".strip())
            self.calls += 1

    async def _call(self) -> None:
        kind, stay_s = self._rng.random(), self._rng.uniform(0.2, 2.0)
        if kind < 0.3:
            async with StreamCaller(self.server, self.http):
                await asyncio.sleep(stay_s)
            return
        async with RtcCaller(self.server, self.http, self.ticker) as caller:
            if kind > 0.95:
                await caller.greeted(ANSWER_S)
                await caller.ask(self._question, ANSWER_S)
                self.questions += 1
                return
            await asyncio.sleep(stay_s)
            if kind > 0.85:
                for protocol in caller._transport._ice._protocols:
                    protocol.transport.abort()

    async def sample(self) -> Sample:
        """Ask the server and the kernel."""
        metrics = await self._metrics()
        folder = Path(f"/proc/{self.server.pid}")
        try:
            descriptors = sum(1 for _ in (folder / "fd").iterdir())
            threads = sum(1 for _ in (folder / "task").iterdir())
        except OSError as exc:
            raise EnvironmentFault(f"the server's use cannot be read from /proc: {exc.strerror}") from exc
        use = self.server.use()
        # This very request is a connection and a task of the server's; both are there in every sample.
        tasks = int(metrics["voice_tasks"])
        return Sample(use.at_s, self.calls, use.rss_mb * 1024, descriptors, threads, tasks)

    async def idle(self) -> Sample:
        """Once every call is over: the vanished ones take a while."""
        until_s = time.monotonic() + VANISH_S
        while (await self._metrics()).get("voice_calls_active", 0.0) > 0:
            if time.monotonic() > until_s:
                raise RejoinderError(f"calls were still going on {VANISH_S:.0f} s after the last caller left")
            await asyncio.sleep(0.25)
        await asyncio.sleep(0.5)
        return await self.sample()

    async def _metrics(self) -> dict[str, float]:
        async with self.http.get(f"{self.server.url}/metrics") as response:
            text = await response.text()
        found: dict[str, float] = {}
        for line in text.splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = name.partition("{")[0]
                found[name] = found.get(name, 0.0) + float(value)
        return found


def run(*, quick: bool) -> Report:
    """45 s (quick) or 30 min."""
    return asyncio.run(_run(QUICK_S if quick else FULL_S, QUICK_WARM_S if quick else WARM_S))


async def _run(seconds: float, warm_s: float) -> Report:
    env = {"REJOINDER_SERVER__RATE_PER_MINUTE": "100000"}
    async with serving(**env) as server, aiohttp.ClientSession() as http, Ticker() as ticker:
        soak = Soak(server, http, ticker)
        await _drive(soak, warm_s, [])
        before = await soak.idle()
        samples: list[Sample] = []
        first = soak.calls
        await _drive(soak, seconds, samples)
        after = await soak.idle()
        metrics = await soak._metrics()
    calls = soak.calls - first
    rows: list[tuple[object, ...]] = []
    keys: dict[str, Value] = {
        "calls_count": calls,
        "failed_calls_count": len(soak.failures),
        "server_errors_count": int(metrics.get("voice_errors_total", 0)),
    }
    for name, what, unit in (
        ("rss_kb", "memory", "kb"),
        ("descriptors", "descriptors", "count"),
        ("threads", "threads", "count"),
        ("tasks", "tasks", "count"),
    ):
        slope = _slope([s.calls for s in samples], [float(getattr(s, name)) for s in samples]) * 100
        left = getattr(after, name) - getattr(before, name)
        rows.append((what, getattr(before, name), getattr(after, name), f"{slope:.2f}"))
        keys[f"{what}_slope_per_100_calls_{unit}"] = round(slope, 3)
        keys[f"{what}_left_{unit}"] = round(left, 1)
    notes = (
        f"{calls} calls, {soak.questions} of them with a question, {len(soak.failures)} failed; {LANES} at a time.",
        "A slope within the noise of its samples is flat: compare it with what is left when all calls are over.",
        *soak.failures[:MAX_TOLD],
    )
    columns = ("of the server", "before", "after", "a hundred calls")
    return Report(f"Short calls for {seconds:.0f} s", columns, rows, keys, notes)


async def _drive(soak: Soak, seconds: float, samples: list[Sample]) -> None:
    until_s = time.monotonic() + seconds
    async with asyncio.TaskGroup() as group:
        for _ in range(LANES):
            group.create_task(soak.lane(until_s))
        every_s = max(0.5, seconds / 180)
        while time.monotonic() < until_s:
            await asyncio.sleep(every_s)
            samples.append(await soak.sample())


def _slope(xs: list[int], ys: list[float]) -> float:
    """Least squares; 0 when the points say nothing."""
    if len(set(xs)) < 2:
        return 0.0
    return float(np.polyfit(np.asarray(xs, float), np.asarray(ys, float), 1)[0])
