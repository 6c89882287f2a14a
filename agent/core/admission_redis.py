"""Admission shared by many processes: one Lua script over a handful of keys, atomic because Redis runs it in one step.

The clock is that of Redis, so that processes on machines with different clocks agree. Keys are under
`{rejoinder:admission:1:POOL}:`; the braces keep them in one slot of a cluster.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import BlockingConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError

from agent.core.admission import (
    AdmissionLimits,
    AdmissionUnavailable,
    Admitted,
    Answer,
    Load,
    Overview,
    Queued,
    Reason,
    Refused,
)
from agent.core.admission_book import RETRY_AFTER_S
from agent.errors import ConfigError

__all__ = ["RedisAdmission", "connect_redis"]

KEYS = ("leases", "queue", "until", "seen", "loads", "state")

DEADLINE_S = 0.25
"""A caller waits for this before the phone rings; Redis needs a millisecond. Later, local limits decide."""

MAX_CONNECTIONS = 8
"""A command takes Redis a fraction of a millisecond: this many are never the bottleneck."""

CONNECT_S = 1.0

_SCRIPT = (Path(__file__).parent / "admission.lua").read_text(encoding="utf-8")


def connect_redis(url: str, password: str | None = None) -> Redis:
    """A client for admission and registry: few connections, waited for, never retried, since each use has a deadline.

    Raises ConfigError for an address that means nothing.
    """
    try:
        pool = BlockingConnectionPool.from_url(
            url,
            **({} if password is None else {"password": password}),
            max_connections=MAX_CONNECTIONS,
            timeout=CONNECT_S,
            socket_connect_timeout=CONNECT_S,
            socket_timeout=None,
            retry=Retry(NoBackoff(), 0),
            client_name="rejoinder",
        )
    except (ValueError, RedisError) as exc:
        raise ConfigError(f"admission.redis_url: {exc}") from exc
    return Redis.from_pool(pool)


class RedisAdmission:
    """One process's way to the shared book.

    Args:
        redis: a client. Not owned.
        limits: the same in every process, or the last one who asks decides.
        pool: name of what is shared; calls of different pools do not count for each other.
        deadline_s: longest wait for Redis.
        now_ms: a clock in place of the one of Redis, for tests.
    """

    def __init__(
        self,
        redis: Redis,
        limits: AdmissionLimits,
        *,
        pool: str = "calls",
        deadline_s: float = DEADLINE_S,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        self._limits = _describe(limits)
        self._keys = [f"{{rejoinder:admission:1:{pool}}}:{name}" for name in KEYS]
        self._script = redis.register_script(_SCRIPT)
        self._deadline_s = deadline_s
        self._now_ms = now_ms

    async def ask(self, ticket: str) -> Answer:
        """See `Admission.ask`."""
        match await self._run("ask", ticket):
            case [b"admitted"]:
                return Admitted()
            case [b"queued", int(position), int(left_ms)]:
                return Queued(position, left_ms / 1000)
            case [b"refused", bytes(text)]:
                reason = Reason(text.decode())
                return Refused(reason, RETRY_AFTER_S[reason])
            case other:
                raise AdmissionUnavailable(f"admission: Redis: the script answered {other!r}")

    async def renew(self, tickets: Collection[str]) -> None:
        """See `Admission.renew`."""
        if tickets:
            await self._run("renew", *tickets)

    async def release(self, ticket: str) -> None:
        """See `Admission.release`."""
        await self._run("release", ticket)

    async def report(self, member: str, load: Load) -> None:
        """See `Admission.report`."""
        answers = 0 if load.first_packet_ms is None else load.answers
        await self._run("report", member, f"{round(load.memory * 1000)} {round(load.first_packet_ms or 0)} {answers}")

    async def overview(self) -> Overview:
        """See `Admission.overview`."""
        match await self._run("overview"):
            case [b"overview", int(leases), int(queue), int(full), int(memory), int(slow)]:
                return Overview(leases, queue, bool(full), bool(memory), bool(slow))
            case other:
                raise AdmissionUnavailable(f"admission: Redis: the script answered {other!r}")

    async def check(self) -> None:
        """Ask once, at the start. Raises ConfigError for a wrong password, which no waiting mends."""
        try:
            await self.overview()
        except AdmissionUnavailable as exc:
            if isinstance(exc.__cause__, AuthenticationError):
                raise ConfigError(
                    "admission.redis_password: Redis does not take it; set REJOINDER_ADMISSION__REDIS_PASSWORD"
                ) from exc
            raise

    async def close(self) -> None:
        """Nothing of its own is held."""

    async def _run(self, operation: str, *arguments: str) -> Any:
        now = "" if self._now_ms is None else str(self._now_ms())
        try:
            async with asyncio.timeout(self._deadline_s):
                return await self._script(keys=self._keys, args=[operation, now, self._limits, *arguments])
        except TimeoutError as exc:
            raise AdmissionUnavailable(f"admission: Redis did not answer within {self._deadline_s:g} s") from exc
        except (RedisError, OSError) as exc:
            raise AdmissionUnavailable(f"admission: Redis: {type(exc).__name__}: {exc}") from exc


def _describe(limits: AdmissionLimits) -> str:
    """As the script reads them: whole milliseconds and thousandths."""
    return json.dumps(
        {
            "streams": limits.streams,
            "streams_reopen": limits.streams_reopen,
            "memory_high": round(limits.memory_high * 1000),
            "memory_low": round(limits.memory_low * 1000),
            "first_packet_high": round(limits.first_packet_high_ms),
            "first_packet_low": round(limits.first_packet_low_ms),
            "queue": limits.queue,
            "queue_ms": round(limits.queue_s * 1000),
            "pace": round(limits.pace_s * 1000),
            "lease": round(limits.lease_s * 1000),
            "presence": round(limits.presence_s * 1000),
            "load": round(limits.load_s * 1000),
        }
    )
