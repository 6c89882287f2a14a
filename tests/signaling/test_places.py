"""Shared admission at the doors: queued callers, refused ones, and places that are held and given back."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from aiohttp import WSMsgType

from agent.config import Settings, load_settings
from agent.core.admission import AdmissionLimits, Load
from agent.core.admission_book import LocalAdmission
from agent.errors import ConfigError
from agent.events import CallEvent, TurnTimings
from agent.nlu.hook import Session
from signaling import places as module
from signaling import stream
from signaling.places import Places, create_places, new_ticket, place_of
from tests.redisserver import RedisServer, redis_server
from tests.signaling.conftest import Door, OpenDoor
from tests.signaling.doubles import OFFER_SDP, AgentDouble

__all__ = ["redis_server"]

LIMITS = AdmissionLimits(streams=3, queue=2, pace_s=0.0, load_s=3600.0)
OFFER = {"sdp": OFFER_SDP, "type": "offer"}
SLOW = Load(0.1, 5000.0, 10)
QUICK = Load(0.1, 100.0, 10)


class Shared:
    """An admission whose book the test can look into, and a door that uses it."""

    def __init__(self, open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch) -> None:
        self._open_door = open_door
        self.now = 0.0
        self.admission = LocalAdmission(LIMITS, lambda: self.now)
        monkeypatch.setattr(module, "KEEP_S", 0.01)
        # What the test reports is not to be diluted by what this process reports of itself.
        monkeypatch.setattr(module, "REPORT_S", 3600.0)
        monkeypatch.setattr(stream, "POLL_S", 0.05)

    async def door(self, limits: AdmissionLimits = LIMITS) -> Door:
        self.admission = LocalAdmission(limits, lambda: self.now)

        def make(agent: AgentDouble) -> Places:
            return Places(agent, self.admission, lease_s=limits.lease_s, now=lambda: self.now, memory=lambda: 0.1)

        return await self._open_door(places=make)

    async def leases(self) -> int:
        return (await self.admission.overview()).leases

    async def queue(self) -> int:
        return (await self.admission.overview()).queue


@pytest.fixture
def shared(open_door: OpenDoor, monkeypatch: pytest.MonkeyPatch) -> Shared:
    return Shared(open_door, monkeypatch)


async def until(happened: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(15):
        while not await happened():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def post(door: Door, subject: str = "alice", ticket: str | None = None, **claims: Any) -> tuple[int, Any, Any]:
    body = OFFER if ticket is None else OFFER | {"queue": ticket}
    response = await door.client.post("/v1/calls", json=body, headers=door.auth(subject, **claims))
    return response.status, await response.json(), response.headers


async def test_a_call_takes_a_place_and_gives_it_back_when_it_ends(shared: Shared) -> None:
    door = await shared.door()
    status, _, _ = await post(door)
    assert status == 201
    assert await shared.leases() == 1
    await door.agent.started[0].finish()
    await until(lambda: _is(shared.leases, 0))


async def test_a_place_is_renewed_while_the_call_lives(shared: Shared) -> None:
    door = await shared.door()
    await post(door)
    for _ in range(5):
        shared.now += LIMITS.lease_s / 2
        await asyncio.sleep(0.05)
    assert await shared.leases() == 1


async def test_when_all_places_are_taken_the_caller_is_told_when_to_try_again(shared: Shared) -> None:
    door = await shared.door(replace(LIMITS, streams=1))
    await post(door)
    status, body, headers = await post(door)
    assert (status, body["code"], headers["Retry-After"]) == (503, "call_refused", "5")
    assert "queue" not in body
    metrics = door.agent.metrics
    assert metrics.value("voice_admission_decisions_total", decision="refuse", reason="streams") == 1
    assert metrics.value("voice_calls_total", channel="browser", outcome="refused") == 1


async def test_a_queued_caller_gets_position_and_ticket_and_comes_in_with_it(shared: Shared) -> None:
    door = await shared.door()
    await shared.admission.report("core", SLOW)
    await post(door, "bob")
    status, body, headers = await post(door)
    assert (status, body["code"]) == (503, "call_queued")
    assert body["queue"]["position"] == 2
    assert 0 < body["queue"]["wait_s"] <= LIMITS.queue_s
    assert headers["Retry-After"] == "2"
    ticket = body["queue"]["ticket"]
    _, body, _ = await post(door, ticket=ticket)
    assert (body["queue"]["position"], body["queue"]["ticket"]) == (2, ticket)
    await shared.admission.report("core", QUICK)
    shared.now += LIMITS.presence_s
    status, _, _ = await post(door, ticket=ticket)
    assert status == 201
    assert door.agent.metrics.value("voice_calls_total", channel="browser", outcome="refused") == 0


async def test_an_offer_as_plain_sdp_may_carry_its_ticket_in_the_query(shared: Shared) -> None:
    door = await shared.door()
    await shared.admission.report("core", SLOW)
    headers = door.auth() | {"Content-Type": "application/sdp"}
    response = await door.client.post("/v1/calls", data=OFFER_SDP, headers=headers)
    ticket = (await response.json())["queue"]["ticket"]
    await shared.admission.report("core", QUICK)
    response = await door.client.post(f"/v1/calls?queue={ticket}", data=OFFER_SDP, headers=headers)
    assert response.status == 201


async def test_a_ticket_of_somebody_else_is_no_place_in_the_queue(shared: Shared) -> None:
    door = await shared.door()
    await shared.admission.report("core", SLOW)
    _, body, _ = await post(door, "alice")
    _, stolen, _ = await post(door, "mallory", ticket=body["queue"]["ticket"])
    assert stolen["queue"]["position"] == 2


@pytest.mark.parametrize("ticket", ["", "wait_", "wait_" + "g" * 24, "wait_" + "0" * 25, "x" * 5000])
async def test_what_is_no_ticket_is_named(shared: Shared, ticket: str) -> None:
    door = await shared.door()
    status, body, _ = await post(door, ticket=ticket)
    assert (status, body["field"]) == (422, "queue")


async def test_a_full_queue_refuses(shared: Shared) -> None:
    door = await shared.door()
    await shared.admission.report("core", SLOW)
    for n in range(2):
        await post(door, f"s{n}")
    status, body, headers = await post(door, "late")
    assert (status, body["code"], headers["Retry-After"]) == (503, "call_refused", "10")


async def test_who_waited_to_the_end_is_refused_and_not_queued_for_ever(shared: Shared) -> None:
    door = await shared.door(replace(LIMITS, presence_s=100.0))
    await shared.admission.report("core", SLOW)
    _, body, _ = await post(door)
    shared.now += LIMITS.queue_s
    status, after, _ = await post(door, ticket=body["queue"]["ticket"])
    assert (status, after["code"], after["detail"]) == (503, "call_refused", "no line became free in time")


async def test_waiting_counts_against_the_calls_a_subject_may_have(shared: Shared) -> None:
    door = await shared.door()
    await shared.admission.report("core", SLOW)
    _, body, _ = await post(door, calls=1)
    status, second, _ = await post(door, calls=1)
    assert (status, second["code"]) == (429, "too_many_calls")
    status, again, _ = await post(door, ticket=body["queue"]["ticket"], calls=1)
    assert (status, again["code"]) == (503, "call_queued")


async def test_a_call_that_fails_to_start_gives_its_place_back(shared: Shared) -> None:
    door = await shared.door()
    headers = door.auth()
    response = await door.client.post("/v1/calls", json={"sdp": "v=0\r\nno audio", "type": "offer"}, headers=headers)
    assert response.status == 422
    await until(lambda: _is(shared.leases, 0))


async def test_calls_that_came_in_by_another_way_take_places_too(shared: Shared) -> None:
    door = await shared.door()
    agent = door.agent
    call = agent.start_call(port=None, session=_session(), observer=print)  # type: ignore[arg-type]
    shared.now += LIMITS.lease_s
    await until(lambda: _is(shared.leases, 1))
    await call_ends(agent, call.id)
    await until(lambda: _is(shared.leases, 0))


async def test_one_failure_is_told_and_does_not_end_the_keeping(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = await shared.door()
    await post(door)

    async def fail(tickets: object) -> None:
        raise RuntimeError("for the test")

    monkeypatch.setattr(shared.admission, "renew", fail)
    shared.now += LIMITS.lease_s / 2
    metrics = door.agent.metrics
    await until(lambda: _true(lambda: metrics.value("voice_errors_total", part="signaling", type="RuntimeError") > 0))
    monkeypatch.undo()
    shared.now += LIMITS.lease_s
    await until(lambda: _is(shared.leases, 1))


async def test_the_end_of_the_server_gives_all_places_back(shared: Shared) -> None:
    door = await shared.door()
    await post(door)
    await door.client.close()
    assert await shared.leases() == 0


async def test_a_websocket_is_told_its_position_until_the_call_begins(shared: Shared) -> None:
    door = await shared.door()
    await shared.admission.report("core", SLOW)
    ws = await door.client.ws_connect(f"/v1/stream?token={door.token()}")
    first = await ws.receive_json(timeout=10)
    assert (first["type"], first["position"]) == ("queued", 1)
    await ws.send_bytes(bytes(640))
    assert (await ws.receive_json(timeout=10))["type"] == "queued"
    await shared.admission.report("core", QUICK)
    await asyncio.wait_for(door.agent.began.wait(), 10)
    await until(lambda: _is(shared.queue, 0))
    port = door.pcm_ports[0]
    assert port.fed == b"", "what was said before the call is no part of it"
    await ws.send_bytes(bytes(640))
    await until(lambda: _true(lambda: len(port.fed) == 640))
    await ws.close()


async def test_a_websocket_that_leaves_the_queue_leaves_its_place(shared: Shared) -> None:
    door = await shared.door()
    await shared.admission.report("core", SLOW)
    ws = await door.client.ws_connect(f"/v1/stream?token={door.token()}")
    await ws.receive_json(timeout=10)
    assert await shared.queue() == 1
    await ws.close()
    await until(lambda: _is(shared.queue, 0))
    assert not door.agent.started


async def test_a_websocket_that_waited_too_long_is_closed_with_a_reason(shared: Shared) -> None:
    door = await shared.door(replace(LIMITS, presence_s=100.0))
    await shared.admission.report("core", SLOW)
    ws = await door.client.ws_connect(f"/v1/stream?token={door.token()}")
    await ws.receive_json(timeout=10)
    shared.now += LIMITS.queue_s
    for _ in itertools.count():
        message = await ws.receive(timeout=10)
        assert message.type is WSMsgType.TEXT
        body = message.json()
        if body["type"] == "error":
            break
    assert (body["code"], body["retry_after_s"]) == ("call_refused", 5)
    assert (await ws.receive(timeout=10)).data == 1013


async def test_first_packets_of_calls_become_the_load(monkeypatch: pytest.MonkeyPatch, open_door: OpenDoor) -> None:
    monkeypatch.setattr(module, "KEEP_S", 0.01)
    monkeypatch.setattr(module, "REPORT_S", 0.0)
    admission = LocalAdmission(LIMITS)
    door = await open_door(places=lambda agent: Places(agent, admission, lease_s=15.0, memory=lambda: 0.1))
    await post(door)
    call = door.agent.started[0]
    call.emit(_timings(5000.0))
    await until(lambda: _slow(admission, slow=True))
    for _ in range(40):
        call.emit(_timings(10.0))
    await until(lambda: _slow(admission, slow=False))


async def test_settings_choose_what_there_is(open_door: OpenDoor) -> None:
    off = (await open_door()).agent
    assert create_places(off) is None
    door = await open_door(Settings(admission={"mode": "local", "streams": 1}))
    assert [(await post(door))[0] for _ in range(2)] == [201, 503]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"mode": "redis"}, "redis_url"),
        ({"memory_low": 0.95}, "memory_low"),
        ({"first_packet_low_ms": 900}, "first_packet_low_ms"),
        ({"redis_url": "http://x"}, "redis_url"),
        ({"redis_url": "redis://:secret@x"}, "REJOINDER_ADMISSION__REDIS_PASSWORD"),
    ],
)
def test_settings_that_cannot_be_are_named(values: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        load_settings(overrides={"admission": values})


@pytest.mark.e2e
async def test_two_servers_share_their_places_through_redis(open_door: OpenDoor, redis_server: RedisServer) -> None:
    settings = Settings(admission={"mode": "redis", "redis_url": redis_server.url, "streams": 3})
    one, other = await open_door(settings), await open_door(settings)
    statuses = [(await post(door))[0] for door in (one, other) * 2]
    assert statuses == [201, 201, 201, 503]


@pytest.mark.e2e
async def test_a_server_starts_without_its_redis_and_takes_calls(
    open_door: OpenDoor, redis_server: RedisServer
) -> None:
    redis_server.stop()
    settings = Settings(
        server={"max_calls": 2}, admission={"mode": "redis", "redis_url": redis_server.url, "streams": 100}
    )
    door = await open_door(settings)
    assert [(await post(door))[0] for _ in range(3)] == [201, 201, 503]


def test_places_of_two_subjects_with_one_ticket_are_two() -> None:
    ticket = new_ticket()
    assert place_of(ticket, "alice") != place_of(ticket, "bob")


async def _is(read: Callable[[], Awaitable[int]], value: int) -> bool:
    return await read() == value


async def _true(check: Callable[[], bool]) -> bool:
    return check()


async def _slow(admission: LocalAdmission, *, slow: bool) -> bool:
    return (await admission.overview()).slow is slow


async def call_ends(agent: AgentDouble, call_id: str) -> None:
    agent.live.pop(call_id)


def _session() -> Any:
    return Session(id="call_sip", channel="websocket", language="en")


def _timings(tts_first_ms: float) -> CallEvent:
    return TurnTimings("r", None, None, None, tts_first_ms, None, None)
