"""The doors with the real media ports behind them: a real aiortc peer, and real PCM pacing."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import pytest
from aiohttp.test_utils import TestClient, TestServer
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack

from agent.config import Settings
from agent.events import UserTranscript
from agent.media.frames import Pcm
from agent.media.ticker import Ticker
from signaling.server import create_app
from signaling.tokens import load_keys
from tests.signaling.doubles import AgentDouble

Client = TestClient[Any, Any]


class Sink:
    """A call's side of a port that keeps what it hears."""

    def __init__(self) -> None:
        self.frames: list[Pcm] = []
        self.heard_second = asyncio.Event()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def on_audio(self, pcm: Pcm) -> None:
        self.frames.append(pcm)
        if len(self.frames) >= 50:
            self.heard_second.set()

    def on_dtmf(self, digit: str) -> None:
        raise AssertionError("nobody pressed a key")

    def on_stalled(self, silence_s: float) -> None: ...

    def on_resumed(self, silence_s: float) -> None: ...

    def on_closed(self, reason: str) -> None:
        self.closed.set_result(reason)


class Real:
    def __init__(self, agent: AgentDouble, client: Client, token: str) -> None:
        self.agent = agent
        self.client = client
        self.token = token
        self.headers = {"Authorization": f"Bearer {token}"}

    async def post(self, sdp: object) -> aiohttp.ClientResponse:
        return await self.client.post("/v1/calls", json={"sdp": sdp, "type": "offer"}, headers=self.headers)


@pytest.fixture
async def real(ticker: Ticker, web_root: Path) -> AsyncIterator[Real]:
    settings = Settings()
    agent = AgentDouble(settings, ticker)
    keys = load_keys(settings)
    async with TestClient(TestServer(create_app(agent, verifier=keys.verifier, web_root=web_root))) as client:
        yield Real(agent, client, keys.mint("alice"))
        for call in list(agent.live.values()):
            await call.finish()


@pytest.fixture
async def peer() -> AsyncIterator[RTCPeerConnection]:
    connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    yield connection
    await connection.close()


async def make_offer(peer: RTCPeerConnection) -> str:
    peer.addTrack(AudioStreamTrack())
    await peer.setLocalDescription(await peer.createOffer())
    return peer.localDescription.sdp


async def test_a_peer_calls_hears_events_types_and_hangs_up(real: Real, peer: RTCPeerConnection) -> None:
    channel = peer.createDataChannel("oai-events")
    inbox: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    channel.on("message", lambda text: inbox.put_nowait(json.loads(text)))
    response = await real.post(await make_offer(peer))
    assert response.status == 201, await response.text()
    answer = await response.json()
    await peer.setRemoteDescription(RTCSessionDescription(sdp=answer["sdp"], type=answer["type"]))
    call = real.agent.started[0]
    sink = Sink()
    call.port.attach(sink)
    async with asyncio.timeout(20):
        created = await inbox.get()
        assert created["type"] == "session.created"
        assert created["session"]["id"] == answer["id"]
        call.emit(UserTranscript("i1", "Grüße, 世界", final=True))
        heard = await inbox.get()
        assert heard["transcript"] == "Grüße, 世界"
        channel.send('{"type":"nonsense"}')
        error = await inbox.get()
        assert error["error"]["param"] == "type"
        channel.send('{"type":"session.update","session":{"voice":"bella"}}')
        assert (await inbox.get())["session"]["voice"] == "bella"
        await sink.heard_second.wait()
        ended = await real.client.delete(f"/v1/calls/{answer['id']}", headers=real.headers)
        assert ended.status == 204
        assert await call.wait_ended() == "caller hung up"


async def test_a_peer_that_goes_is_noticed(real: Real, peer: RTCPeerConnection) -> None:
    peer.createDataChannel("oai-events")
    answer = await (await real.post(await make_offer(peer))).json()
    await peer.setRemoteDescription(RTCSessionDescription(sdp=answer["sdp"], type=answer["type"]))
    sink = Sink()
    real.agent.started[0].port.attach(sink)
    async with asyncio.timeout(20):
        await sink.heard_second.wait()
        await peer.close()
        assert await sink.closed


async def test_a_candidate_for_a_section_that_is_not_there_is_refused(real: Real, peer: RTCPeerConnection) -> None:
    answer = await (await real.post(await make_offer(peer))).json()
    url = f"/v1/calls/{answer['id']}"
    good = {"candidate": "candidate:1 1 udp 2130706431 127.0.0.1 9 typ host", "sdpMid": "0", "sdpMLineIndex": 0}
    assert (await real.client.patch(url, json=good, headers=real.headers)).status == 204
    assert (await real.client.patch(url, json={"candidate": ""}, headers=real.headers)).status == 204
    for wrong in ({"sdpMid": "nine"}, {"sdpMid": None, "sdpMLineIndex": 40}, {"candidate": "candidate:1 1 udp"}):
        response = await real.client.patch(url, json=good | wrong, headers=real.headers)
        assert response.status == 422, await response.text()
        assert (await response.json(content_type=None))["field"] == "candidate"


