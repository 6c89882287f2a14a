"""The registry in Redis: a key with a time to live for each replica, and a set of ids for each shard.

Under `rejoinder:core:1:`:

- `replica:ID`: what the replica says of itself, as JSON; ends `TTL_S` after the last announcement.
- `shard:SHARD`: ids that have been announced for it. A reader removes those whose key has ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import RedisError

from agent.core.registry import TTL_S, RegistryError, Replica, dump_replica, load_replica

__all__ = ["RedisRegistry"]

T = TypeVar("T")

PREFIX = "rejoinder:core:1:"

DEADLINE_S = 1.0
"""A third of the time to live: two failures in a row do not yet lose a replica."""

SHARD_KEY_S = 3600
"""A shard's set that nobody announces for goes by itself."""


class RedisRegistry:
    """One process's way to it.

    Args:
        redis: a client that gives bytes. Not owned.
        ttl_s: how long an announcement holds.
    """

    def __init__(self, redis: Redis, *, ttl_s: float = TTL_S) -> None:
        self._redis = redis
        self._ttl_ms = round(ttl_s * 1000)

    async def announce(self, replica: Replica) -> None:
        """See `Registrar.announce`."""
        async with self._redis.pipeline(transaction=False) as pipeline:
            pipeline.set(f"{PREFIX}replica:{replica.id}", dump_replica(replica), px=self._ttl_ms)
            for shard in replica.shards:
                pipeline.sadd(f"{PREFIX}shard:{shard}", replica.id)
                pipeline.expire(f"{PREFIX}shard:{shard}", SHARD_KEY_S)
            await _within(pipeline.execute())

    async def withdraw(self, replica_id: str) -> None:
        """See `Registrar.withdraw`."""
        await _within(self._redis.delete(f"{PREFIX}replica:{replica_id}"))

    async def replicas(self, shard: str) -> tuple[Replica, ...]:
        """See `Directory.replicas`."""
        name = f"{PREFIX}shard:{shard}"
        members: Any = await _within(self._redis.smembers(name))
        ids = sorted(member.decode() for member in members)
        if not ids:
            return ()
        texts: Any = await _within(self._redis.mget([f"{PREFIX}replica:{replica_id}" for replica_id in ids]))
        gone = [replica_id for replica_id, text in zip(ids, texts, strict=True) if text is None]
        if gone:
            # One that announces itself again meanwhile is put back by its next announcement, a second later.
            await _within(self._redis.srem(name, *gone))
        known = [load_replica(text) for text in texts if text is not None]
        return tuple(replica for replica in known if shard in replica.shards)

    async def close(self) -> None:
        """Nothing of its own is held."""


async def _within(command: Awaitable[T]) -> T:
    try:
        async with asyncio.timeout(DEADLINE_S):
            return await command
    except TimeoutError as exc:
        raise RegistryError(f"registry: Redis did not answer within {DEADLINE_S:.0f} s") from exc
    except (RedisError, OSError) as exc:
        raise RegistryError(f"registry: Redis: {exc}") from exc
