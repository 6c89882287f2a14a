import asyncio
import base64
import json
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp import WSMsgType

from agent.config import BridgeSettings, Settings
from agent.errors import CallRefused
from agent.events import OutputCleared, OutputPaused, TransferRequested
from signaling.bridges.twilio_signature import sign
from tests.signaling.conftest import Door, OpenDoor
from tests.signaling.doubles import CallDouble, PcmDouble

TOKEN = "0123456789abcdef0123456789abcdef"
Socket = aiohttp.ClientWebSocketResponse


@pytest.fixture
async def door(open_door: OpenDoor) -> Door:
    bridges = BridgeSettings.model_validate({"twilio_auth_token": TOKEN, "parameters": ["queue"]})
    return await open_door(Settings(bridges=bridges))


def address(door: Door, query: str = "") -> str:
    return f"wss://{door.client.host}:{door.client.port}/v1/twilio{query}"


async def connect(door: Door, signature: str | None = None) -> Socket:
    signature = sign(TOKEN, address(door)) if signature is None else signature
    return await door.client.ws_connect("/v1/twilio", headers={"X-Twilio-Signature": signature})


async def live(door: Door, **parameters: str) -> Socket:
    ws = await connect(door)
    await ws.send_json({"event": "connected", "protocol": "Call", "version": "1.0.0"})
    await ws.send_json({"event": "start", "start": {"streamSid": "MZ1", "customParameters": parameters}})
    await door.agent.began.wait()
    return ws


async def until_closed(ws: Socket) -> tuple[list[dict[str, Any]], int | None]:
    async with asyncio.timeout(15):
        messages = [json.loads(message.data) async for message in ws if message.type is WSMsgType.TEXT]
    return messages, ws.close_code


def play(port: PcmDouble, frames: int) -> None:
    for _ in range(frames):
        frame = port.playout.read()
        port.play(bytes(320) if frame is None else frame.tobytes())


async def echo(ws: Socket, mark: dict[str, Any], call: CallDouble) -> None:
    """Send a mark back, and return once the server has read it."""
    read = asyncio.Event()
    call.press = lambda _: read.set()  # type: ignore[method-assign]
    await ws.send_json({"event": "mark", "mark": mark})
    await ws.send_json({"event": "dtmf", "dtmf": {"digit": "1"}})
    async with asyncio.timeout(5):
        await read.wait()


async def test_a_call_goes_both_ways(door: Door) -> None:
    ws = await live(door, caller="+4315550100", queue="sales", secret="x")
    port, call = door.pcm_ports[0], door.agent.started[0]
    assert port.sample_rate_hz == 8000
    assert (call.session.channel, call.session.caller) == ("sip", "+4315550100")
    assert call.session.metadata == {"queue": "sales"}
    await ws.send_json({"event": "media", "media": {"payload": base64.b64encode(b"\xff" * 160).decode()}})
    await ws.send_json({"event": "dtmf", "dtmf": {"digit": "0"}})
    port.play(bytes(320))
    message = await ws.receive_json(timeout=5)
    assert message == {
        "event": "media",
        "streamSid": "MZ1",
        "media": {"payload": base64.b64encode(b"\xff" * 160).decode()},
    }
    await ws.send_json({"event": "stop"})
    _, code = await until_closed(ws)
    assert code == 1000
    assert port.fed == bytes(320)
    assert call.told == [("press", "0")]
    assert call.end_reason == "caller hung up"
    assert not door.agent.calls


async def test_it_is_shut_unless_a_token_is_set(open_door: OpenDoor) -> None:
    door = await open_door()
    assert (await door.client.get("/v1/twilio")).status == 404


@pytest.mark.parametrize("signature", ["", "AAAA", sign(TOKEN, "wss://elsewhere.example/v1/twilio")])
async def test_a_wrong_signature_gets_403_and_no_socket(door: Door, signature: str) -> None:
    with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
        await connect(door, signature)
    assert caught.value.status == 403
    response = await door.client.get("/v1/twilio")
    assert (await response.json())["field"] == "X-Twilio-Signature"


