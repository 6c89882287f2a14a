"""Admission when Redis goes and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from dataclasses import replace

import pytest

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
from agent.core.admission_book import LocalAdmission
from agent.core.admission_fallback import FallbackAdmission
from agent.core.admission_redis import RedisAdmission, connect_redis
from agent.core.breaker import Breaker, BreakerState
from agent.errors import ConfigError
from tests.redisserver import RedisServer

LIMITS = AdmissionLimits(streams=4)
LOCAL = replace(LIMITS, streams=2)


class Shared(LocalAdmission):
    """Stands for Redis: may be down, and counts how often it was asked."""

    def __init__(self, now: list[float]) -> None:
        super().__init__(LIMITS, lambda: now[0])
        self.down = False
        self.asked = 0

    def _up(self) -> None:
        self.asked += 1
        if self.down:
            raise AdmissionUnavailable("admission: Redis: down")

    async def ask(self, ticket: str) -> Answer:
        self._up()
        return await super().ask(ticket)

    async def renew(self, tickets: Collection[str]) -> None:
        self._up()
        await super().renew(tickets)

    async def release(self, ticket: str) -> None:
        self._up()
        await super().release(ticket)

    async def report(self, member: str, load: Load) -> None:
        self._up()
        await super().report(member, load)

    async def overview(self) -> Overview:
        self._up()
        return await super().overview()


@pytest.fixture
def now() -> list[float]:
    return [100.0]


@pytest.fixture
def shared(now: list[float]) -> Shared:
    return Shared(now)


@pytest.fixture
def admission(shared: Shared, now: list[float]) -> FallbackAdmission:
    return FallbackAdmission(
        shared, LocalAdmission(LOCAL, lambda: now[0]), breaker=Breaker(failures=1, first_s=1.0), now=lambda: now[0]
    )


async def test_while_redis_answers_it_decides(admission: FallbackAdmission) -> None:
    assert [await admission.ask(f"t{n}") for n in range(5)] == [Admitted()] * 4 + [Refused(Reason.STREAMS, 5)]


async def test_without_it_local_limits_decide_and_count_the_calls_that_it_admitted(
    admission: FallbackAdmission, shared: Shared
) -> None:
    await admission.ask("a")
    shared.down = True
    assert await admission.ask("b") == Admitted()
    assert await admission.ask("c") == Refused(Reason.STREAMS, 5)
    await admission.release("a")
    assert await admission.overview() == Overview(1, 0, full=False, memory=False, slow=False)


async def test_a_redis_that_is_down_is_not_asked_for_every_caller(
    admission: FallbackAdmission, shared: Shared, now: list[float]
) -> None:
    shared.down = True
    for n in range(5):
        await admission.ask(f"t{n}")
    assert shared.asked == 1
    now[0] += 1.0
    await admission.ask("x")
    assert shared.asked == 2


async def test_a_redis_that_comes_back_is_told_of_the_calls_admitted_without_it(
    admission: FallbackAdmission, shared: Shared, now: list[float]
) -> None:
    shared.down = True
    await admission.ask("a")
    await admission.ask("b")
    shared.down = False
    now[0] += 1.0
    await admission.renew(["a", "b"])
    assert admission.breaker.state is BreakerState.CLOSED
    assert (await admission.overview()).leases == 2
    assert [await admission.ask(f"t{n}") for n in range(3)] == [Admitted()] * 2 + [Refused(Reason.STREAMS, 5)]


async def test_local_limits_know_the_load(admission: FallbackAdmission, shared: Shared) -> None:
    await admission.report("here", Load(0.1, 5000.0, 3))
    assert isinstance(await admission.ask("a"), Queued)
    shared.down = True
    assert isinstance(await admission.ask("b"), Queued)


async def test_a_caller_who_leaves_during_a_probe_leaves_no_probe_behind(
    admission: FallbackAdmission, shared: Shared, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    shared.down = True
    await admission.ask("a")
    now[0] += 1.0

    async def hang(ticket: str) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(shared, "ask", hang)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await admission.ask("b")
    monkeypatch.undo()
    shared.down = False
    assert await admission.ask("c") == Admitted()
    assert admission.breaker.allows()


@pytest.mark.e2e
async def test_a_real_redis_that_stops_and_comes_back(redis_server: RedisServer, now: list[float]) -> None:
    client = connect_redis(redis_server.url)
    admission = FallbackAdmission(
        RedisAdmission(client, LIMITS, deadline_s=5.0),
        LocalAdmission(LOCAL, lambda: now[0]),
        breaker=Breaker(failures=1, first_s=1.0),
        now=lambda: now[0],
    )
    assert await admission.ask("a") == Admitted()
    redis_server.stop()
    assert await admission.ask("b") == Admitted()
    assert await admission.ask("c") == Refused(Reason.STREAMS, 5)
    redis_server.start()
    now[0] += 1.0
    await admission.renew(["a", "b"])
    assert await admission.overview() == Overview(2, 0, full=False, memory=False, slow=False)
    assert await admission.ask("c") == Admitted()
    await admission.close()
    await client.aclose()


@pytest.mark.e2e
async def test_a_wrong_password_is_told_at_the_start(redis_server: RedisServer) -> None:
    async with connect_redis(redis_server.url) as client:
        await client.config_set("requirepass", "right")
    async with connect_redis(redis_server.url, "wrong") as client:
        with pytest.raises(ConfigError, match="REJOINDER_ADMISSION__REDIS_PASSWORD"):
            await RedisAdmission(client, LIMITS, deadline_s=5.0).check()
    async with connect_redis(redis_server.url, "right") as client:
        await RedisAdmission(client, LIMITS, deadline_s=5.0).check()


@pytest.mark.e2e
async def test_no_redis_at_the_start_is_no_wrong_setting(redis_server: RedisServer) -> None:
    redis_server.stop()
    async with connect_redis(redis_server.url) as client:
        with pytest.raises(AdmissionUnavailable):
            await RedisAdmission(client, LIMITS, deadline_s=5.0).check()


def test_an_address_that_means_nothing_names_the_setting() -> None:
    with pytest.raises(ConfigError, match=r"admission\.redis_url"):
        connect_redis("http://localhost")
