"""The edge's copy of the registry, and a core's announcements, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from agent.core.registry import TTL_S, MemoryRegistry, RegistryError, Replica
from agent.core.registry_view import Announcer, RegistryView
from tests.agent.core.test_registry import ONE, TWO
from tests.agent.virtual import virtual


class Flaky(MemoryRegistry):
    """A registry that fails while told to."""

    def __init__(self) -> None:
        super().__init__(now=asyncio.get_running_loop().time)
        self.broken = False
        self.announced = 0

    async def announce(self, replica: Replica) -> None:
        self.announced += 1
        if self.broken:
            raise RegistryError("registry: out of order")
        await super().announce(replica)

    async def replicas(self, shard: str) -> tuple[Replica, ...]:
        if self.broken:
            raise RegistryError("registry: out of order")
        return await super().replicas(shard)


@virtual
async def test_the_copy_follows_the_registry() -> None:
    registry = Flaky()
    async with RegistryView(registry, ["asr:en"]) as view:
        assert view.replicas("asr:en") == ()
        async with Announcer(registry, lambda: ONE):
            await asyncio.sleep(1.5)
            assert view.replicas("asr:en") == (ONE,)
        await asyncio.sleep(1.5)
        assert view.replicas("asr:en") == ()


@virtual
async def test_a_registry_that_fails_leaves_the_copy_as_it_was_and_is_read_again() -> None:
    registry = Flaky()
    await registry.announce(ONE)
    async with RegistryView(registry, ["asr:en"]) as view:
        registry.broken = True
        await asyncio.sleep(10 * TTL_S)
        assert view.replicas("asr:en") == (ONE,)
        registry.broken = False
        await registry.announce(TWO)
        await asyncio.sleep(1.5)
        assert view.replicas("asr:en") == (TWO,)


@virtual
async def test_an_edge_may_start_while_its_registry_is_down() -> None:
    registry = Flaky()
    registry.broken = True
    async with RegistryView(registry, ["asr:en"]) as view:
        assert view.replicas("asr:en") == ()
        registry.broken = False
        await registry.announce(ONE)
        await asyncio.sleep(1.5)
        assert view.replicas("asr:en") == (ONE,)


@virtual
async def test_streams_placed_from_here_count_until_they_are_read_back() -> None:
    registry = Flaky()
    await registry.announce(ONE)
    async with RegistryView(registry, ["asr:en"]) as view:
        view.placed("one")
        view.placed("one")
        assert view.replicas("asr:en") == (replace(ONE, active=9),)
        await registry.announce(replace(ONE, active=9))
        await asyncio.sleep(1.5)
        assert view.replicas("asr:en") == (replace(ONE, active=9),)


@virtual
async def test_a_core_announces_itself_with_its_numbers_of_now_while_it_is_there() -> None:
    registry = Flaky()
    cores = [ONE]
    async with Announcer(registry, lambda: cores[-1]):
        await asyncio.sleep(20 * TTL_S)
        cores.append(replace(ONE, active=30))
        await asyncio.sleep(1.5)
        assert await registry.replicas("asr:en") == (replace(ONE, active=30),)
    assert await registry.replicas("asr:en") == ()


@virtual
async def test_draining_is_announced_at_once() -> None:
    registry = Flaky()
    cores = [ONE]
    async with Announcer(registry, lambda: cores[-1]) as announcer:
        cores.append(replace(ONE, draining=True))
        await announcer.announce()
        assert [replica.draining for replica in await registry.replicas("asr:en")] == [True]


@virtual
async def test_a_core_whose_registry_fails_goes_on_announcing() -> None:
    registry = Flaky()
    async with Announcer(registry, lambda: ONE):
        registry.broken = True
        await asyncio.sleep(5 * TTL_S)
        assert await MemoryRegistry.replicas(registry, "asr:en") == ()
        registry.broken = False
        await asyncio.sleep(1.5)
        assert await registry.replicas("asr:en") == (ONE,)


@virtual
async def test_a_core_that_cannot_announce_itself_at_the_start_says_so() -> None:
    registry = Flaky()
    registry.broken = True
    with pytest.raises(RegistryError, match="out of order"):
        async with Announcer(registry, lambda: ONE):
            pass


@virtual
async def test_shards_are_checked_and_foreign_ones_are_not_known() -> None:
    with pytest.raises(ValueError, match="shard"):
        RegistryView(Flaky(), ["english"])
    async with RegistryView(Flaky(), ["asr:en"]) as view:
        with pytest.raises(KeyError):
            view.replicas("asr:de")
