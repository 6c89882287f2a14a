"""The tier in Redis: what one process made, all may say. Late or broken Redis costs a few milliseconds and no error.

Three things are kept under `rejoinder:voice:1:`:

- `speech:KEY`: an entry in the format of disk, with a time to live. Its size is bounded by Redis's own `maxmemory`.
- `lease:KEY` and `done:KEY`: who is making it now, and a list that wakes those who wait. The lease ends by itself.
- `learned`: a stream of observations, from which every process learns what the others saw.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar, cast

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from agent.config import CacheSettings
from agent.core.breaker import Breaker
from agent.errors import ConfigError
from agent.observe.metrics import Metrics
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.format import Unreadable, dump, load
from agent.voicecache.key import SpeechKey
from agent.voicecache.lease import Lease
from agent.voicecache.predictor import Observation

__all__ = ["RedisTier"]

T = TypeVar("T")

PREFIX = "rejoinder:voice:1:"
WRITE_DEADLINE_S = 1.0
"""For what no caller waits for."""

LEASE_MS = 10_000
"""Longest synthesis of a clause; after it another process may try."""

DONE_MS = 3_000
"""How long the wake-up lies about for those who come late."""

MAX_CONNECTIONS = 32
MAX_LEARNED = 20_000
LEARN_BATCH = 1_000
_RELEASE = """
if redis.call('get', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('del', KEYS[1])
redis.call('rpush', KEYS[2], '1')
redis.call('pexpire', KEYS[2], ARGV[2])
return 1
"""
"""Compare and delete, so that a lease that ran out and was taken by another is left alone; then wake who waits."""

log = logging.getLogger(__name__)


class RedisTier:
    """One process's way to Redis.

    Args:
        settings: where it is, and how long to wait.
        metrics: where outcomes are counted.
        now: a monotonic clock in seconds.

    Raises ConfigError for an address that means nothing.
    """

    def __init__(self, settings: CacheSettings, metrics: Metrics, now: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._metrics = metrics
        self._now = now
        self._deadline_s = settings.redis_deadline_ms / 1000
        self._ttl_s = settings.redis_ttl_s
        self.breaker = Breaker()
        password = None if settings.redis_password is None else settings.redis_password.get_secret_value()
        try:
            pool = BlockingConnectionPool.from_url(
                settings.redis_url,
                **({} if password is None else {"password": password}),
                max_connections=MAX_CONNECTIONS,
                timeout=WRITE_DEADLINE_S,
                socket_connect_timeout=WRITE_DEADLINE_S,
                socket_timeout=None,
                retry=Retry(NoBackoff(), 0),
                client_name="rejoinder",
            )
        except (ValueError, RedisError) as exc:
            raise ConfigError(f"cache.redis_url: {exc}") from exc
        self._redis: Redis = Redis(connection_pool=pool)
        self._release = self._redis.register_script(_RELEASE)
        self._probe: asyncio.Task[None] | None = None
        self._ids = secrets.token_hex(8)
        self._learned_until = "0-0"

    @property
    def deadline_s(self) -> float:
        """Longest wait on a caller's way."""
        return self._deadline_s

    async def get(self, key: SpeechKey) -> CachedSpeech | None:
        """The entry, or None within the deadline. Never raises but for cancellation."""
        data = await self._quick(lambda: self._redis.get(f"{PREFIX}speech:{key.hex}"), "redis")
        if data is None:
            return None
        try:
            speech = load(bytes(data), key)
        except Unreadable as exc:
            log.warning("speech %s in Redis is damaged (%s) and was removed", key.hex, exc)
            self._metrics.cache_request("redis", "error")
            await self._patient(lambda: self._redis.delete(f"{PREFIX}speech:{key.hex}"))
            return None
        self._metrics.cache_request("redis", "hit")
        return speech

    async def put(self, speech: CachedSpeech) -> bool:
        """Write an entry; False if that failed. For the background.

        Raises ValueError for private speech: that it never comes here is the caller's promise.
        """
        if speech.private:
            raise ValueError("private speech does not leave memory")
        data = dump(speech)
        done = await self._patient(lambda: self._redis.set(f"{PREFIX}speech:{speech.key.hex}", data, ex=self._ttl_s))
        return bool(done)

    async def lease(self, key: SpeechKey, deadline_s: float) -> Lease | None:
        """The right to make `key`; None when Redis cannot tell in time, in which case it is made without."""
        token = f"{self._ids}{secrets.token_hex(8)}"
        taken = await self._quick(
            lambda: self._redis.set(f"{PREFIX}lease:{key.hex}", token, nx=True, px=LEASE_MS),
            None,
            missing=False,
            deadline_s=deadline_s,
        )
        if taken is None:
            return None
        return Lease(key, token if taken else "")

    async def release(self, lease: Lease) -> None:
        """Give it back, whether the entry was made or not, and wake those who wait."""
        if not lease.ours:
            return
        keys = [f"{PREFIX}lease:{lease.key.hex}", f"{PREFIX}done:{lease.key.hex}"]
        await self._patient(lambda: self._release(keys=keys, args=[lease.token, DONE_MS]))

    async def await_other(self, key: SpeechKey, seconds: float) -> CachedSpeech | None:
        """What another process is making, once it is there; None if it is not there in time."""
        name = f"{PREFIX}done:{key.hex}"
        try:
            async with asyncio.timeout(seconds):
                # Taken from one end and put back to the other in one step, so that every waiter is woken.
                await self._redis.execute_command(  # type: ignore[no-untyped-call]
                    "BLMOVE", name, name, "LEFT", "RIGHT", max(seconds, 0.01)
                )
        except (TimeoutError, RedisError, OSError):
            return None
        return await self.get(key)

    async def teach(self, seen: Sequence[Observation]) -> None:
        """Tell other processes what was observed here. For the background."""
        if not seen:
            return

        async def add() -> object:
            pipeline = self._redis.pipeline(transaction=False)
            for observation in seen:
                fields = {"by": self._ids, "seen": json.dumps(observation.describe(), ensure_ascii=False)}
                pipeline.xadd(f"{PREFIX}learned", cast(Any, fields), maxlen=MAX_LEARNED, approximate=True)
            return await pipeline.execute()

        await self._patient(add)

    async def learn(self) -> list[Observation]:
        """What other processes observed since the last time, at most 1,000. For the background."""
        answer = await self._patient(
            lambda: self._redis.xread({f"{PREFIX}learned": self._learned_until}, count=LEARN_BATCH)
        )
        out: list[Observation] = []
        for entry_id, fields in _entries(answer):
            self._learned_until = entry_id.decode()
            if fields.get(b"by") == self._ids.encode():
                continue
            try:
                out.append(Observation.restore(json.loads(fields[b"seen"])))
            except (KeyError, ValueError, AttributeError):
                log.warning("an observation in Redis is not one; it was passed over")
        return out

    @property
    def learned_until(self) -> str:
        """Where `learn` will go on: to be kept beside what was learned."""
        return self._learned_until

    @learned_until.setter
    def learned_until(self, entry_id: str) -> None:
        self._learned_until = entry_id

    async def count(self) -> int | None:
        """Entries in Redis; None if it cannot tell."""

        async def scan() -> int:
            return len([key async for key in self._redis.scan_iter(f"{PREFIX}speech:*", count=1000)])

        return await self._patient(scan, deadline_s=30.0)

    async def clear(self) -> int | None:
        """Remove all that is ours; how many keys that were, None if Redis did not answer."""

        async def unlink() -> int:
            removed = 0
            async for key in self._redis.scan_iter(f"{PREFIX}*", count=1000):
                removed += int(await self._redis.unlink(key))
            return removed

        return await self._patient(unlink, deadline_s=30.0)

    async def ping(self) -> bool:
        """Whether it answers, however slowly; opens the first connection."""
        return bool(await self._patient(self._redis.ping))

    async def close(self) -> None:
        """Close all connections."""
        if self._probe is not None:
            self._probe.cancel()
            await asyncio.gather(self._probe, return_exceptions=True)
        try:
            async with asyncio.timeout(WRITE_DEADLINE_S):
                await self._redis.aclose(close_connection_pool=True)
        except (TimeoutError, RedisError, OSError) as exc:
            log.info("Redis: closing failed: %s", type(exc).__name__)

    async def _quick(
        self,
        command: Callable[[], Awaitable[Any]],
        tier: str | None,
        missing: object = None,
        deadline_s: float | None = None,
    ) -> Any:
        """A command on a caller's way; None when it failed or did not answer in time, `missing` for an empty answer."""
        if not self.breaker.allows():
            self._try_again()
            if tier:
                self._metrics.cache_request(tier, "off")
            return None
        try:
            async with asyncio.timeout(self._deadline_s if deadline_s is None else deadline_s):
                answer = await command()
        except TimeoutError:
            self._failed("late", tier)
            return None
        except (RedisError, OSError) as exc:
            log.debug("Redis: %s", type(exc).__name__)
            self._failed("error", tier)
            return None
        self.breaker.worked()
        if answer is None:
            if tier:
                self._metrics.cache_request(tier, "miss")
            return missing
        return answer

    async def _patient(self, command: Callable[[], Awaitable[T]], deadline_s: float = WRITE_DEADLINE_S) -> T | None:
        """A command that no caller waits for; None when it failed."""
        if not self.breaker.allows():
            self._try_again()
            return None
        try:
            async with asyncio.timeout(deadline_s):
                return await command()
        except (TimeoutError, RedisError, OSError) as exc:
            self._failed("late" if isinstance(exc, TimeoutError) else "error", None)
            return None

    def _failed(self, result: str, tier: str | None) -> None:
        before = self.breaker.state
        self.breaker.failed(self._now())
        if self.breaker.state is not before:
            log.warning("Redis is %s: speech is cached without it until it answers again", result)
        if tier:
            self._metrics.cache_request(tier, result)

    def _try_again(self) -> None:
        """Send a probe when it is time; nobody waits for it."""
        if self.breaker.probe(self._now()):
            self._probe = asyncio.create_task(self._ask(), name="redis-probe")

    async def _ask(self) -> None:
        """Redis is back when it answers twice within the deadline: the first one may need a new connection."""
        try:
            async with asyncio.timeout(WRITE_DEADLINE_S):
                await self._redis.ping()
            async with asyncio.timeout(self._deadline_s):
                await self._redis.ping()
        except (TimeoutError, RedisError, OSError):
            self.breaker.failed(self._now())
        except asyncio.CancelledError:
            self.breaker.failed(self._now())
            raise
        else:
            log.info("Redis answers again")
            self.breaker.worked()


def _entries(answer: Any) -> list[tuple[bytes, dict[bytes, bytes]]]:
    """The entries of the one stream in an answer to XREAD, a list of pairs in RESP2 and a mapping in RESP3."""
    if not answer:
        return []
    entries = next(iter(answer.values())) if isinstance(answer, dict) else answer[0][1]
    # RESP3 nests the entries once more.
    if entries and isinstance(entries[0], list) and entries[0] and isinstance(entries[0][0], list | tuple):
        entries = entries[0]
    return [(entry_id, fields) for entry_id, fields in entries]
