import asyncio
import json
from typing import Any

import aiohttp
import pytest
from pydantic import SecretStr

from agent.config import AuthSettings, ServerSettings, Settings
from agent.errors import CallRefused, ProtocolError
from agent.events import CallEnded, FloorChanged
from tests.signaling.conftest import Door, OpenDoor
from tests.signaling.doubles import ANSWER_SDP, OFFER_SDP

OFFER = {"sdp": OFFER_SDP, "type": "offer"}


async def problem(response: aiohttp.ClientResponse, status: int, code: str) -> dict[str, Any]:
    assert response.status == status, await response.text()
    assert response.content_type == "application/problem+json"
    body: dict[str, Any] = await response.json(content_type=None)
    assert body["code"] == code
    assert body["status"] == status
    assert body["type"] == "about:blank"
    assert body["title"]
    assert body["detail"]
    return body


async def start(door: Door, subject: str = "alice", **offer: Any) -> str:
    response = await door.client.post("/v1/calls", json=OFFER | offer, headers=door.auth(subject))
    assert response.status == 201, await response.text()
    body = await response.json()
    return str(body["id"])


async def test_an_offer_gets_an_answer_and_a_place(door: Door) -> None:
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    assert response.status == 201
    body = await response.json()
    assert body["type"] == "answer"
    assert body["sdp"] == ANSWER_SDP
    assert response.headers["Location"] == f"/v1/calls/{body['id']}"
    assert response.headers["Cache-Control"] == "no-store"
    (call,) = door.agent.started
    assert call.id == body["id"]
    assert call.session.channel == "browser"
    assert call.port is door.negotiator.ports[0]
    assert json.loads(door.negotiator.ports[0].sent[0])["type"] == "session.created"


async def test_caller_language_and_channel_reach_the_session(door: Door) -> None:
    await start(door, channel="widget", caller="+491234", language="de-AT")
    session = door.agent.started[0].session
    assert (session.channel, session.caller, session.language) == ("widget", "+491234", "de-AT")


async def test_a_bare_sdp_body_is_taken(door: Door) -> None:
    headers = door.auth() | {"Content-Type": "application/sdp"}
    response = await door.client.post("/v1/calls?channel=widget&language=en-GB", data=OFFER_SDP, headers=headers)
    assert response.status == 201
    assert (await response.json())["sdp"] == ANSWER_SDP
    assert door.agent.started[0].session.channel == "widget"
    response = await door.client.post("/v1/calls", data=OFFER_SDP, headers=headers | {"Accept": "application/sdp"})
    assert response.content_type == "application/sdp"
    assert await response.text() == ANSWER_SDP


async def test_candidates_reach_the_port_and_the_empty_one_ends_them(door: Door) -> None:
    call_id = await start(door)
    for body in (
        {"candidate": "candidate:1 1 udp 1 127.0.0.1 9 typ host", "sdpMid": "0", "sdpMLineIndex": 0},
        {"candidate": "candidate:2 1 udp 1 127.0.0.1 9 typ host", "usernameFragment": "abcd"},
        {"candidate": ""},
        {"candidate": None},
    ):
        response = await door.client.patch(f"/v1/calls/{call_id}", json=body, headers=door.auth())
        assert response.status == 204
    assert [entry[0] for entry in door.negotiator.ports[0].candidates][2:] == ["", None]
    assert door.negotiator.ports[0].candidates[0][1:] == ("0", 0)


async def test_delete_hangs_up_and_a_second_one_finds_nothing(door: Door) -> None:
    call_id = await start(door)
    response = await door.client.delete(f"/v1/calls/{call_id}", headers=door.auth())
    assert response.status == 204
    assert await door.agent.started[0].wait_ended() == "caller hung up"
    await problem(await door.client.delete(f"/v1/calls/{call_id}", headers=door.auth()), 404, "call_not_found")


async def test_an_ended_call_is_gone(door: Door) -> None:
    call_id = await start(door)
    await door.agent.started[0].finish()
    response = await door.client.patch(f"/v1/calls/{call_id}", json={"candidate": ""}, headers=door.auth())
    await problem(response, 404, "call_not_found")


