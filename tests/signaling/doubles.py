"""Scripted stand-ins for what lies behind signaling: the agent, its calls, and media ports. They record and obey."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from agent.config import MediaSettings, Settings
from agent.errors import CallGone, CallRefused, MediaError, NegotiationError
from agent.events import CallEnded, CallEvent, Observer
from agent.media.frames import SPEAKING_HZ
from agent.media.playout import Playout
from agent.media.port import MediaPort, MediaSink, ResumablePort
from agent.media.ticker import Ticker
from agent.nlu.hook import Session
from agent.observe.metrics import Metrics

ANSWER_SDP = "v=0\r\no=- 1 1 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\n"
OFFER_SDP = "v=0\r\no=- 2 2 IN IP4 127.0.0.1\r\ns=-\r\nt=0 0\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\n"


class PortDouble:
    """A media port without media."""

    def __init__(self, rate_hz: int = SPEAKING_HZ) -> None:
        self.sample_rate_hz = rate_hz
        self.playout = Playout(rate_hz)
        self.closed = 0

    def attach(self, sink: MediaSink) -> None:
        self.sink = sink

    def adopt(self, playout: Playout) -> None:
        self.playout = playout

    def send_dtmf(self, digits: str) -> None:
        self.digits = digits

    async def close(self) -> None:
        self.closed += 1


class WebRtcDouble(PortDouble):
    """What `WebRtcPort.answer` gives."""

    answer_sdp = ANSWER_SDP

    def __init__(self, on_message: Callable[[str], None]) -> None:
        super().__init__()
        self.on_message = on_message
        self.candidates: list[tuple[str | None, str | None, int | None]] = []
        self.sent: list[str] = []

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_mline_index: int | None) -> None:
        if candidate and not candidate.startswith("candidate:"):
            raise NegotiationError("candidate: expected an ICE candidate line")
        self.candidates.append((candidate, sdp_mid, sdp_mline_index))

    def send_message(self, text: str) -> None:
        self.sent.append(text)


class Negotiator:
    """Stands for `WebRtcPort.answer`. `gate`, when given, holds each negotiation until it is set."""

    def __init__(self) -> None:
        self.ports: list[WebRtcDouble] = []
        self.gate: asyncio.Event | None = None
        self.begun = asyncio.Event()
        self.cancelled = asyncio.Event()
        self.error: Exception | None = None

    async def __call__(
        self, sdp: str, *, settings: MediaSettings, ticker: Ticker, on_message: Callable[[str], None]
    ) -> WebRtcDouble:
        self.begun.set()
        if self.error is not None:
            raise self.error
        if self.gate is not None:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
        if "m=audio" not in sdp:
            raise NegotiationError("sdp: expected an audio section")
        port = WebRtcDouble(on_message)
        self.ports.append(port)
        return port


class PcmDouble(PortDouble):
    """Records what it is fed; plays what the test gives to `play`."""

    def __init__(
        self, rate_hz: int, *, ticker: Ticker, send: Callable[[bytes], None], silence_s: float | None = None
    ) -> None:
        super().__init__(rate_hz)
        self.play = send
        self.fed = bytearray()
        self.messages = 0
        self.room = asyncio.Event()
        self.room.set()

    def feed(self, data: bytes) -> None:
        self.fed += data
        self.messages += 1

    async def ready(self) -> None:
        await self.room.wait()


class CallDouble:
    """Records what it was told; `emit` plays the conversation."""

    def __init__(self, agent: AgentDouble, port: MediaPort, session: Session, observer: Observer) -> None:
        self.agent = agent
        self.port = port
        self.session = session
        self.id = session.id
        self.voice = "heart"
        self.language = session.language
        self.emit: Callable[[CallEvent], None] = observer
        self.told: list[tuple[str, Any]] = []
        self.failure: Exception | None = None
        self.end_reason: str | None = None
        self.resume_s = 30.0
        self.resumable = False
        self.suspended = False
        self.lingers = False
        """True: a hang-up does not end the call until `finish`."""
        self._ended = asyncio.Event()
        self._ending: asyncio.Task[None] | None = None

    def _tell(self, what: str, value: Any = None) -> None:
        if self.failure is not None:
            raise self.failure
        self.told.append((what, value))

    def type_text(self, text: str) -> None:
        self._tell("text", text)

    def press(self, digit: str) -> None:
        self._tell("press", digit)

    def cancel_reply(self) -> None:
        self._tell("cancel")

    def respond(self, data: Mapping[str, object] | None = None) -> None:
        self._tell("respond", data)

    def configure(
        self, *, voice: str | None = None, language: str | None = None, silence_ms: int | None = None
    ) -> None:
        self._tell("configure", (voice, language, silence_ms))
        self.voice = voice or self.voice
        self.language = language or self.language

    def hangup(self, reason: str) -> None:
        if self.end_reason is None:
            self.end_reason = reason
            if not self.lingers:
                self._ending = asyncio.get_running_loop().create_task(self.finish())

    def allow_resume(self) -> float:
        self.resumable = self.resume_s > 0
        return self.resume_s

    def forbid_resume(self, reason: str) -> None:
        self.resumable = False
        if self.suspended:
            self.hangup(reason)

    def on_suspended(self, reason: str, unheard_s: float) -> None:
        self._tell("suspended", (reason, unheard_s))

    def on_reconnected(self) -> None:
        self._tell("reconnected")

    def attach_port(self, port: ResumablePort) -> None:
        if self.end_reason is not None or not self.resumable:
            raise CallGone("over")
        if port.sample_rate_hz != self.port.sample_rate_hz:
            raise MediaError("another rate")
        port.adopt(self.port.playout)
        self.port = port

    async def finish(self) -> None:
        self.end_reason = self.end_reason or "completed"
        await self.port.close()
        self.emit(CallEnded(self.end_reason))
        self._ended.set()
        self.agent.live.pop(self.id, None)

    async def wait_ended(self) -> str:
        await self._ended.wait()
        assert self.end_reason is not None
        return self.end_reason


class AgentDouble:
    """Takes calls until told not to."""

    def __init__(self, settings: Settings, ticker: Ticker) -> None:
        self.settings = settings
        self.ticker = ticker
        self.metrics = Metrics()
        self.ready = True
        self.not_ready_reason = ""
        self.drain_begun = asyncio.Event()
        self.live: dict[str, CallDouble] = {}
        self.started: list[CallDouble] = []
        self.refuse: Exception | None = None
        self.recorded = False
        """Whether the newest call asked for a recording."""
        self.began = asyncio.Event()

    @property
    def draining(self) -> bool:
        return self.drain_begun.is_set()

    @draining.setter
    def draining(self, value: bool) -> None:
        if value:
            self.drain_begun.set()

    @property
    def calls(self) -> dict[str, CallDouble]:
        return self.live

    def start_call(self, *, port: MediaPort, session: Session, observer: Observer, record: bool = False) -> CallDouble:
        self.recorded = record
        if self.refuse is not None:
            raise self.refuse
        if self.draining:
            raise CallRefused("draining")
        call = CallDouble(self, port, session, observer)
        self.live[call.id] = call
        self.started.append(call)
        self.began.set()
        return call


def silence(rate_hz: int, ms: int) -> bytes:
    return np.zeros(rate_hz * ms // 1000, "<i2").tobytes()
