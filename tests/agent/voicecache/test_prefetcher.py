"""Work ahead gives way to live work."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.errors import EngineError
from agent.voicecache.prefetcher import Job, Prefetcher
from tests.agent.voicecache.support import STYLE, VOICE


class Bench:
    """Makes jobs while `gate` is open; `costs_s` of the clock each."""

    def __init__(self, per_hour: float = 3600.0) -> None:
        self.now = 0.0
        self.busy = False
        self.costs_s = 0.0
        self.begun: list[str] = []
        self.made: list[str] = []
        self.broken: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self.prefetcher = Prefetcher(self.make, lambda: self.busy, per_hour, lambda: self.now)

    async def make(self, job: Job) -> None:
        self.begun.append(job.text)
        await self.gate.wait()
        self.now += self.costs_s
        if job.text in self.broken:
            raise EngineError("broken")
        self.made.append(job.text)

    def want(self, *texts: str) -> None:
        jobs = [(Job(text, VOICE, STYLE), 0.9 - 0.1 * i) for i, text in enumerate(texts)]
        self.prefetcher.want("call", jobs)

    def load(self, busy: bool) -> None:
        self.busy = busy
        self.prefetcher.load_changed()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    bench = Bench()
    bench.prefetcher.start()
    yield bench
    await bench.prefetcher.close()


async def test_the_likeliest_first_one_after_the_other(bench: Bench) -> None:
    bench.want("a", "b", "c")
    await bench.prefetcher.settled()
    assert bench.made == ["a", "b", "c"]
    assert bench.prefetcher.made == 3


async def test_nothing_is_begun_under_load_and_it_begins_when_that_ends(bench: Bench) -> None:
    bench.load(True)
    bench.want("a")
    await bench.prefetcher.settled()
    assert not bench.begun
    bench.load(False)
    await bench.prefetcher.settled()
    assert bench.made == ["a"]


async def test_what_is_under_way_is_cancelled_under_load_and_tried_again(bench: Bench) -> None:
    bench.gate.clear()
    bench.want("a")
    for _ in range(5):
        await asyncio.sleep(0)
    assert bench.begun == ["a"]
    bench.load(True)
    await bench.prefetcher.settled()
    assert bench.prefetcher.gave_way == 1
    assert not bench.made
    bench.gate.set()
    bench.load(False)
    await bench.prefetcher.settled()
    assert bench.begun == ["a", "a"]
    assert bench.made == ["a"]


async def test_it_stays_within_its_budget() -> None:
    bench = Bench(per_hour=20.0)
    bench.costs_s = 0.5
    bench.prefetcher.start()
    bench.want(*"abcdefgh")
    await bench.prefetcher.settled()
    # A tenth of an hour's worth is there at the start; the last piece may overdraw it.
    assert 2.0 <= bench.prefetcher.spent_s <= 2.5
    assert len(bench.made) == 5
    await bench.prefetcher.close()


async def test_a_broken_engine_is_not_asked_for_the_same_again_and_again(bench: Bench) -> None:
    bench.broken.add("a")
    bench.want("a", "b")
    await bench.prefetcher.settled()
    assert bench.begun == ["a", "b"]
    assert bench.made == ["b"]


async def test_a_call_that_spoke_wants_nothing(bench: Bench) -> None:
    bench.load(True)
    bench.want("a")
    bench.prefetcher.forget("call")
    bench.load(False)
    await bench.prefetcher.settled()
    assert not bench.begun