MUTATIONS = [
    ("no audio", lambda sdp: sdp.replace("m=audio", "m=video")),
    ("no fingerprint", lambda sdp: without(sdp, "a=fingerprint")),
    ("no ufrag", lambda sdp: without(sdp, "a=ice-ufrag")),
    ("no password", lambda sdp: without(sdp, "a=ice-pwd")),
    ("no codecs", lambda sdp: without(sdp, "a=rtpmap")),
    ("bad rtpmap", lambda sdp: sdp.replace("a=rtpmap:", "a=rtpmap:x")),
    ("bad port", lambda sdp: sdp.replace("m=audio ", "m=audio 99999999999 ")),
    ("bad setup", lambda sdp: sdp.replace("a=setup:actpass", "a=setup:sideways")),
    ("bad fingerprint", lambda sdp: sdp.replace("a=fingerprint:sha-256 ", "a=fingerprint:sha-256 zz:")),
    ("plain RTP", lambda sdp: sdp.replace("UDP/TLS/RTP/SAVPF", "RTP/AVP")),
    ("nothing but a version", lambda sdp: "v=0\r\n"),
    ("no media", lambda sdp: sdp[: sdp.index("m=audio")]),
    ("cut in the middle of a line", lambda sdp: sdp[: sdp.index("m=audio") + 9]),
    ("10,000 sections", lambda sdp: sdp[: sdp.index("m=audio")] + "m=audio 9 UDP/TLS/RTP/SAVPF 0\r\n" * 2_000),
    ("binary in a line", lambda sdp: sdp.replace("a=mid:0", "a=mid:\x7f\x80")),
]


def without(sdp: str, prefix: str) -> str:
    return "".join(line for line in sdp.splitlines(keepends=True) if not line.startswith(prefix))


@pytest.mark.parametrize(("name", "mutate"), MUTATIONS, ids=[name for name, _ in MUTATIONS])
async def test_a_mutilated_offer_is_refused_or_answered_and_never_a_fault(
    real: Real, peer: RTCPeerConnection, name: str, mutate: Any
) -> None:
    response = await real.post(mutate(await make_offer(peer)))
    body = await response.json(content_type=None)
    assert response.status in (201, 422), body
    if response.status == 422:
        assert body["field"] == "sdp"
        assert not real.agent.started
    assert real.agent.metrics.value("voice_errors_total", part="signaling", type="ValueError") == 0
    second = RTCPeerConnection(RTCConfiguration(iceServers=[]))
    assert (await real.post(await make_offer(second))).status == 201
    await second.close()


async def test_pcm_goes_both_ways_through_the_real_port_at_the_pace_of_the_clock(real: Real) -> None:
    ws = await real.client.ws_connect("/v1/stream", params={"rate": "8000", "token": real.token})
    await real.agent.began.wait()
    call = real.agent.started[0]
    sink = Sink()
    call.port.attach(sink)
    tone = (8000 * np.sin(np.arange(8000) * 0.3)).astype("<i2")
    for start in range(0, 8000, 1600):
        await ws.send_bytes(tone[start : start + 1600].tobytes())
    call.port.playout.write(np.full(800, 1234, np.int16))
    call.port.playout.end()
    async with asyncio.timeout(20):
        played = b"".join([await ws.receive_bytes() for _ in range(5)])
        await sink.heard_second.wait()
    assert np.array_equal(np.frombuffer(played, "<i2"), np.full(800, 1234))
    heard = np.concatenate(sink.frames).astype(float)
    # A second of a sine of amplitude 8000, wherever its silence lies.
    assert np.sqrt(np.sum(heard**2) / 16_000) == pytest.approx(8000 / np.sqrt(2), rel=0.15)
    await ws.send_json({"type": "hangup"})
    assert json.loads(await ws.receive_str(timeout=5)) == {"type": "hangup", "reason": "caller hung up"}
    await ws.close()


async def test_a_feeder_faster_than_time_is_held_back_and_loses_nothing(real: Real) -> None:
    ws = await real.client.ws_connect("/v1/stream", params={"rate": "16000", "token": real.token})
    await real.agent.began.wait()
    sink = Sink()
    real.agent.started[0].port.attach(sink)
    marker = np.full(3200, 4000, "<i2").tobytes()
    for _ in range(15):
        await ws.send_bytes(marker)
    await ws.send_json({"type": "hangup"})
    async with asyncio.timeout(20):
        await real.agent.started[0].wait_ended()
    assert getattr(real.agent.started[0].port, "dropped_samples") == 0  # noqa: B009
    await ws.close()
