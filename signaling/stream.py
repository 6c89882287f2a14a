"""GET /v1/stream: a call over a WebSocket of plain PCM, both ways.

The door only: how a stream is carried is decided in `streaming`, what is said in `stream_messages`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from aiohttp import web

from agent.errors import CallRefused, ProtocolError
from agent.events import CallEvent
from agent.nlu.hook import Session
from signaling.admission import CallRegistry
from signaling.calls import new_call_id
from signaling.commands import ClientCommand
from signaling.fields import flag
from signaling.guards import bearer_token
from signaling.outbox import BYTES_PER_SAMPLE
from signaling.places import POLL_S, CallQueued, new_ticket
from signaling.ports import AgentLike, MakePcmPort
from signaling.realtime import Message, encode
from signaling.stream_host import StreamHost
from signaling.stream_messages import StreamTranslator, parse_stream_message, stream_error
from signaling.streaming import Audio, StreamedCall
from signaling.tokens import Verifier
from signaling.websocket import HEARTBEAT_S, WebSocketWire, open_socket, serve_socket, shut

__all__ = ["MAX_AUDIO_MS", "RATES_HZ", "StreamDoor", "checked_audio", "expect_upgrade", "refuse_stream"]

RATES_HZ = (8000, 16_000, 24_000, 48_000)

MAX_AUDIO_MS = 200

logger = logging.getLogger(__name__)


class StreamDoor:
    """The handler of /v1/stream."""

    def __init__(
        self,
        agent: AgentLike,
        *,
        verifier: Verifier,
        registry: CallRegistry,
        make_port: MakePcmPort,
        heartbeat_s: float = HEARTBEAT_S,
        call_id: Callable[[web.Request], str] = new_call_id,
    ) -> None:
        self._agent = agent
        self._verifier = verifier
        self._host = StreamHost(agent, registry, make_port)
        self._heartbeat_s = heartbeat_s
        self._call_id = call_id

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Upgrade, then one call until either side ends it."""
        ws = expect_upgrade(request, heartbeat_s=self._heartbeat_s)
        return await serve_socket(request, ws, _say_error, self._serve, self._agent.metrics)

    async def _serve(self, request: web.Request, wire: WebSocketWire) -> None:
        claims = self._verifier.verify(request.query.get("token") or bearer_token(request))
        rate_hz = _rate(request)
        record = flag(request.query.get("record"), "record")
        session = Session(id=self._call_id(request), channel="websocket", language=self._agent.settings.asr.language)
        ticket = new_ticket()
        try:
            while True:
                stream = StreamedCall(wire, _PcmDialect(rate_hz), rate_hz)
                try:
                    return await self._host.carry(stream, rate_hz, claims, session, record=record, ticket=ticket)
                except CallQueued as queued:
                    await wire.say(encode({"type": "queued", "position": queued.position, "wait_s": queued.wait_s}))
                if not await wire.waits(POLL_S):
                    return None
        finally:
            self._host.registry.leave(claims, ticket)


def expect_upgrade(request: web.Request, *, heartbeat_s: float = HEARTBEAT_S) -> web.WebSocketResponse:
    """The response that will upgrade this request. Raises HttpFault (426) when it asks for no WebSocket."""
    return open_socket(request, _say_error, heartbeat_s=heartbeat_s)


async def refuse_stream(
    request: web.Request, ws: web.WebSocketResponse, error: CallRefused | ProtocolError
) -> web.StreamResponse:
    """Upgrade only to say why there is no call: a browser shows its page no HTTP status of a failed upgrade."""
    await ws.prepare(request)
    try:
        await WebSocketWire(request, ws, _say_error).refuse(error)
    finally:
        await shut(request, ws)
    return ws


def _say_error(error: CallRefused | ProtocolError) -> str:
    if isinstance(error, CallRefused):
        return encode(stream_error("call_refused", str(error)) | {"retry_after_s": error.retry_after_s})
    return encode(stream_error(error.code, str(error), error.field))


def _rate(request: web.Request) -> int:
    text = request.query.get("rate", "16000")
    if text not in {str(rate) for rate in RATES_HZ}:
        raise ProtocolError(f"rate: expected {', '.join(map(str, RATES_HZ))}", field="rate", code="unsupported_rate")
    return int(text)


def checked_audio(pcm: bytes, rate_hz: int) -> bytes:
    """Mono int16 of at most 200 ms; raises ProtocolError, code `odd_length` or `audio_too_long`."""
    if len(pcm) % BYTES_PER_SAMPLE:
        raise ProtocolError(
            f"audio: expected whole 16-bit samples, got {len(pcm)} bytes", field="audio", code="odd_length"
        )
    max_bytes = rate_hz * MAX_AUDIO_MS // 1000 * BYTES_PER_SAMPLE
    if len(pcm) > max_bytes:
        raise ProtocolError(
            f"audio: expected at most {MAX_AUDIO_MS} ms a message ({max_bytes} bytes), got {len(pcm)}",
            field="audio",
            code="audio_too_long",
        )
    return pcm


class _PcmDialect:
    """Implements Dialect: binary messages are PCM, text messages JSON (docs/api.md)."""

    held = False
    unplayed = 0

    def __init__(self, rate_hz: int) -> None:
        self._rate_hz = rate_hz
        self._translator = StreamTranslator()

    def read(self, message: bytes | str) -> Audio | ClientCommand:
        if isinstance(message, bytes):
            return Audio(checked_audio(message, self._rate_hz))
        return parse_stream_message(message)

    def speak(self, pcm: bytes) -> Sequence[bytes | str]:
        return (pcm,)

    def tell(self, event: CallEvent) -> Sequence[str]:
        return [_encode(message) for message in self._translator.translate(event)]

    def fault(self, code: str, message: str) -> Sequence[str]:
        return (encode(stream_error(code, message)),)

    def keep_alive(self) -> Sequence[bytes | str]:
        return ()

    def ask_played(self) -> Sequence[bytes | str]:
        return ()

    def farewell(self) -> Sequence[bytes | str]:
        return ()


def _encode(message: Message) -> str:
    try:
        return encode(message)
    except ValueError as error:
        logger.warning("a message could not be sent", extra={"kind": message["type"]})
        return encode(stream_error("message_unsendable", f"{message['type']}: {error}"))
