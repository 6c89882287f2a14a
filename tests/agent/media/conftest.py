"""A real WebRTC client (stock aiortc) and a sink that remembers, for tests of the ports."""

from __future__ import annotations

import asyncio
import fractions
import threading
from collections.abc import AsyncIterator, Callable, Iterator

import numpy as np
import pytest
from aiortc import MediaStreamTrack, RTCConfiguration, RTCDataChannel, RTCPeerConnection, RTCSessionDescription
from av import AudioFrame

from agent.config import MediaSettings
from agent.media.frames import Pcm
from agent.media.ticker import Ticker
from agent.media.webrtc import WebRtcPort


class Sink:
    """Remembers what a port delivers."""

    def __init__(self) -> None:
        self.frames: list[Pcm] = []
        self.digits: list[str] = []
        self.silences: list[tuple[str, float]] = []
        self.closed: list[str] = []
        self.ended = asyncio.Event()
        self._waiters: list[tuple[Callable[[], bool], asyncio.Event]] = []

    def on_audio(self, pcm: Pcm) -> None:
        self.frames.append(pcm)
        self._wake()

    def on_dtmf(self, digit: str) -> None:
        self.digits.append(digit)
        self._wake()

    def on_stalled(self, silence_s: float) -> None:
        self.silences.append(("stalled", silence_s))
        self._wake()

    def on_resumed(self, silence_s: float) -> None:
        self.silences.append(("resumed", silence_s))
        self._wake()

    def on_closed(self, reason: str) -> None:
        self.closed.append(reason)
        self.ended.set()

    def _wake(self) -> None:
        for condition, event in self._waiters:
            if condition():
                event.set()

    async def until(self, condition: Callable[[], bool], within_s: float = 20.0) -> None:
        event = asyncio.Event()
        self._waiters.append((condition, event))
        self._wake()
        async with asyncio.timeout(within_s):
            await event.wait()


class ToneTrack(MediaStreamTrack):
    """A 48 kHz tone, paced in real time."""

    kind = "audio"

    def __init__(self, hz: float = 440.0) -> None:
        super().__init__()
        self.hz = hz
        self._at = 0
        self._start: float | None = None

    async def recv(self) -> AudioFrame:
        loop = asyncio.get_running_loop()
        if self._start is None:
            self._start = loop.time()
        await asyncio.sleep(max(0.0, self._start + self._at / 48_000 - loop.time()))
        t = (np.arange(960) + self._at) / 48_000
        samples = (8000 * np.sin(2 * np.pi * self.hz * t)).astype(np.int16)
        frame = AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = 48_000, self._at, fractions.Fraction(1, 48_000)
        self._at += 960
        return frame


class Client:
    """A caller: stock aiortc, with the channel `oai-events`."""

    def __init__(self, *, audio: bool = True, channel: bool = True) -> None:
        self.pc = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.messages: list[str] = []
        self.message_came = asyncio.Event()
        self.track: asyncio.Future[MediaStreamTrack] = asyncio.get_running_loop().create_future()
        self.pc.on("track", lambda track: self.track.done() or self.track.set_result(track))
        self.channel: RTCDataChannel | None = None
        self.opened = asyncio.Event()
        if audio:
            self.pc.addTrack(ToneTrack())
        if channel:
            self.channel = self.pc.createDataChannel("oai-events")
            self.channel.on("message", self._message)
            self.channel.on("open", self.opened.set)

    def _message(self, text: str) -> None:
        self.messages.append(text)
        self.message_came.set()

    async def offer(self) -> str:
        await self.pc.setLocalDescription(await self.pc.createOffer())
        return self.pc.localDescription.sdp

    async def accept(self, answer: str) -> None:
        await self.pc.setRemoteDescription(RTCSessionDescription(sdp=answer, type="answer"))

    async def call(self, ticker: Ticker, settings: MediaSettings, on_message: Callable[[str], None]) -> WebRtcPort:
        port = await WebRtcPort.answer(await self.offer(), settings=settings, ticker=ticker, on_message=on_message)
        await self.accept(port.answer_sdp)
        return port

    def vanish(self) -> None:
        """Stop answering and sending, without goodbye: what a laptop lid does."""
        for transceiver in self.pc.getTransceivers():
            for protocol in transceiver.receiver.transport.transport._connection._protocols:
                protocol.transport.abort()


@pytest.fixture
def sink() -> Sink:
    return Sink()


@pytest.fixture
async def ticker() -> AsyncIterator[Ticker]:
    async with Ticker() as ticker:
        yield ticker


@pytest.fixture
def make_client() -> type[Client]:
    return Client


@pytest.fixture
def quick_settings() -> MediaSettings:
    """Consent that gives up in under a second."""
    return MediaSettings(consent_interval_s=0.1, consent_failures=4)


@pytest.fixture
def no_leaks() -> Iterator[None]:
    """No thread of a call is left; tasks are checked inside the loop by `settled`."""
    before = set(threading.enumerate())
    yield
    left = [t for t in threading.enumerate() if t not in before and t.is_alive() and not t.name.startswith("asyncio_")]
    assert not left


async def settle(allowed: set[asyncio.Task[object]]) -> list[asyncio.Task[object]]:
    """Tasks beyond `allowed` that are still there after the loop has had its turns."""
    left: list[asyncio.Task[object]] = []
    for _ in range(50):
        left = [task for task in asyncio.all_tasks() if task not in allowed]
        if not left:
            break
        await asyncio.sleep(0.01)
    return left


@pytest.fixture
def settled() -> Callable[[set[asyncio.Task[object]]], object]:
    return settle