async def test_a_call_exists_only_for_the_subject_that_made_it(door: Door) -> None:
    call_id = await start(door, "alice")
    mallory = door.auth("mallory")
    await problem(await door.client.delete(f"/v1/calls/{call_id}", headers=mallory), 404, "call_not_found")
    response = await door.client.patch(f"/v1/calls/{call_id}", json={"candidate": ""}, headers=mallory)
    await problem(response, 404, "call_not_found")
    assert door.agent.started[0].end_reason is None
    again = await door.client.delete(f"/v1/calls/{call_id}", headers=door.auth("alice"))
    assert again.status == 204


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic YTpi", "Bearer x", "Token abc", "Bearer a b"])
async def test_without_a_good_token_nothing_happens(door: Door, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for call in (
        door.client.post("/v1/calls", json=OFFER, headers=headers),
        door.client.patch("/v1/calls/call_x", json={"candidate": ""}, headers=headers),
        door.client.delete("/v1/calls/call_x", headers=headers),
    ):
        response = await call
        body = await problem(response, 401, "unauthorized")
        assert body["field"] == "token"
        assert response.headers["WWW-Authenticate"].startswith("Bearer")
    assert not door.negotiator.ports


@pytest.mark.parametrize(
    ("sdp", "status"),
    [
        ("", 422),
        ("hello", 422),
        ("v=1\r\n", 422),
        ("v=0", 422),
        ("v=0\r\nm=video 9 RTP 1\r\n", 422),
        ("v=0\r\ns=\x00\r\nm=audio\r\n", 422),
        ("v=0\r\ns=\x1b[2J\r\nm=audio\r\n", 422),
        ("v=0\r\ns=\ud800\r\nm=audio\r\n", 422),
        ("<sdp/>", 422),
        ("v=0\r\n" + "a=x\r\n" * 30_000 + "m=audio", 422),
        ("v=0\r\n" + "a" * 300_000, 413),
        (None, 422),
        (7, 422),
        (["v=0"], 422),
        ({}, 422),
    ],
)
async def test_a_hostile_sdp_is_refused_by_name_and_others_go_on(door: Door, sdp: object, status: int) -> None:
    living = await start(door, "bob")
    response = await door.client.post("/v1/calls", json={"sdp": sdp, "type": "offer"}, headers=door.auth())
    assert response.status == status, await response.text()
    body = await response.json(content_type=None)
    assert body["status"] == status
    if status == 422:
        assert body["field"] == "sdp"
    assert len(door.agent.started) == 1
    assert living in door.agent.calls
    await start(door)


@pytest.mark.parametrize(
    ("data", "status", "field"),
    [
        (b"", 400, "body"),
        (b"{", 400, "body"),
        (b"null", 400, "body"),
        (b"[]", 400, "body"),
        (b'"v=0"', 400, "body"),
        (b"NaN", 400, "body"),
        (b'{"sdp": NaN}', 400, "body"),
        (b"\xff\xfe\x00", 400, "body"),
        (b"[" * 100_000, 400, "body"),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 413, None),
        (b'{"a":' * 200 + b"1" + b"}" * 200, 400, "body"),
        (b"{}", 422, "sdp"),
        (b'{"sdp": "v=0\\r\\n", "type": "answer"}', 422, "type"),
        (b'{"sdp": "v=0\\r\\n", "channel": "sip"}', 422, "channel"),
        (b'{"sdp": "v=0\\r\\n", "language": "english please"}', 422, "language"),
        (b'{"sdp": "v=0\\r\\n", "language": 5}', 422, "language"),
        (b'{"sdp": "v=0\\r\\n", "caller": "a\\nb"}', 422, "caller"),
        (b'{"sdp": "v=0\\r\\n", "caller": ""}', 422, "caller"),
        (b'{"sdp": "v=0\\r\\n", "extra": 1}', 422, "extra"),
        (b'{"sdp": "v=0\\r\\n", "caller": "' + b"9" * 200 + b'"}', 422, "caller"),
    ],
)
async def test_a_hostile_body_is_refused_by_name(door: Door, data: bytes, status: int, field: str | None) -> None:
    headers = door.auth() | {"Content-Type": "application/json"}
    response = await door.client.post("/v1/calls", data=data, headers=headers)
    assert response.status == status, await response.text()
    body = await response.json(content_type=None)
    assert body.get("field") == field
    assert not door.agent.started
    assert (await door.client.get("/healthz")).status == 200


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "candidate"),
        ({"candidate": 5}, "candidate"),
        ({"candidate": "x" * 2000}, "candidate"),
        ({"candidate": "not a candidate"}, "candidate"),
        ({"candidate": "", "sdpMid": 0}, "sdpMid"),
        ({"candidate": "", "sdpMLineIndex": "0"}, "sdpMLineIndex"),
        ({"candidate": "", "sdpMLineIndex": -1}, "sdpMLineIndex"),
        ({"candidate": "", "sdpMLineIndex": 10**9}, "sdpMLineIndex"),
        ({"candidate": "", "sdpMLineIndex": 0.5}, "sdpMLineIndex"),
        ({"candidate": ["candidate:1"]}, "candidate"),
    ],
)
async def test_a_wrong_candidate_names_its_field(door: Door, body: dict[str, Any], field: str) -> None:
    call_id = await start(door)
    response = await door.client.patch(f"/v1/calls/{call_id}", json=body, headers=door.auth())
    assert response.status == 422, await response.text()
    assert (await response.json(content_type=None))["field"] == field
    assert not door.negotiator.ports[0].candidates
    assert call_id in door.agent.calls


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
async def test_other_content_types_are_refused(door: Door, kind: str) -> None:
    headers = door.auth() | ({"Content-Type": kind} if kind else {})
    skip = {} if kind else {"skip_auto_headers": ["Content-Type"]}
    response = await door.client.post("/v1/calls", data=json.dumps(OFFER).encode(), headers=headers, **skip)  # type: ignore[arg-type]
    body = await problem(response, 415, "unsupported_media_type")
    assert body["field"] == "Content-Type"


