import asyncio
import contextlib
import json
import socket
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType

from agent.errors import CallRefused, EngineError, NotInterruptible, ProtocolError
from agent.events import (
    AgentText,
    ClientData,
    OutputCleared,
    OutputPaused,
    OutputResumed,
    ReplyFinished,
    TurnTimings,
    UserTranscript,
)
from tests.signaling.conftest import Door
from tests.signaling.doubles import silence

Socket = aiohttp.ClientWebSocketResponse

MASKED_200_MS = b"\x82\xfe\x0c\x80" + bytes(4 + 3200)
"""A client's binary frame at 8 kHz, masked with zeros (RFC 6455 section 5.2)."""


async def connect(door: Door, **query: Any) -> Socket:
    params = {"rate": "16000", "token": door.token()} | {key: str(value) for key, value in query.items()}
    return await door.client.ws_connect("/v1/stream", params=params)


async def until_closed(ws: Socket) -> tuple[list[dict[str, Any]], int | None]:
    """All JSON messages left, and the close code."""
    async with asyncio.timeout(15):
        messages = [json.loads(message.data) async for message in ws if message.type is WSMsgType.TEXT]
    return messages, ws.close_code


def upgrade_request(door: Door, rate_hz: int) -> bytes:
    """The handshake of RFC 6455, for a client over a bare socket."""
    lines = (
        f"GET /v1/stream?rate={rate_hz}&token={door.token()} HTTP/1.1",
        "Host: 127.0.0.1",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "",
        "",
    )
    return "\r\n".join(lines).encode()


async def live(door: Door, **query: Any) -> Socket:
    ws = await connect(door, **query)
    await door.agent.began.wait()
    return ws


async def test_audio_goes_both_ways(door: Door) -> None:
    ws = await live(door)
    port = door.pcm_ports[0]
    for ms in (1, 20, 200):
        await ws.send_bytes(silence(16_000, ms))
    await ws.send_bytes(b"")
    port.play(b"\x01\x02" * 320)
    assert await ws.receive_bytes(timeout=5) == b"\x01\x02" * 320
    await ws.send_json({"type": "hangup"})
    await until_closed(ws)
    assert port.messages == 3
    assert len(port.fed) == 2 * 16 * 221
    assert door.agent.started[0].session.channel == "websocket"


@pytest.mark.parametrize("rate", [8000, 16_000, 24_000, 48_000])
async def test_every_rate_takes_200_ms_and_not_a_sample_more(door: Door, rate: int) -> None:
    ws = await live(door, rate=rate)
    assert door.pcm_ports[0].sample_rate_hz == rate
    await ws.send_bytes(silence(rate, 200))
    await ws.send_bytes(silence(rate, 200) + b"\x00\x00")
    messages, code = await until_closed(ws)
    assert messages[0]["code"] == "audio_too_long"
    assert messages[0]["field"] == "audio"
    assert code == 1009
    assert len(door.pcm_ports[0].fed) == rate // 5 * 2


async def test_commands_reach_the_call(door: Door) -> None:
    ws = await live(door)
    call = door.agent.started[0]
    await ws.send_json({"type": "dtmf", "digit": "5"})
    await ws.send_json({"type": "text", "text": "where is my order"})
    await ws.send_json({"type": "clear"})
    await ws.send_json({"type": "hangup"})
    messages, code = await until_closed(ws)
    assert call.told == [("press", "5"), ("text", "where is my order"), ("cancel", None)]
    assert messages == [{"type": "hangup", "reason": "caller hung up"}]
    assert code == 1000
    assert not door.agent.calls


async def test_events_become_messages_in_order(door: Door) -> None:
    ws = await live(door)
    call = door.agent.started[0]
    call.emit(UserTranscript("i", "hi", True))
    call.emit(AgentText("r", "i", "Hello."))
    call.emit(TurnTimings("r", 500, 80, 1, 20, 10, 611))
    call.emit(ReplyFinished("r", "i", "completed", "Hello."))
    await call.finish()
    messages, code = await until_closed(ws)
    assert [m["type"] for m in messages] == ["transcript", "transcript", "timings", "transcript", "hangup"]
    assert messages[-1]["reason"] == "completed"
    assert code == 1000


async def test_a_clear_comes_before_audio_of_the_next_reply_and_drops_the_old(door: Door) -> None:
    ws = await live(door)
    call, port = door.agent.started[0], door.pcm_ports[0]
    for _ in range(5):
        port.play(b"\x01\x00" * 320)
    call.emit(OutputCleared("r"))
    port.play(b"\x02\x00" * 320)
    first = await ws.receive(timeout=5)
    assert first.type is WSMsgType.TEXT
    assert json.loads(first.data) == {"type": "clear"}
    assert await ws.receive_bytes(timeout=5) == b"\x02\x00" * 320
    await ws.close()


