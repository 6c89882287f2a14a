import asyncio
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType, encode_basic_auth

from agent.config import BridgeSettings, Settings
from agent.errors import CallRefused
from agent.events import CallEnded, OutputPaused, TransferRequested
from tests.signaling.bridges.test_asterisk_messages import AS_JSON, PLAIN
from tests.signaling.conftest import Door, OpenDoor

Socket = aiohttp.ClientWebSocketResponse


@pytest.fixture
async def door(open_door: OpenDoor) -> Door:
    return await open_door(Settings(bridges=BridgeSettings(asterisk=True, parameters=("queue",))))


async def connect(door: Door, **query: str) -> Socket:
    headers = {"Authorization": encode_basic_auth("asterisk", door.token())}
    return await door.client.ws_connect("/v1/asterisk", params=query, headers=headers, protocols=["media"])


async def live(door: Door, start: str = PLAIN, **query: str) -> Socket:
    ws = await connect(door, **query)
    await ws.send_str(start)
    await door.agent.began.wait()
    return ws


async def until_closed(ws: Socket) -> tuple[list[Any], int | None]:
    async with asyncio.timeout(15):
        messages = [message.data async for message in ws if message.type in (WSMsgType.TEXT, WSMsgType.BINARY)]
    return messages, ws.close_code


async def test_a_call_goes_both_ways(door: Door) -> None:
    ws = await live(door, caller="+4315550100", queue="sales")
    assert ws.protocol == "media"
    port, call = door.pcm_ports[0], door.agent.started[0]
    assert port.sample_rate_hz == 16_000
    assert (call.session.channel, call.session.caller) == ("sip", "+4315550100")
    assert call.session.metadata == {"queue": "sales"}
    assert await ws.receive_str(timeout=5) == "ANSWER"
    await ws.send_bytes(bytes(640))
    await ws.send_str("DTMF_END digit:0")
    port.play(b"\x01\x02" * 320)
    assert await ws.receive_bytes(timeout=5) == b"\x01\x02" * 320
    await ws.close()
    async with asyncio.timeout(10):
        assert await call.wait_ended() == "peer closed"
    assert port.fed == bytes(640)
    assert call.told == [("press", "0")]


async def test_it_is_shut_unless_opened(open_door: OpenDoor) -> None:
    door = await open_door()
    assert (await door.client.get("/v1/asterisk")).status == 404


@pytest.mark.parametrize("password", ["", "wrong"])
async def test_without_a_token_there_is_no_socket(door: Door, password: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await door.client.ws_connect("/v1/asterisk", headers={"Authorization": encode_basic_auth("asterisk", password)})
    assert caught.value.status == 401


@pytest.mark.parametrize("header", ["Basic", "Basic !!!", "Basic /w==", "Bearer x", "x"])
async def test_a_broken_authorization_is_401(door: Door, header: str) -> None:
    response = await door.client.get("/v1/asterisk", headers={"Authorization": header})
    assert response.status == 401


async def test_a_token_in_the_query_opens_it_too(door: Door) -> None:
    ws = await door.client.ws_connect("/v1/asterisk", params={"token": door.token()})
    await ws.send_str(AS_JSON)
    assert await ws.receive_json(timeout=5) == {"command": "ANSWER"}
    assert door.pcm_ports[0].sample_rate_hz == 8000
    await ws.close()


@pytest.mark.parametrize(("first", "code"), [(PLAIN.replace("slin16", "opus"), 1003), ("HELLO", 1008)])
async def test_what_cannot_be_served_is_closed_with_a_code(door: Door, first: str, code: int) -> None:
    ws = await connect(door)
    await ws.send_str(first)
    assert await until_closed(ws) == ([], code)
    assert not door.agent.started


async def test_media_that_does_not_start_is_closed(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.bridges.asterisk.START_TIMEOUT_S", 0.1)
    ws = await connect(door)
    assert await until_closed(ws) == ([], 1008)


async def test_a_refused_call_closes_and_is_never_answered(door: Door) -> None:
    door.agent.refuse = CallRefused("busy")
    ws = await connect(door)
    await ws.send_str(PLAIN)
    assert await until_closed(ws) == ([], 1013)


async def test_an_interruption_flushes_before_new_audio(door: Door) -> None:
    ws = await live(door)
    port, call = door.pcm_ports[0], door.agent.started[0]
    assert await ws.receive_str(timeout=5) == "ANSWER"
    port.play(bytes(640))
    call.emit(OutputPaused("r"))
    port.play(b"\x01" * 640)
    assert await ws.receive_str(timeout=5) == "FLUSH_MEDIA"
    assert await ws.receive_bytes(timeout=5) == b"\x01" * 640
    await ws.close()


async def test_while_asterisk_is_full_nothing_is_sent(door: Door) -> None:
    ws = await live(door)
    port, call = door.pcm_ports[0], door.agent.started[0]
    assert await ws.receive_str(timeout=5) == "ANSWER"
    read = asyncio.Event()
    call.press = lambda _: read.set()  # type: ignore[method-assign]
    await ws.send_str("MEDIA_XOFF")
    await ws.send_str("DTMF_END digit:1")
    await read.wait()
    port.play(bytes(640))
    with pytest.raises(TimeoutError):
        await ws.receive(timeout=0.2)
    await ws.send_str("MEDIA_XON")
    assert await ws.receive_bytes(timeout=5) == bytes(640)
    await ws.close()


async def test_the_end_is_a_hang_up_once_all_was_played(door: Door) -> None:
    ws = await live(door)
    port, call = door.pcm_ports[0], door.agent.started[0]
    port.play(bytes(640))
    call.hangup("completed")
    messages = [(await ws.receive(timeout=5)).data for _ in range(3)]
    assert messages == ["ANSWER", bytes(640), "REPORT_QUEUE_DRAINED"]
    await ws.send_str("QUEUE_DRAINED")
    assert await until_closed(ws) == (["HANGUP"], 1000)


async def test_the_end_is_in_order_though_the_call_is_not_gone_when_it_is_told(door: Door) -> None:
    ws = await live(door)
    port, call = door.pcm_ports[0], door.agent.started[0]
    call.lingers = True
    port.play(bytes(640))
    call.emit(CallEnded("completed"))
    messages = [(await ws.receive(timeout=5)).data for _ in range(3)]
    assert messages == ["ANSWER", bytes(640), "REPORT_QUEUE_DRAINED"]
    await ws.send_str("QUEUE_DRAINED")
    assert (await ws.receive(timeout=5)).data == "HANGUP"
    await call.finish()
    assert await until_closed(ws) == ([], 1000)


async def test_a_transfer_ends_our_part_so_that_the_dialplan_goes_on(door: Door) -> None:
    ws = await live(door)
    door.agent.started[0].emit(TransferRequested("sales"))
    messages, _ = await until_closed(ws)
    assert messages == ["ANSWER", "HANGUP"]
