"""Calls that the agent places, and transfers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp.test_utils import TestClient, TestServer

from agent.events import TransferRequested
from agent.media.rtp import parse_rtp
from signaling.server import create_app
from signaling.sip.gateway.outgoing import OutgoingCalls
from signaling.sip.protocol import (
    AcceptTransfer,
    Answer,
    CallEnded,
    CallEstablished,
    CallOffered,
    News,
    RefuseTransfer,
    Reject,
    ReportTransfer,
    Ring,
    TransferAsked,
)
from signaling.tokens import TokenKeys, load_keys
from tests.signaling.sip.gateway.conftest import Door, OpenDoor
from tests.signaling.sip.gateway.telephone import HOST, Telephone, eventually
from tests.signaling.sip.gateway.test_gateway import Ear

Reaction = Callable[[Telephone, News], None]


class Api:
    """A door with its HTTP side."""

    def __init__(self, door: Door, client: TestClient, keys: TokenKeys) -> None:
        self.door, self.client, self.keys = door, client, keys

    async def order(self, to: str, *, auth: bool = True, **body: object) -> tuple[int, dict]:
        headers = {"Authorization": f"Bearer {self.keys.mint('boss')}"} if auth else {}
        async with self.client.post("/v1/calls", json={"to": to, **body}, headers=headers) as answer:
            return answer.status, await answer.json()


@pytest.fixture
async def open_api(open_door: OpenDoor) -> AsyncIterator[Callable]:
    clients = []

    async def start(**sip: object) -> Api:
        door = await open_door(dial=("sip:1*@127.0.0.1",), **sip)
        keys = load_keys(door.agent.settings)
        registry = door.gateway._registry
        outgoing = OutgoingCalls(door.gateway, verifier=keys.verifier, registry=registry)
        app = create_app(door.agent, verifier=keys.verifier, registry=registry, outgoing=outgoing)
        client = TestClient(TestServer(app))
        await client.start_server()
        clients.append(client)
        return Api(door, client, keys)

    yield start
    for client in clients:
        await client.close()


def answers(phone: Telephone, news: News) -> None:
    if isinstance(news, CallOffered):
        phone.command(Ring(news.call))
        phone.command(Answer(news.call, phone.media))


def rejects(status: int) -> Reaction:
    def react(phone: Telephone, news: News) -> None:
        if isinstance(news, CallOffered):
            phone.command(Reject(news.call, status))

    return react


async def test_the_callee_answers_and_hears_the_agent_though_they_say_nothing(open_api) -> None:  # type: ignore[no-untyped-def]
    api = await open_api()
    async with Telephone(on_news=answers) as phone:
        status, body = await api.order(f"sip:100@{HOST}:{phone.port}", language="de")
        assert status == 201, body
        call = api.door.agent.started[0]
        assert body == {"id": call.id, "channel": "sip"}
        assert (call.session.direction, call.session.caller, call.session.language) == ("out", "100", "de")
        call.port.attach(Ear())
        await phone.until(lambda: sum(parse_rtp(packet).payload_type == 0 for packet in phone.rtp) >= 5)
        async with api.client.delete(
            f"/v1/calls/{call.id}", headers={"Authorization": f"Bearer {api.keys.mint('boss')}"}
        ) as answer:
            assert answer.status == 204
        await phone.until(lambda: bool(phone.told(CallEnded)))
    await eventually(lambda: api.door.gateway.calls == 0)


@pytest.mark.parametrize(
    ("status", "code"), [(486, "busy"), (603, "refused"), (480, "no_answer"), (404, "failed"), (503, "failed")]
)
async def test_a_refusal_is_told_with_its_meaning(open_api, status: int, code: str) -> None:  # type: ignore[no-untyped-def]
    api = await open_api()
    async with Telephone(on_news=rejects(status)) as phone:
        got, body = await api.order(f"sip:100@{HOST}:{phone.port}")
    assert (got, body["code"], body["sip_status"]) == (502, code, status)
    assert not api.door.agent.started
    await eventually(lambda: api.door.gateway.calls == 0)


async def test_nobody_answers_within_the_ringing_time(open_api) -> None:  # type: ignore[no-untyped-def]
    api = await open_api(ringing_s=1)

    def rings(phone: Telephone, news: News) -> None:
        if isinstance(news, CallOffered):
            phone.command(Ring(news.call))

    async with Telephone(on_news=rings) as phone:
        got, body = await api.order(f"sip:100@{HOST}:{phone.port}")
        assert (got, body["code"]) == (502, "no_answer")
        await phone.until(lambda: bool(phone.told(CallEnded)))


async def test_who_orders_and_leaves_stops_the_ringing(open_api) -> None:  # type: ignore[no-untyped-def]
    api = await open_api()
    ringing = asyncio.Event()

    def rings(phone: Telephone, news: News) -> None:
        if isinstance(news, CallOffered):
            phone.command(Ring(news.call))
            ringing.set()

    async with Telephone(on_news=rings) as phone:
        order = asyncio.ensure_future(api.order(f"sip:100@{HOST}:{phone.port}"))
        await ringing.wait()
        leg = next(iter(api.door.gateway._legs.values()))
        api.door.gateway.give_up(leg)
        assert (await order)[0] == 502
        await phone.until(lambda: bool(phone.told(CallEnded)))


@pytest.mark.parametrize(
    ("to", "status", "code"),
    [
        ("sip:200@127.0.0.1", 403, "destination_not_allowed"),
        ("+4930123", 422, "destination_unusable"),
        ("nobody", 422, "destination_unusable"),
    ],
)
async def test_other_destinations_are_refused(open_api, to: str, status: int, code: str) -> None:  # type: ignore[no-untyped-def]
    api = await open_api()
    got, body = await api.order(to)
    assert (got, body["code"]) == (status, code)


async def test_an_order_needs_a_token_and_known_fields(open_api) -> None:  # type: ignore[no-untyped-def]
    api = await open_api()
    assert (await api.order("sip:100@127.0.0.1", auth=False))[0] == 401
    assert (await api.order("sip:100@127.0.0.1", sdp="v=0"))[0] in (400, 422)


def transfers(*reports: int) -> Reaction:
    """A telephone that calls, takes a REFER and reports these statuses; without any it declines."""

    def react(phone: Telephone, news: News) -> None:
        if not isinstance(news, TransferAsked):
            return
        if not reports:
            phone.command(RefuseTransfer(news.call, 603))
            return
        phone.command(AcceptTransfer(news.call))
        for status in reports:
            phone.command(ReportTransfer(news.call, status))

    return react


@pytest.mark.parametrize(
    ("reports", "outcome", "status"),
    [((), "refused", 603), ((180, 486), "busy", 486), ((180, 480), "no_answer", 480), ((500,), "failed", 500)],
)
async def test_a_transfer_that_fails_gives_the_caller_back_and_says_why(
    open_door: OpenDoor, reports: tuple[int, ...], outcome: str, status: int
) -> None:
    door = await open_door(dial=("1*",))
    async with Telephone(on_news=transfers(*reports), allow_refer=True) as phone:
        await phone.call(door.port)
        await door.agent.began.wait()
        call = door.agent.started[0]
        call.emit(TransferRequested("100"))
        await eventually(lambda: bool(call.told))
        data = {"event": "transfer", "to": "100", "outcome": outcome, "status": status}
        assert call.told == [("respond", data)]
        assert call.end_reason is None
        asked = phone.told(TransferAsked)[0]
        assert (asked.target.user, asked.target.host) == ("100", HOST)


async def test_a_transfer_that_works_ends_the_call_only_when_that_is_known(open_door: OpenDoor) -> None:
    door = await open_door(dial=("1*",))
    async with Telephone(on_news=transfers(100, 180), allow_refer=True) as phone:
        await phone.call(door.port)
        await door.agent.began.wait()
        call = door.agent.started[0]
        call.emit(TransferRequested("100"))
        await phone.until(lambda: bool(phone.told(TransferAsked)))
        assert call.end_reason is None
        phone.command(ReportTransfer("out", 200))
        assert await call.wait_ended() == "transferred"
        await phone.until(lambda: bool(phone.told(CallEnded)))
    assert not call.told


async def test_a_transfer_to_where_it_is_not_allowed_never_leaves(open_door: OpenDoor) -> None:
    door = await open_door()
    async with Telephone(on_news=transfers(200), allow_refer=True) as phone:
        await phone.call(door.port)
        await door.agent.began.wait()
        call = door.agent.started[0]
        call.emit(TransferRequested("+1900555"))
        assert call.told[0][1]["status"] == 403
        assert not phone.told(TransferAsked)
        assert phone.told(CallEstablished)
