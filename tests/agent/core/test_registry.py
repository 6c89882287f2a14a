"""What every registry promises, and the form in which a replica is kept."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, replace

import pytest
from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis

from agent.core.registry import (
    MemoryRegistry,
    Registrar,
    RegistryError,
    Replica,
    check_shard,
    dump_replica,
    load_replica,
)
from agent.core.registry_consul import ConsulRegistry
from agent.core.registry_redis import RedisRegistry
from tests.agent.core.consul import TOKEN, ScriptedConsul
from tests.redisserver import RedisServer

ONE = Replica("one", "10.0.0.1:50051", frozenset({"asr:en", "tts:heart"}), 42, 7, frozenset({"heart"}))
TWO = Replica("two", "unix:/run/core.sock", frozenset({"asr:en", "asr:zh"}), 10, draining=True)
TTL_S = 0.2


@dataclass
class Kept:
    """A registry and how to let the time to live of an announcement pass."""

    registry: Registrar
    lapse: Callable[[], Awaitable[None]]


async def _really_lapse() -> None:
    await asyncio.sleep(2 * TTL_S)


@pytest.fixture(params=["memory", "fakeredis", "consul", pytest.param("redis", marks=pytest.mark.e2e)])
async def kept(request: pytest.FixtureRequest) -> AsyncIterator[Kept]:
    clock = [0.0]

    async def turn() -> None:
        clock[0] += 2 * TTL_S

    match request.param:
        case "memory":
            yield Kept(MemoryRegistry(ttl_s=TTL_S, now=lambda: clock[0]), turn)
        case "consul":
            consul = ScriptedConsul()
            await consul.server.start_server()
            registry = ConsulRegistry(consul.url, token=TOKEN, ttl_s=TTL_S)

            async def turn_consul() -> None:
                consul.now += 2 * TTL_S

            yield Kept(registry, turn_consul)
            await registry.close()
            await consul.server.close()
        case "fakeredis":
            async with FakeAsyncRedis() as fake:
                yield Kept(RedisRegistry(fake, ttl_s=TTL_S), _really_lapse)
        case _:
            server: RedisServer = request.getfixturevalue("module_redis")
            async with Redis.from_url(server.url) as client:
                await client.flushall()
                yield Kept(RedisRegistry(client, ttl_s=TTL_S), _really_lapse)


async def test_what_was_announced_is_read_by_shard_as_it_was_and_in_order(kept: Kept) -> None:
    await kept.registry.announce(TWO)
    await kept.registry.announce(ONE)
    assert await kept.registry.replicas("asr:en") == (ONE, TWO)
    assert await kept.registry.replicas("tts:heart") == (ONE,)
    assert await kept.registry.replicas("asr:zh") == (TWO,)
    assert await kept.registry.replicas("asr:de") == ()


async def test_a_new_announcement_replaces_the_old_one(kept: Kept) -> None:
    await kept.registry.announce(ONE)
    changed = replace(ONE, active=8, shards=frozenset({"asr:de"}), warm=frozenset())
    await kept.registry.announce(changed)
    assert await kept.registry.replicas("asr:de") == (changed,)
    assert await kept.registry.replicas("asr:en") == ()


async def test_one_that_no_longer_announces_itself_is_gone(kept: Kept) -> None:
    await kept.registry.announce(ONE)
    await kept.lapse()
    assert await kept.registry.replicas("asr:en") == ()
    await kept.registry.announce(ONE)
    assert await kept.registry.replicas("asr:en") == (ONE,)


async def test_one_that_withdraws_is_gone_at_once_and_may_do_so_twice(kept: Kept) -> None:
    await kept.registry.announce(ONE)
    await kept.registry.announce(TWO)
    await kept.registry.withdraw("one")
    await kept.registry.withdraw("one")
    assert await kept.registry.replicas("asr:en") == (TWO,)


async def test_a_replica_with_hundreds_of_warm_voices_is_kept(kept: Kept) -> None:
    many = replace(ONE, warm=frozenset(f"voice-{n:04}" for n in range(800)))
    await kept.registry.announce(many)
    assert await kept.registry.replicas("asr:en") == (many,)


def test_a_replica_as_text_comes_back_as_it_was() -> None:
    assert [load_replica(dump_replica(one)) for one in (ONE, TWO)] == [ONE, TWO]


def test_members_of_a_newer_core_are_passed_over() -> None:
    assert load_replica(json.dumps(json.loads(dump_replica(ONE)) | {"zone": "b"})) == ONE


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"id": ""}, "id"),
        ({"address": 5}, "address"),
        ({"shards": "asr:en"}, "shards"),
        ({"warm": [1]}, "warm"),
        ({"capacity": -1}, "capacity"),
        ({"active": True}, "active"),
    ],
)
def test_a_wrong_member_is_named(change: dict[str, object], named: str) -> None:
    text = json.dumps(json.loads(dump_replica(ONE)) | change)
    with pytest.raises(RegistryError, match=named):
        load_replica(text)


@pytest.mark.parametrize("text", ["", "[]", "{}", b"\xff", "null"])
def test_what_is_no_replica_is_refused(text: str | bytes) -> None:
    with pytest.raises(RegistryError, match="replica"):
        load_replica(text)


@pytest.mark.parametrize("shard", ["asr", "nlu:en", "tts:", "tts:a/b", "asr:en\n", "tts:" + "x" * 65])
def test_names_that_are_no_shard_are_refused(shard: str) -> None:
    with pytest.raises(ValueError, match="expected asr:LANGUAGE or tts:VOICE"):
        check_shard(shard)