async def test_a_pause_drops_what_waits_and_the_rest_follows_without_a_word(door: Door) -> None:
    ws = await live(door)
    call, port = door.agent.started[0], door.pcm_ports[0]
    for _ in range(5):
        port.play(b"\x01\x00" * 320)
    call.emit(OutputPaused("r"))
    call.emit(OutputResumed("r"))
    port.play(b"\x02\x00" * 320)
    assert json.loads(await ws.receive_str(timeout=5)) == {"type": "clear"}
    assert await ws.receive_bytes(timeout=5) == b"\x02\x00" * 320
    await ws.close()


async def test_the_token_may_come_in_the_header(door: Door) -> None:
    ws = await door.client.ws_connect("/v1/stream", headers=door.auth())
    await door.agent.began.wait()
    assert door.pcm_ports[0].sample_rate_hz == 16_000
    await ws.close()


@pytest.mark.parametrize("token", ["", "x", "a.b.c", "%00", "null", "Bearer x", "é", "a" * 9000, "../..", "{}"])
async def test_without_a_good_token_the_socket_closes_with_4401(door: Door, token: str) -> None:
    if len(token) > 8000:
        # Longer than a request line may be: refused before any handler.
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await door.client.ws_connect("/v1/stream", params={"token": token})
        assert caught.value.status == 400
        return
    ws = await door.client.ws_connect("/v1/stream", params={"token": token})
    messages, code = await until_closed(ws)
    assert messages[0]["type"] == "error"
    assert messages[0]["code"] == "unauthorized"
    assert code == 4401
    assert not door.pcm_ports


@pytest.mark.parametrize("rate", ["", "0", "44100", "16000.0", "-8000", "abc", "１６０００", " 16000", "1e4", "NaN"])
async def test_a_wrong_rate_names_the_right_ones(door: Door, rate: str) -> None:
    ws = await connect(door, rate=rate)
    messages, code = await until_closed(ws)
    assert messages[0]["field"] == "rate"
    assert "8000, 16000, 24000, 48000" in messages[0]["message"]
    assert code == 1003


@pytest.mark.parametrize(
    ("data", "error", "code"),
    [
        (b"\x00", "odd_length", 1007),
        (b"\x00" * 641, "odd_length", 1007),
        (b"\x00" * 6402, "audio_too_long", 1009),
        ("hello", "invalid_json", 1007),
        ("[]", "invalid_json", 1007),
        ("{", "invalid_json", 1007),
        ("[" * 30_000, "invalid_json", 1007),
        ("{}", "unknown_type", 1003),
        ('{"type":"explode"}', "unknown_type", 1003),
        ('{"type":"dtmf","digit":"x"}', "invalid_value", 1007),
        ('{"type":"text","text":""}', "invalid_value", 1007),
        ('{"type":"text","text":"' + "x" * 5000 + '"}', "invalid_value", 1007),
    ],
)
async def test_a_wrong_message_ends_this_call_only(door: Door, data: bytes | str, error: str, code: int) -> None:
    other = await live(door)
    ws = await connect(door)
    if isinstance(data, bytes):
        await ws.send_bytes(data)
    else:
        await ws.send_str(data)
    messages, close_code = await until_closed(ws)
    assert messages[0]["type"] == "error"
    assert messages[0]["code"] == error
    assert close_code == code
    assert await door.agent.started[1].wait_ended() == "peer closed"
    assert list(door.agent.calls) == [door.agent.started[0].id]
    await other.close()


@pytest.mark.parametrize("data", [bytes(1_000_000), "x" * 100_000])
async def test_a_frame_far_too_long_is_not_even_read_and_its_sender_told(door: Door, data: bytes | str) -> None:
    ws = await live(door)
    if isinstance(data, bytes):
        await ws.send_bytes(data)
    else:
        await ws.send_str(data)
    messages, code = await until_closed(ws)
    assert messages == [
        {"type": "error", "code": "too_long", "message": "a message may have at most 65536 bytes", "field": None}
    ]
    assert code == 1009
    await door.agent.started[0].wait_ended()
    assert not door.pcm_ports[0].fed


