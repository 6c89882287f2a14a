"""The tier in Redis, against a real server: shared, slow, broken, gone and back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from redis.asyncio import Redis

from agent.config import CacheSettings, Settings
from agent.core.breaker import BreakerState
from agent.core.pool import WorkerPool
from agent.errors import ConfigError
from agent.observe.metrics import Metrics
from agent.voicecache.cache import VoiceCache
from agent.voicecache.predictor import Observation
from agent.voicecache.shared import PREFIX, RedisTier
from tests.agent.voicecache.support import STYLE, VOICE, Parrot, entry, key_of, slow_proxy
from tests.redisserver import RedisServer

pytestmark = pytest.mark.e2e

SEEN = Observation(("s\tstart", ""), (3, 5), "Of course.")


@asynccontextmanager
async def tier(url: str, now: list[float] | None = None, **settings: object) -> AsyncIterator[RedisTier]:
    clock = now if now is not None else [0.0]
    # A second, so that a busy machine is no slow Redis; tests of lateness set their own.
    values = {"redis_url": url, "redis_deadline_ms": 1000, **settings}
    client = RedisTier(CacheSettings.model_validate(values), Metrics(), lambda: clock[0])
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def process(url: str, parrot: Parrot, folder: Path, **cache: object) -> AsyncIterator[VoiceCache]:
    """A cache as each process has one, without a disk to share."""
    values = {"redis_url": url, "redis_deadline_ms": 1000, "share_wait_ms": 10_000, "disk_mb": 0, "folder": folder}
    settings = Settings.model_validate({"cache": {**values, **cache}})
    async with (
        WorkerPool(1, name="test") as pool,
        VoiceCache.open(settings, parrot, pool=pool, metrics=Metrics()) as voice_cache,
    ):
        yield voice_cache


async def hear(cache: VoiceCache, text: str) -> int:
    return len([piece async for piece in cache.stream(text, VOICE, STYLE)])


async def test_what_one_wrote_another_reads(redis_server: RedisServer) -> None:
    async with tier(redis_server.url) as one, tier(redis_server.url) as two:
        assert await two.get(key_of("Hello.")) is None
        assert await one.put(entry("Hello."))
        found = await two.get(key_of("Hello."))
        assert found is not None
        assert found.text == "Hello."
        assert await two.count() == 1
        assert await two.clear() == 1
        assert await one.get(key_of("Hello.")) is None


async def test_private_speech_is_refused(redis_server: RedisServer) -> None:
    async with tier(redis_server.url) as one:
        with pytest.raises(ValueError, match="private"):
            await one.put(entry("Anna", private=True))
        assert await one.count() == 0


async def test_a_damaged_entry_is_a_miss_and_is_removed(redis_server: RedisServer) -> None:
    name = f"{PREFIX}speech:{key_of('Hello.').hex}"
    async with Redis(port=redis_server.port) as raw, tier(redis_server.url) as one:
        await one.put(entry("Hello."))
        await raw.setrange(name, 100, b"\xff\xff\xff\xff")
        assert await one.get(key_of("Hello.")) is None
        assert not await raw.exists(name)
        assert one.breaker.allows()


async def test_entries_end_by_themselves(redis_server: RedisServer) -> None:
    async with Redis(port=redis_server.port) as raw, tier(redis_server.url, redis_ttl_s=120) as one:
        await one.put(entry("Hello."))
        assert 0 < await raw.ttl(f"{PREFIX}speech:{key_of('Hello.').hex}") <= 120


async def test_one_holds_the_lease_and_the_other_is_woken(redis_server: RedisServer) -> None:
    key = key_of("Hello.")
    async with tier(redis_server.url) as one, tier(redis_server.url) as two:
        mine, theirs = await one.lease(key, 1.0), await two.lease(key, 1.0)
        assert mine is not None
        assert mine.ours
        assert theirs is not None
        assert not theirs.ours
        waiting = [asyncio.create_task(two.await_other(key, 10.0)) for _ in range(3)]
        await one.put(entry("Hello."))
        await one.release(mine)
        found = await asyncio.gather(*waiting)
        assert all(speech is not None for speech in found)
        again = await two.lease(key, 1.0)
        assert again is not None
        assert again.ours


async def test_a_lease_that_another_took_over_is_left_alone(redis_server: RedisServer) -> None:
    key = key_of("Hello.")
    async with Redis(port=redis_server.port) as raw, tier(redis_server.url) as one:
        mine = await one.lease(key, 1.0)
        assert mine is not None
        await raw.set(f"{PREFIX}lease:{key.hex}", "another's")
        await one.release(mine)
        assert await raw.get(f"{PREFIX}lease:{key.hex}") == b"another's"


async def test_another_that_never_ends_is_not_waited_for_longer_than_asked(redis_server: RedisServer) -> None:
    async with tier(redis_server.url) as one:
        await one.lease(key_of("Hello."), 1.0)
        assert await one.await_other(key_of("Hello."), 0.05) is None


async def test_two_processes_that_miss_at_once_synthesise_once(redis_server: RedisServer, tmp_path: Path) -> None:
    one, two = Parrot(), Parrot()
    one.gate.clear()
    async with (
        process(redis_server.url, one, tmp_path / "1") as first,
        process(redis_server.url, two, tmp_path / "2") as second,
    ):
        leads = asyncio.create_task(hear(first, "Hello."))
        async with asyncio.timeout(5), Redis(port=redis_server.port) as raw:
            while not await raw.exists(f"{PREFIX}lease:{key_of('Hello.').hex}"):  # noqa: ASYNC110  it is another process's
                await asyncio.sleep(0.005)
        follows = [asyncio.create_task(hear(second, "Hello.")) for _ in range(50)]
        await asyncio.sleep(0.05)
        one.gate.set()
        assert await leads == 2
        assert await asyncio.gather(*follows) == [1] * 50
    assert one.begun["Hello."] == 1
    assert not two.begun


async def test_a_process_that_fails_gives_the_right_to_the_next(redis_server: RedisServer, tmp_path: Path) -> None:
    one, two = Parrot(), Parrot()
    one.fails.add("Hello.")
    async with (
        process(redis_server.url, one, tmp_path / "1") as first,
        process(redis_server.url, two, tmp_path / "2") as second,
    ):
        with contextlib.suppress(Exception):
            await hear(first, "Hello.")
        assert await hear(second, "Hello.") == 2
        await second.settled()
        one.fails.clear()
        assert await hear(first, "Hello.") == 1
    assert two.begun["Hello."] == 1


async def test_what_one_learned_the_other_knows_and_nobody_learns_twice(redis_server: RedisServer) -> None:
    async with tier(redis_server.url) as one, tier(redis_server.url) as two:
        await one.teach([SEEN, SEEN])
        assert await one.learn() == []
        assert await two.learn() == [SEEN, SEEN]
        assert await two.learn() == []
        async with tier(redis_server.url) as later:
            later.learned_until = two.learned_until
            assert await later.learn() == []


async def test_what_is_no_observation_is_passed_over(redis_server: RedisServer) -> None:
    async with Redis(port=redis_server.port) as raw, tier(redis_server.url) as one, tier(redis_server.url) as two:
        for fields in ({"by": "x"}, {"by": "x", "seen": "{"}, {"by": "x", "seen": "[1]"}, {"by": "x", "seen": "{}"}):
            await raw.xadd(f"{PREFIX}learned", fields)
        await one.teach([SEEN])
        assert await two.learn() == [SEEN]


async def test_a_redis_that_is_down_costs_no_error_and_soon_no_time(redis_server: RedisServer, tmp_path: Path) -> None:
    parrot = Parrot()
    async with process(redis_server.url, parrot, tmp_path) as cache:
        redis_server.stop()
        for number in range(6):
            assert await hear(cache, f"Clause {'x' * number}.") == 2
        await cache.settled()
        assert await hear(cache, "Clause .") == 1
    assert sum(parrot.begun.values()) == 6


async def test_a_start_without_redis_speaks(redis_server: RedisServer, tmp_path: Path) -> None:
    redis_server.stop()
    async with process(redis_server.url, Parrot(), tmp_path) as cache:
        assert await hear(cache, "Hello.") == 2


async def test_a_slow_redis_is_given_up_within_its_deadline_and_then_left_alone(redis_server: RedisServer) -> None:
    async with (
        slow_proxy(redis_server.port, 0.2) as port,
        tier(f"redis://127.0.0.1:{port}/0", redis_deadline_ms=5) as one,
    ):
        await one.ping()
        loop = asyncio.get_running_loop()
        waits: list[float] = []
        for _ in range(4):
            began = loop.time()
            assert await one.get(key_of("Hello.")) is None
            waits.append(loop.time() - began)
        # Its answer needs 200 ms; who waited for it would see that. The fourth was not asked at all.
        assert max(waits) < 0.15
        assert one.breaker.state is BreakerState.OPEN
        assert await one.lease(key_of("Hello."), 0.005) is None


async def test_a_redis_that_comes_back_is_used_again(redis_server: RedisServer) -> None:
    now = [0.0]
    async with tier(redis_server.url, now) as one:
        assert await one.put(entry("Hello."))
        redis_server.stop()
        for _ in range(3):
            assert await one.get(key_of("Hello.")) is None
        assert not one.breaker.allows()
        redis_server.start()
        now[0] = 60.0
        # This one sends the probe, and does not wait for it.
        assert await one.get(key_of("Hello.")) is None
        async with asyncio.timeout(5):
            while not one.breaker.allows():  # noqa: ASYNC110  a server's start is waited for
                await asyncio.sleep(0.005)
        assert await one.put(entry("Hello."))
        assert await one.get(key_of("Hello.")) is not None


async def test_an_address_that_means_nothing_is_told() -> None:
    with pytest.raises(ConfigError, match=r"cache\.redis_url"):
        RedisTier(CacheSettings(redis_url="redis://host:port/x"), Metrics())
