"""Coming back to a call over HTTP: who may, with what, and what the client is told then."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from agent.config import Settings
from agent.events import AgentText, CallResumed, FloorChanged, ReplyFinished, ReplyStarted, UserTranscript
from signaling.drain import drain
from signaling.realtime_session import RealtimeSession
from signaling.resume import Connection, Resumption, call_of
from signaling.transcript import MAX_BYTES, MAX_ITEMS, Transcript
from tests.signaling.conftest import Door, OpenDoor
from tests.signaling.doubles import OFFER_SDP

OFFER = {"sdp": OFFER_SDP, "type": "offer"}


async def start(door: Door, subject: str = "alice", **offer: Any) -> dict[str, Any]:
    response = await door.client.post("/v1/calls", json=OFFER | {"resumable": True} | offer, headers=door.auth(subject))
    assert response.status == 201, await response.text()
    body: dict[str, Any] = await response.json()
    return body


async def resume(door: Door, token: str, subject: str = "alice", **claims: Any) -> tuple[int, dict[str, Any]]:
    headers = door.auth(subject, **claims)
    response = await door.client.post("/v1/calls", json=OFFER | {"resume": token}, headers=headers)
    return response.status, await response.json(content_type=None)


def texts(door: Door, port: int) -> list[dict[str, Any]]:
    return [json.loads(text) for text in door.negotiator.ports[port].sent]


async def test_a_resumed_call_is_the_same_one_and_the_client_is_told_all_of_it(door: Door) -> None:
    body = await start(door, channel="widget", language="de")
    (call,) = door.agent.started
    assert body["resume"]["expires_in_s"] == 30.0
    assert call_of(body["resume"]["token"]) == body["id"]
    call.emit(UserTranscript("i1", "where is", final=False))
    call.emit(UserTranscript("i1", "Where is it?", final=True))
    call.emit(ReplyStarted("r1", "i2"))
    call.emit(AgentText("r1", "i2", "It is"))
    call.emit(FloorChanged("agent"))
    status, again = await resume(door, body["resume"]["token"])
    assert (status, again["id"], again["resumed"]) == (201, body["id"], True)
    assert again["resume"]["token"] != body["resume"]["token"]
    assert door.agent.started == [call]
    assert call.port is door.negotiator.ports[1]
    created, history, floor = texts(door, 1)
    assert (created["type"], created["resumed"], created["session"]["language"]) == ("session.created", True, "de")
    assert history["items"] == [
        {"id": "i1", "role": "user", "text": "Where is it?", "final": True},
        {
            "id": "r1",
            "item_id": "i2",
            "role": "agent",
            "text": "It is",
            "heard": "",
            "unheard": "",
            "status": "in_progress",
        },
    ]
    assert floor["floor"] == "agent"
    before = len(door.negotiator.ports[0].sent)
    call.emit(AgentText("r1", "i2", "here."))
    assert texts(door, 1)[-1]["delta"] == " here.", "what follows joins up to what was said before"
    assert len(door.negotiator.ports[0].sent) == before


async def test_messages_of_the_old_connection_change_nothing(door: Door) -> None:
    body = await start(door)
    await resume(door, body["resume"]["token"])
    (call,) = door.agent.started
    old, new = door.negotiator.ports
    old.on_message(json.dumps({"type": "rejoinder.dtmf", "digit": "1"}))
    old.on_message(json.dumps({"type": "rejoinder.hangup"}))
    new.on_message(json.dumps({"type": "rejoinder.dtmf", "digit": "2"}))
    assert call.told == [("press", "2")]
    assert call.end_reason is None


async def test_candidates_and_the_hang_up_go_to_the_new_connection(door: Door) -> None:
    body = await start(door)
    await resume(door, body["resume"]["token"])
    candidate = {"candidate": "candidate:1 1 udp 1 127.0.0.1 9 typ host", "sdpMid": "0"}
    response = await door.client.patch(f"/v1/calls/{body['id']}", json=candidate, headers=door.auth())
    assert response.status == 204
    assert [len(port.candidates) for port in door.negotiator.ports] == [0, 1]
    response = await door.client.delete(f"/v1/calls/{body['id']}", headers=door.auth())
    assert response.status == 204
    status, problem = await resume(door, body["resume"]["token"])
    assert (status, problem["code"]) == (404, "resume_expired")


async def test_wrong_foreign_and_spent_tokens_are_all_the_same_404(door: Door) -> None:
    body = await start(door)
    token = body["resume"]["token"]
    refused = []
    for attempt, subject in (
        (token, "mallory"),
        (f"{body['id']}.", "alice"),
        (f"{body['id']}.AAAA", "alice"),
        (token[:-1], "alice"),
        ("call_nobody.AAAA", "alice"),
        ("x", "alice"),
    ):
        refused.append(await resume(door, attempt, subject))
    _, again = await resume(door, token)
    door.agent.started[0].emit(CallResumed(1.0))
    refused.append(await resume(door, token))
    assert {status for status, _ in refused} == {404}
    assert len({json.dumps(problem, sort_keys=True) for _, problem in refused}) == 1
    assert refused[0][1]["code"] == "resume_expired"
    status, _ = await resume(door, again["resume"]["token"])
    assert status == 201


async def test_a_token_may_be_used_again_while_its_answer_may_have_been_lost(door: Door) -> None:
    token = (await start(door))["resume"]["token"]
    assert (await resume(door, token))[0] == 201
    status, third = await resume(door, token)
    assert status == 201
    door.agent.started[0].emit(CallResumed(1.0))
    assert (await resume(door, token))[0] == 404
    assert (await resume(door, third["resume"]["token"]))[0] == 201


@pytest.mark.parametrize("token", ["", "a b", "é", "x" * 201, 5, ["a"]])
async def test_a_malformed_token_is_named(door: Door, token: object) -> None:
    response = await door.client.post("/v1/calls", json=OFFER | {"resume": token}, headers=door.auth())
    body = await response.json(content_type=None)
    assert (response.status, body["field"]) == (422, "resume")
    assert not door.negotiator.ports


async def test_a_call_that_was_not_made_resumable_gives_no_token(door: Door) -> None:
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    assert set(await response.json()) == {"id", "sdp", "type"}
    assert not door.agent.started[0].resumable


async def test_a_call_that_ends_while_the_new_connection_is_negotiated_is_gone_and_its_port_closed(door: Door) -> None:
    body = await start(door)
    door.negotiator.gate = asyncio.Event()
    door.negotiator.begun.clear()
    pending = asyncio.create_task(resume(door, body["resume"]["token"]))
    await door.negotiator.begun.wait()
    await door.agent.started[0].finish()
    door.negotiator.gate.set()
    status, problem = await pending
    assert (status, problem["code"]) == (404, "resume_expired")
    await asyncio.sleep(0)
    assert door.negotiator.ports[1].closed == 1


async def test_a_full_server_still_takes_its_callers_back(open_door: OpenDoor) -> None:
    door = await open_door(Settings(server={"max_calls": 1}))
    body = await start(door)
    assert (await resume(door, body["resume"]["token"], calls=1))[0] == 201
    assert len(door.agent.calls) == 1


async def test_a_token_that_no_longer_opens_the_channel_resumes_nothing(door: Door) -> None:
    body = await start(door)
    status, problem = await resume(door, body["resume"]["token"], channels=("widget",))
    assert (status, problem["code"]) == (403, "channel_not_allowed")


async def test_while_draining_nobody_comes_back_and_the_suspended_are_hung_up_at_once(door: Door) -> None:
    waiting, living = await start(door), await start(door)
    first, second = door.agent.started
    first.suspended = True
    draining = asyncio.create_task(drain(door.agent, patience_s=60, hurry=asyncio.Event()))
    assert await first.wait_ended() == "server stopped"
    assert second.end_reason is None
    status, problem = await resume(door, living["resume"]["token"])
    assert (status, problem["code"]) == (503, "call_refused")
    assert (await resume(door, waiting["resume"]["token"]))[0] == 503
    second.hangup("caller hung up")
    await draining


def test_nothing_opens_a_call_whose_token_was_never_issued() -> None:
    realtime = RealtimeSession()
    resumption = Resumption("call_1", realtime, Connection(realtime.on_message), 30.0)
    assert not resumption.accepts("")
    assert not resumption.accepts("call_1.")
    assert resumption.accepts(resumption.issue())


def test_a_long_conversation_is_cut_to_its_newest_part_that_fits() -> None:
    transcript = Transcript()
    for number in range(MAX_ITEMS + 50):
        transcript.on_event(UserTranscript(f"i{number}", f"{number} " + "ü" * 300, final=True))
    items, omitted = transcript.newest()
    assert items[-1]["id"] == f"i{MAX_ITEMS + 49}"
    assert len(items) + omitted == MAX_ITEMS
    assert 0.9 * MAX_BYTES < len(json.dumps(items, ensure_ascii=False).encode()) <= MAX_BYTES + 2 * len(items)


def test_a_reply_that_said_nothing_leaves_no_trace_in_the_transcript() -> None:
    transcript = Transcript()
    transcript.on_event(ReplyStarted("r1", "i1"))
    assert [item["status"] for item in transcript.newest()[0]] == ["in_progress"]
    transcript.on_event(ReplyFinished("r1", "i1", "completed", ""))
    assert transcript.newest() == ([], 0)
    transcript.on_event(AgentText("unknown", "i9", "text"))
    assert transcript.newest() == ([], 0)