@pytest.mark.parametrize(
    "frame",
    [
        b"\x83\x80\x00\x00\x00\x00",  # reserved opcode
        b"\xf2\x80\x00\x00\x00\x00",  # reserved bits
        b"\x89\xfe\xff\xff" + b"\x00" * 4,  # oversize control frame
        b"\x81\x82\x00\x00\x00\x00\xc3\x28",  # text that is not UTF-8
        b"\x80\x80\x00\x00\x00\x00",  # continuation of nothing
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
async def test_a_broken_frame_ends_the_call_and_not_the_server(door: Door, frame: bytes) -> None:
    reader, writer = await asyncio.open_connection(door.client.host, door.client.port)
    writer.write(upgrade_request(door, 16_000))
    assert b"101" in await reader.readuntil(b"\r\n\r\n")
    await door.agent.began.wait()
    writer.write(frame)
    async with asyncio.timeout(10):
        await reader.read()
        await door.agent.started[0].wait_ended()
    writer.close()
    assert (await door.client.get("/healthz")).status == 200


async def test_an_error_is_told_before_the_call_has_ended(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.streaming.CALL_END_TIMEOUT_S", 60.0)
    ws = await live(door)
    call = door.agent.started[0]
    call.lingers = True
    await ws.send_bytes(b"\x00")
    messages, code = await until_closed(ws)
    assert [message["code"] for message in messages] == ["odd_length"]
    assert code == 1007
    assert call.end_reason == "peer closed"
    assert call.id in door.agent.calls, "the call was over before its client was told"
    await call.finish()


async def test_a_client_that_floods_and_goes_frees_its_line_though_nothing_is_read(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signaling.streaming.PROBE_S", 0.1)
    reader, writer = await asyncio.open_connection(door.client.host, door.client.port)
    writer.write(upgrade_request(door, 8000))
    assert b"101" in await reader.readuntil(b"\r\n\r\n")
    await door.agent.began.wait()
    call, port = door.agent.started[0], door.pcm_ports[0]
    port.room.clear()  # as after a second of unheard audio
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.3):
            while True:
                writer.write(MASKED_200_MS)
                await writer.drain()
    writer.transport.abort()  # the kernel still holds audio for the server
    async with asyncio.timeout(5):
        assert await call.wait_ended() == "peer closed"
    assert port.messages == 1


async def test_audio_in_crumbs_is_read_no_faster_than_the_others_can_bear(door: Door) -> None:
    ws = await live(door)
    port, loop = door.pcm_ports[0], asyncio.get_running_loop()
    for _ in range(20_000):
        await ws.send_bytes(b"\x01\x00")
    longest, until = 0.0, loop.time() + 1.0
    while (now := loop.time()) < until:
        await asyncio.sleep(0)
        longest = max(longest, loop.time() - now)
    assert port.messages < 5_000
    assert longest < 0.2
    await ws.close()


async def test_what_was_sent_before_going_is_still_heard_when_there_is_room(door: Door) -> None:
    reader, writer = await asyncio.open_connection(door.client.host, door.client.port)
    writer.write(upgrade_request(door, 8000))
    assert b"101" in await reader.readuntil(b"\r\n\r\n")
    await door.agent.began.wait()
    writer.write(MASKED_200_MS * 10)
    writer.write_eof()
    async with asyncio.timeout(5):
        assert await door.agent.started[0].wait_ended() == "peer closed"
    assert door.pcm_ports[0].messages == 10
    writer.close()


async def test_an_error_of_the_call_ends_it_with_a_reason(door: Door) -> None:
    ws = await live(door)
    door.agent.started[0].failure = ProtocolError("too late", field="text", code="invalid_value")
    await ws.send_json({"type": "text", "text": "x"})
    messages, code = await until_closed(ws)
    assert messages[0]["message"] == "too late"
    assert code == 1007


async def test_a_command_that_cannot_be_done_now_leaves_the_call_alive(door: Door) -> None:
    ws = await live(door)
    call = door.agent.started[0]
    call.failure = EngineError("no voice")
    await ws.send_json({"type": "clear"})
    assert json.loads(await ws.receive_str(timeout=5))["code"] == "not_possible"
    call.failure = NotInterruptible("the reply cannot be interrupted")
    await ws.send_json({"type": "clear"})
    assert json.loads(await ws.receive_str(timeout=5))["code"] == "not_interruptible"
    call.failure = None
    await ws.send_json({"type": "dtmf", "digit": "1"})
    await ws.send_json({"type": "hangup"})
    await until_closed(ws)
    assert call.told == [("press", "1")]


async def test_an_unexpected_failure_closes_with_1011_and_is_counted(door: Door) -> None:
    ws = await live(door)
    door.agent.started[0].failure = RuntimeError("secret")
    await ws.send_json({"type": "clear"})
    messages, code = await until_closed(ws)
    assert messages == [
        {"type": "error", "code": "internal_error", "message": "the server failed on this call", "field": None}
    ]
    assert code == 1011
    assert door.agent.metrics.value("voice_errors_total", part="signaling", type="RuntimeError") == 1
    assert not door.agent.calls


async def test_a_refused_call_says_when_to_come_back(door: Door) -> None:
    door.agent.refuse = CallRefused("all lines are busy", retry_after_s=9)
    ws = await connect(door)
    messages, code = await until_closed(ws)
    assert messages[0]["code"] == "call_refused"
    assert messages[0]["retry_after_s"] == 9
    assert code == 1013
    assert door.pcm_ports[0].closed == 1
    assert door.agent.metrics.value("voice_calls_total", channel="websocket", outcome="refused") == 1


async def test_limits_of_the_token_hold_here_too(door: Door) -> None:
    token = door.token(calls=1)
    first = await door.client.ws_connect("/v1/stream", params={"token": token})
    await door.agent.began.wait()
    second = await door.client.ws_connect("/v1/stream", params={"token": token})
    messages, code = await until_closed(second)
    assert messages[0]["code"] == "too_many_calls"
    assert code == 1013
    await first.close()
    third = await door.client.ws_connect("/v1/stream", params={"token": door.token(channels=["browser"])})
    messages, code = await until_closed(third)
    assert messages[0]["code"] == "channel_not_allowed"
    assert code == 1008


async def test_a_flood_of_text_is_a_breach_of_policy(door: Door) -> None:
    ws = await live(door)
    for _ in range(200):
        await ws.send_json({"type": "clear"})
    messages, code = await until_closed(ws)
    assert messages[-1]["code"] == "rate_limited"
    assert code == 1008


async def test_hook_data_that_is_not_json_becomes_an_error_message(door: Door) -> None:
    ws = await live(door)
    door.agent.started[0].emit(ClientData({"x": object()}))
    assert json.loads(await ws.receive_str(timeout=5))["code"] == "message_unsendable"
    await ws.close()


@pytest.mark.parametrize("how", ["close", "abort"])
async def test_a_client_that_goes_ends_its_call(door: Door, how: str) -> None:
    ws = await live(door)
    call = door.agent.started[0]
    if how == "close":
        await ws.close()
    else:
        transport = ws._response.connection.transport  # type: ignore[union-attr]
        assert transport is not None
        transport.abort()
    async with asyncio.timeout(5):
        assert await call.wait_ended() == "peer closed"
    assert door.pcm_ports[0].closed >= 1
    assert not door.agent.calls


async def test_a_client_that_does_not_read_is_dropped_and_its_audio_with_it(door: Door) -> None:
    """48 kHz audio, ten seconds of it at once into a client that reads nothing: given up, in bounded memory."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await loop.sock_connect(sock, (door.client.host, door.client.port))
    await loop.sock_sendall(sock, upgrade_request(door, 48_000))
    await door.agent.began.wait()
    call, port = door.agent.started[0], door.pcm_ports[0]
    for _ in range(600):
        port.play(bytes(1920))
        await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await call.wait_ended() == "peer closed"
    assert not door.agent.calls
    sock.close()


async def test_a_slow_client_is_told_why_when_it_reads_again(door: Door) -> None:
    ws = await live(door)
    port = door.pcm_ports[0]
    for _ in range(400):
        port.play(bytes(640))
    messages, code = await until_closed(ws)
    assert messages[-1]["code"] == "too_slow"
    assert code == 1013


async def test_a_plain_get_is_told_to_upgrade(door: Door) -> None:
    response = await door.client.get("/v1/stream", headers=door.auth())
    assert response.status == 426
    assert response.content_type == "application/problem+json"
    assert response.headers["Upgrade"] == "websocket"


async def test_a_foreign_page_gets_no_socket(door: Door) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await door.client.ws_connect(
            "/v1/stream", params={"token": door.token()}, headers={"Origin": "https://evil.example"}
        )
    assert caught.value.status == 403
    own = f"http://{door.client.host}:{door.client.port}"
    ws = await door.client.ws_connect("/v1/stream", params={"token": door.token()}, headers={"Origin": own})
    await ws.close()


async def test_a_wish_for_a_recording_reaches_the_agent(door: Door) -> None:
    ws = await live(door, record=1)
    assert door.agent.recorded
    await ws.close()


async def test_a_wish_for_a_recording_that_cannot_be_met_closes_with_a_reason(door: Door) -> None:
    door.agent.refuse = ProtocolError("record: off here", field="record", code="recording_off")
    messages, code = await until_closed(await connect(door, record=1))
    assert (messages[-1]["code"], messages[-1]["field"], code) == ("recording_off", "record", 1008)
    messages, code = await until_closed(await connect(door, record="perhaps"))
    assert (messages[-1]["field"], code) == ("record", 1008)