async def test_refusals_carry_retry_after_and_are_counted(door: Door) -> None:
    door.agent.refuse = CallRefused("no line", retry_after_s=7)
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    await problem(response, 503, "call_refused")
    assert response.headers["Retry-After"] == "7"
    assert door.negotiator.ports[0].closed == 1, "the port of a call that never began is closed"
    assert door.agent.metrics.value("voice_calls_total", channel="browser", outcome="refused") == 1


async def test_without_a_free_udp_port_the_caller_is_told_to_wait(door: Door) -> None:
    door.negotiator.error = CallRefused("all UDP ports from 40000 to 40009 are in use", retry_after_s=5)
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    assert "40000 to 40009" in (await problem(response, 503, "call_refused"))["detail"]
    assert response.headers["Retry-After"] == "5"
    assert door.agent.metrics.value("voice_calls_total", channel="browser", outcome="refused") == 1


async def test_while_draining_or_not_ready_no_port_is_made(door: Door) -> None:
    door.agent.ready, door.agent.not_ready_reason = False, "loading models"
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    assert "loading models" in (await problem(response, 503, "call_refused"))["detail"]
    door.agent.ready, door.agent.draining = True, True
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    assert "shutting down" in (await problem(response, 503, "call_refused"))["detail"]
    assert not door.negotiator.ports


async def test_when_all_lines_are_busy_new_callers_wait(open_door: OpenDoor) -> None:
    door = await open_door(Settings(server=ServerSettings(max_calls=1)))
    await start(door)
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth("bob"))
    assert "busy" in (await problem(response, 503, "call_refused"))["detail"]
    await door.agent.started[0].finish()
    await start(door, "bob")


async def test_a_tokens_call_limit_counts_calls_being_set_up(door: Door) -> None:
    door.negotiator.gate = asyncio.Event()
    headers = door.auth("alice", calls=1)
    first = asyncio.create_task(door.client.post("/v1/calls", json=OFFER, headers=headers))
    await door.negotiator.begun.wait()
    response = await door.client.post("/v1/calls", json=OFFER, headers=headers)
    await problem(response, 429, "too_many_calls")
    assert int(response.headers["Retry-After"]) > 0
    door.negotiator.gate.set()
    assert (await first).status == 201
    await problem(await door.client.post("/v1/calls", json=OFFER, headers=headers), 429, "too_many_calls")
    await start(door, "bob")
    await door.agent.started[0].finish()
    assert (await door.client.post("/v1/calls", json=OFFER, headers=headers)).status == 201


async def test_a_token_for_another_channel_is_refused(door: Door) -> None:
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth(channels=["widget"]))
    body = await problem(response, 403, "channel_not_allowed")
    assert body["field"] == "channel"
    assert not door.negotiator.ports