async def test_the_query_belongs_to_what_is_signed(door: Door) -> None:
    header = {"X-Twilio-Signature": sign(TOKEN, address(door, "?shop=2"))}
    ws = await door.client.ws_connect("/v1/twilio?shop=2", headers=header)
    await ws.close()
    with pytest.raises(aiohttp.WSServerHandshakeError):
        await door.client.ws_connect("/v1/twilio?shop=3", headers=header)


async def test_behind_a_proxy_the_public_address_is_what_is_signed(open_door: OpenDoor) -> None:
    url = "wss://agent.example/voice"
    bridges = BridgeSettings.model_validate({"twilio_auth_token": TOKEN, "twilio_url": url})
    door = await open_door(Settings(bridges=bridges))
    ws = await connect(door, sign(TOKEN, url))
    await ws.close()


async def test_a_stream_that_does_not_start_is_closed(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signaling.bridges.twilio.START_TIMEOUT_S", 0.2)
    ws = await connect(door)
    messages, code = await until_closed(ws)
    assert (messages, code) == ([], 1008)
    assert not door.agent.started


async def test_a_call_that_is_refused_is_closed_with_the_code(door: Door) -> None:
    door.agent.refuse = CallRefused("busy")
    ws = await connect(door)
    await ws.send_json({"event": "start", "start": {"streamSid": "MZ1"}})
    _, code = await until_closed(ws)
    assert code == 1013


async def test_wrong_audio_ends_the_call(door: Door) -> None:
    ws = await live(door)
    await ws.send_json({"event": "media", "media": {"payload": "?"}})
    _, code = await until_closed(ws)
    assert code == 1007
    assert door.agent.started[0].end_reason == "peer closed"


async def test_a_pause_takes_back_what_the_marks_say_was_not_played(door: Door) -> None:
    ws = await live(door)
    port, call = door.pcm_ports[0], door.agent.started[0]
    port.playout.write(np.ones(160 * 60, np.int16))
    play(port, 10)
    messages = [await ws.receive_json(timeout=5) for _ in range(11)]
    await echo(ws, messages[-1]["mark"], call)
    play(port, 30)
    for _ in range(33):
        await ws.receive_json(timeout=5)
    port.playout.pause()
    call.emit(OutputPaused("r"))
    # 40 frames went out, 10 were echoed, and another 10 may have been played since.
    assert port.playout.position == 20 * 160
    assert port.playout.queued_samples == 40 * 160
    assert (await ws.receive_json(timeout=5))["event"] == "clear"
    call.emit(OutputCleared("r"))
    assert (await ws.receive_json(timeout=5))["event"] == "clear"
    await ws.close()


async def test_the_end_waits_until_the_goodbye_was_played(door: Door) -> None:
    ws = await live(door)
    port, call = door.pcm_ports[0], door.agent.started[0]
    play(port, 10)
    messages = [await ws.receive_json(timeout=5) for _ in range(11)]
    await echo(ws, messages[-1]["mark"], call)
    play(port, 5)
    call.hangup("completed")
    messages = [await ws.receive_json(timeout=5) for _ in range(6)]
    assert messages[-1]["event"] == "mark"
    with pytest.raises(TimeoutError):
        await ws.receive(timeout=0.3)
    await ws.send_json({"event": "mark", "mark": messages[-1]["mark"]})
    _, code = await until_closed(ws)
    assert code == 1000


async def test_a_transfer_ends_our_part_so_that_the_twiml_goes_on(door: Door) -> None:
    ws = await live(door)
    door.agent.started[0].emit(TransferRequested("sales"))
    _, code = await until_closed(ws)
    assert code == 1000
    assert door.agent.started[0].end_reason == "transferred"