async def test_an_unexpected_failure_says_nothing_of_the_inside(door: Door) -> None:
    door.negotiator.error = RuntimeError("secret path /etc/key")
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth())
    body = await problem(response, 500, "internal_error")
    assert "secret" not in json.dumps(body)
    assert door.agent.metrics.value("voice_errors_total", part="signaling", type="RuntimeError") == 1
    door.negotiator.error = None
    await start(door)


async def test_a_failed_start_closes_the_port(door: Door) -> None:
    door.agent.refuse = RuntimeError("engine")
    await problem(await door.client.post("/v1/calls", json=OFFER, headers=door.auth()), 500, "internal_error")
    assert door.negotiator.ports[0].closed == 1


async def raw_post(door: Door) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Send an offer over a bare socket and leave the answer unread."""
    reader, writer = await asyncio.open_connection(door.client.host, door.client.port)
    body = json.dumps(OFFER).encode()
    head = (
        f"POST /v1/calls HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {door.token(calls=1)}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer.write(head.encode() + body)
    await writer.drain()
    return reader, writer


@pytest.mark.parametrize("cancels", [True, False])
async def test_a_client_that_leaves_in_mid_post_leaves_nothing_behind(open_door: OpenDoor, cancels: bool) -> None:
    door = await open_door(cancels=cancels)
    door.negotiator.gate = asyncio.Event()
    _, writer = await raw_post(door)
    await door.negotiator.begun.wait()
    writer.transport.abort()
    if cancels:
        async with asyncio.timeout(5):
            await door.negotiator.cancelled.wait()
        assert not door.negotiator.ports
        assert not door.agent.started
    else:
        # Without handler cancellation the negotiation goes on; the call is ended as soon as it is there.
        await asyncio.sleep(0.05)
        door.negotiator.gate.set()
        await door.agent.began.wait()
        async with asyncio.timeout(5):
            assert await door.agent.started[0].wait_ended() == "not connected"
        assert door.negotiator.ports[0].closed == 1
    assert not door.agent.calls
    door.negotiator.gate.set()
    assert (await door.client.post("/v1/calls", json=OFFER, headers=door.auth(calls=1))).status == 201


async def test_a_slow_negotiation_is_given_up(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.calls.NEGOTIATION_TIMEOUT_S", 0.05)
    door.negotiator.gate = asyncio.Event()
    await problem(await door.client.post("/v1/calls", json=OFFER, headers=door.auth()), 503, "call_refused")
    assert door.negotiator.cancelled.is_set()


async def test_a_body_that_never_comes_is_given_up(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.calls.BODY_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_connection(door.client.host, door.client.port)
    head = (
        f"POST /v1/calls HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {door.token()}\r\n"
        "Content-Type: application/json\r\nContent-Length: 5000\r\n\r\n{"
    )
    writer.write(head.encode())
    async with asyncio.timeout(10):
        assert b" 408 " in await reader.readline()
    writer.close()


async def test_events_go_out_and_commands_come_in_over_the_port(door: Door) -> None:
    await start(door)
    call, port = door.agent.started[0], door.negotiator.ports[0]
    call.emit(FloorChanged("agent"))
    port.on_message('{"type":"response.cancel"}')
    port.on_message("not json")
    call.emit(CallEnded("completed"))
    kinds = [json.loads(text)["type"] for text in port.sent]
    assert kinds == ["session.created", "rejoinder.floor", "error", "rejoinder.ended"]
    assert call.told == [("cancel", None)]


async def test_rate_limit_answers_429_with_a_wait_and_leaves_the_probes_alone(open_door: OpenDoor) -> None:
    door = await open_door(Settings(server=ServerSettings(rate_per_minute=3)))
    for _ in range(3):
        assert (await door.client.delete("/v1/calls/x", headers=door.auth())).status == 404
    response = await door.client.delete("/v1/calls/x", headers=door.auth())
    await problem(response, 429, "rate_limited")
    assert 1 <= int(response.headers["Retry-After"]) <= 20
    assert (await door.client.get("/healthz")).status == 200


async def test_forwarded_addresses_count_only_behind_a_proxy(open_door: OpenDoor) -> None:
    for trust, expected in ((True, 404), (False, 429)):
        door = await open_door(Settings(server=ServerSettings(rate_per_minute=1, trust_proxy=trust)))
        first = door.auth() | {"X-Forwarded-For": "192.0.2.1"}
        second = door.auth() | {"X-Forwarded-For": "192.0.2.2"}
        assert (await door.client.delete("/v1/calls/x", headers=first)).status == 404
        assert (await door.client.delete("/v1/calls/x", headers=second)).status == expected


async def test_a_foreign_page_may_not_call(door: Door) -> None:
    headers = door.auth() | {"Origin": "https://evil.example"}
    response = await door.client.post("/v1/calls", json=OFFER, headers=headers)
    body = await problem(response, 403, "origin_not_allowed")
    assert body["field"] == "Origin"
    assert "Access-Control-Allow-Origin" not in response.headers
    assert not door.negotiator.ports


async def test_an_allowed_page_may_and_sees_the_answer_even_when_it_is_an_error(open_door: OpenDoor) -> None:
    door = await open_door(Settings(server=ServerSettings(origins=("https://shop.example",))))
    origin = {"Origin": "https://shop.example"}
    preflight = await door.client.options("/v1/calls", headers=origin | {"Access-Control-Request-Method": "POST"})
    assert preflight.status == 204
    assert preflight.headers["Access-Control-Allow-Origin"] == "https://shop.example"
    assert "Authorization" in preflight.headers["Access-Control-Allow-Headers"]
    assert "POST" in preflight.headers["Access-Control-Allow-Methods"]
    assert "Origin" in preflight.headers["Vary"]
    made = await door.client.post("/v1/calls", json=OFFER, headers=door.auth() | origin)
    assert made.status == 201
    assert made.headers["Access-Control-Allow-Origin"] == "https://shop.example"
    assert "Location" in made.headers["Access-Control-Expose-Headers"]
    refused = await door.client.post("/v1/calls", json={}, headers=door.auth() | origin)
    assert refused.status == 422
    assert refused.headers["Access-Control-Allow-Origin"] == "https://shop.example"
    other = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert (await door.client.options("/v1/calls", headers=other)).status == 403


async def test_our_own_page_may_call(door: Door) -> None:
    origin = f"http://{door.client.host}:{door.client.port}"
    response = await door.client.post("/v1/calls", json=OFFER, headers=door.auth() | {"Origin": origin})
    assert response.status == 201


async def test_a_rebound_name_finds_no_server(door: Door) -> None:
    for path in ("/", "/v1/calls", "/metrics"):
        response = await door.client.get(path, headers={"Host": "evil.example:8080"})
        body = await problem(response, 421, "unknown_host")
        assert body["field"] == "Host"


async def test_on_a_public_address_any_host_is_served(open_door: OpenDoor) -> None:
    auth = AuthSettings(secret=SecretStr("0123456789abcdef0123456789abcdef"))
    door = await open_door(Settings(server=ServerSettings(host="0.0.0.0"), auth=auth))
    assert (await door.client.get("/healthz", headers={"Host": "voice.example"})).status == 200


async def test_unknown_paths_and_methods_are_problems_too(door: Door) -> None:
    await problem(await door.client.get("/v2/nothing"), 404, "not_found")
    response = await door.client.put("/v1/calls", json=OFFER)
    await problem(response, 405, "method_not_allowed")
    assert "POST" in response.headers["Allow"]


@pytest.mark.parametrize("wish", [True, False])
async def test_a_wish_for_a_recording_reaches_the_agent(door: Door, wish: bool) -> None:
    await start(door, record=wish)
    assert door.agent.recorded is wish
    headers = door.auth() | {"Content-Type": "application/sdp"}
    response = await door.client.post(f"/v1/calls?record={int(wish)}", data=OFFER_SDP, headers=headers)
    assert response.status == 201
    assert door.agent.recorded is wish


async def test_a_wish_that_is_none_or_cannot_be_met_is_told(door: Door) -> None:
    headers = door.auth() | {"Content-Type": "application/sdp"}
    response = await door.client.post("/v1/calls?record=perhaps", data=OFFER_SDP, headers=headers)
    body = await problem(response, 422, "invalid_request")
    assert body["field"] == "record"
    door.agent.refuse = ProtocolError("record: off here", field="record", code="recording_off")
    response = await door.client.post("/v1/calls", json={"sdp": OFFER_SDP, "record": True}, headers=door.auth())
    body = await problem(response, 422, "recording_off")
    assert body["field"] == "record"
