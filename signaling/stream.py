"""GET /v1/stream: a call over a WebSocket of plain PCM, both ways.

The shell only: what is said is decided in `stream_messages`, what waits to be sent in `outbox`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from agent.errors import CallRefused, NotInterruptible, ProtocolError, RejoinderError
from agent.events import CallEnded, CallEvent, OutputCleared, OutputPaused
from agent.nlu.hook import Session
from agent.observe.logs import CallLogger, call_logger
from signaling.admission import CallRegistry
from signaling.calls import new_call_id
from signaling.departure import departure
from signaling.fields import flag
from signaling.guards import bearer_token
from signaling.limits import TokenBucket
from signaling.outbox import BYTES_PER_SAMPLE, Outbox
from signaling.places import POLL_S, CallQueued, new_ticket
from signaling.ports import PEER_CLOSED, AgentLike, CallLike, MakePcmPort, PcmPortLike
from signaling.problems import HttpFault
from signaling.realtime import Message, encode
from signaling.realtime_session import MESSAGE_BURST, MESSAGES_PER_S, perform
from signaling.stream_messages import StreamTranslator, parse_stream_message, stream_error
from signaling.tokens import Claims, Verifier

__all__ = ["RATES_HZ", "StreamDoor", "expect_upgrade", "refuse_stream"]

RATES_HZ = (8000, 16_000, 24_000, 48_000)

MAX_AUDIO_MS = 200

MAX_MESSAGE_BYTES = 64 * 1024
"""200 ms at 48 kHz are 19,200 bytes; up to here the call says what is wrong, above it the frame is not even read."""

AUDIO_MESSAGES_PER_S = 1_000.0
"""A message of a millisecond. In smaller ones a second of audio costs the event loop of all calls half a second."""

CRUMBS_S = 0.02
"""Such a client is read in strides of this length, not message by message."""

HEARTBEAT_S = 20.0
"""Well above the few seconds for which back-pressure may leave a pong unread."""

SEND_BUFFER_BYTES = 32 * 1024
"""What kernel and transport may each hold; more would hide a slow client, and no barge-in could call it back."""

RECEIVE_BUFFER_BYTES = 32 * 1024
"""The kernel makes it twice that: 0.7 s at 48 kHz, and so little that a flood waits at the client that sends it."""

PROBE_S = 2.0
"""How often a client from which nothing is read is asked whether it is still there."""

SEND_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 2.0
CALL_END_TIMEOUT_S = 8.0

CLOSE_UNAUTHORIZED = 4401
"""401, in the range for private use (RFC 6455 section 7.4.2)."""

MAX_REASON_BYTES = 123
"""RFC 6455 section 5.5: a control frame holds 125 bytes, two are the code."""

_CLOSE_CODES = {
    "invalid_json": WSCloseCode.INVALID_TEXT,
    "invalid_value": WSCloseCode.INVALID_TEXT,
    "odd_length": WSCloseCode.INVALID_TEXT,
    "audio_too_long": WSCloseCode.MESSAGE_TOO_BIG,
    "unknown_type": WSCloseCode.UNSUPPORTED_DATA,
    "unsupported_rate": WSCloseCode.UNSUPPORTED_DATA,
    "rate_limited": WSCloseCode.POLICY_VIOLATION,
    "channel_not_allowed": WSCloseCode.POLICY_VIOLATION,
    "call_refused": WSCloseCode.TRY_AGAIN_LATER,
    "too_many_calls": WSCloseCode.TRY_AGAIN_LATER,
    "too_slow": WSCloseCode.TRY_AGAIN_LATER,
    "unauthorized": CLOSE_UNAUTHORIZED,
    "internal_error": WSCloseCode.INTERNAL_ERROR,
}

_FRAME_FAULTS: dict[int, tuple[str, str]] = {
    WSCloseCode.MESSAGE_TOO_BIG: ("too_long", f"a message may have at most {MAX_MESSAGE_BYTES} bytes"),
    WSCloseCode.PROTOCOL_ERROR: ("protocol_error", "that was no WebSocket frame (RFC 6455 section 5.2)"),
    WSCloseCode.INVALID_TEXT: ("invalid_text", "a text message must be UTF-8"),
}
"""What aiohttp finds wrong before there is a message: error code and text by close code."""

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
        self._registry = registry
        self._make_port = make_port
        self._heartbeat_s = heartbeat_s
        self._call_id = call_id

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Upgrade, then one call until either side ends it."""
        ws = expect_upgrade(request, heartbeat_s=self._heartbeat_s)
        await ws.prepare(request)
        _limit_buffers(request.transport)
        try:
            await self._serve(request, ws)
        except (CallRefused, ProtocolError) as error:
            await _refuse(ws, _refusal(error))
        except Exception as error:
            # Not for the middleware: a socket that has been upgraded cannot be answered by a problem document.
            self._agent.metrics.error("signaling", error)
            logger.exception("a stream failed")
            await _refuse(ws, stream_error("internal_error", "the server failed on this call"))
        finally:
            await _shut(request, ws)
        return ws

    async def _serve(self, request: web.Request, ws: web.WebSocketResponse) -> None:
        claims = self._verifier.verify(request.query.get("token") or bearer_token(request))
        ticket = new_ticket()
        try:
            while True:
                try:
                    begun = await self._begin(request, ws, claims, ticket)
                except CallQueued as queued:
                    await _tell(ws, {"type": "queued", "position": queued.position, "wait_s": queued.wait_s})
                    if not await _waits(ws):
                        return
                else:
                    break
        finally:
            self._registry.leave(claims, ticket)
        stream, call, port = begun
        try:
            await stream.run(call, port, request.transport)
        finally:
            self._registry.forget(call.id)

    async def _begin(
        self, request: web.Request, ws: web.WebSocketResponse, claims: Claims, ticket: str
    ) -> tuple[_Stream, CallLike, PcmPortLike]:
        rate_hz = _rate(request)
        record = flag(request.query.get("record"), "record")
        async with self._registry.starting(claims, "websocket", ticket) as place:
            stream = _Stream(ws, rate_hz)
            port = self._make_port(
                rate_hz,
                ticker=self._agent.ticker,
                send=stream.send_audio,
                silence_s=self._agent.settings.media.rtp_silence_s,
            )
            session = Session(
                id=self._call_id(request), channel="websocket", language=self._agent.settings.asr.language
            )
            places = self._registry.places
            observer = stream.on_event if places is None else places.watched(stream.on_event)
            try:
                call = self._agent.start_call(port=port, session=session, observer=observer, record=record)
            except BaseException:
                await port.close()
                raise
            self._registry.add(claims.subject, call, None, place=place)
            return stream, call, port


def expect_upgrade(request: web.Request, *, heartbeat_s: float = HEARTBEAT_S) -> web.WebSocketResponse:
    """The response that will upgrade this request. Raises HttpFault (426) when it asks for no WebSocket."""
    ws = _Socket(
        timeout=CLOSE_TIMEOUT_S,
        heartbeat=heartbeat_s,
        max_msg_size=MAX_MESSAGE_BYTES,
        writer_limit=SEND_BUFFER_BYTES // 4,
        compress=False,
    )
    if not ws.can_prepare(request):
        raise HttpFault(426, "upgrade_required", "this address speaks WebSocket only", headers={"Upgrade": "websocket"})
    return ws


async def refuse_stream(
    request: web.Request, ws: web.WebSocketResponse, error: CallRefused | ProtocolError
) -> web.StreamResponse:
    """Upgrade only to say why there is no call: a browser shows its page no HTTP status of a failed upgrade."""
    await ws.prepare(request)
    try:
        await _refuse(ws, _refusal(error))
    finally:
        await _shut(request, ws)
    return ws


def _refusal(error: CallRefused | ProtocolError) -> Message:
    if isinstance(error, CallRefused):
        return stream_error("call_refused", str(error)) | {"retry_after_s": error.retry_after_s}
    return stream_error(error.code, str(error), error.field)


async def _waits(ws: web.WebSocketResponse) -> bool:
    """Until it is time to ask again; False when the client left first. What it says meanwhile is heard by nobody."""
    clock = asyncio.get_running_loop().time
    bucket = TokenBucket(AUDIO_MESSAGES_PER_S, AUDIO_MESSAGES_PER_S / 4)
    until = clock() + POLL_S
    while (left_s := until - clock()) > 0:
        try:
            message = await ws.receive(left_s)
        except TimeoutError:
            return True
        if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
            return False
        if (wait_s := bucket.take(clock())) > 0:
            await asyncio.sleep(max(wait_s, CRUMBS_S))
    return True


def _rate(request: web.Request) -> int:
    text = request.query.get("rate", "16000")
    if text not in {str(rate) for rate in RATES_HZ}:
        raise ProtocolError(f"rate: expected {', '.join(map(str, RATES_HZ))}", field="rate", code="unsupported_rate")
    return int(text)


class _Stream:
    """One connected client. `run` owns the three tasks: reading, writing, and waiting for the call's end."""

    def __init__(self, ws: web.WebSocketResponse, rate_hz: int) -> None:
        self._ws = ws
        self._translator = StreamTranslator()
        self._outbox = Outbox(rate_hz)
        self._max_bytes = rate_hz * MAX_AUDIO_MS // 1000 * BYTES_PER_SAMPLE
        self._wake = asyncio.Event()
        self._bucket = TokenBucket(MESSAGES_PER_S, MESSAGE_BURST)
        self._audio = TokenBucket(AUDIO_MESSAGES_PER_S, AUDIO_MESSAGES_PER_S / 4)
        self._over = False
        self._held = asyncio.Event()
        """Set while the port has no room, so that nothing is read."""
        self._log: CallLogger | logging.Logger = logger

    # Called by the port and the call, on the event loop.

    def send_audio(self, pcm: bytes) -> None:
        """The port's outgoing frames."""
        if not self._over:
            self._outbox.put_audio(pcm)
            self._wake.set()

    def on_event(self, event: CallEvent) -> None:
        """The call's observer."""
        for message in self._translator.translate(event):
            text = self._encode(message)
            if isinstance(event, OutputCleared | OutputPaused):
                self._outbox.put_clear(text)
            else:
                self._outbox.put_message(text)
        if isinstance(event, CallEnded):
            self._over = True
        self._wake.set()

    def _encode(self, message: Message) -> str:
        try:
            return encode(message)
        except ValueError as error:
            self._log.warning("a message could not be sent", extra={"kind": message["type"]})
            return encode(stream_error("message_unsendable", f"{message['type']}: {error}"))

    # The call.

    async def run(self, call: CallLike, port: PcmPortLike, transport: asyncio.BaseTransport | None) -> None:
        """Until the client leaves, breaks the rules or falls behind, or the call ends. Leaves no task and no call.

        Whoever breaks the rules is told so first; the end of a call may take seconds.
        """
        self._log = call_logger(call.id, __name__)
        reading = self._task(self._read(call, port), call, "read")
        writing = self._task(self._write(), call, "write")
        leaving = self._task(self._leave(transport), call, "leave")
        ending: asyncio.Task[str] = asyncio.create_task(call.wait_ended(), name=f"{call.id} stream end")
        tasks: tuple[asyncio.Task[Any], ...] = (reading, writing, leaving, ending)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ending in done:
                # All that was said before the end goes out first, then the `hangup` message that closes the outbox.
                self._over = True
                self._wake.set()
                await asyncio.wait((writing,), timeout=SEND_TIMEOUT_S)
            for task in (reading, writing):
                if task.done() and (error := task.exception()) is not None:
                    raise error
        except ProtocolError as error:
            writing.cancel()
            await _tell(self._ws, stream_error(error.code, str(error), error.field))
            call.hangup(PEER_CLOSED)
            await _close(self._ws, _close_code(error.code), error.code)
        finally:
            call.hangup(PEER_CLOSED)
            for task in (reading, writing, leaving):
                task.cancel()
            await asyncio.wait((reading, writing, leaving), timeout=CLOSE_TIMEOUT_S)
            for task in (reading, writing, leaving):
                if task.done() and not task.cancelled():
                    # Retrieved, so that a second failure is not reported as one that nobody saw.
                    task.exception()
            await asyncio.wait((ending,), timeout=CALL_END_TIMEOUT_S)
            if not ending.done():
                self._log.error("the call did not end in time")
                ending.cancel()
            await port.close()
            if self._outbox.dropped_frames:
                self._log.info("a slow client lost audio", extra={"dropped_frames": self._outbox.dropped_frames})

    @staticmethod
    def _task(work: Coroutine[Any, Any, None], call: CallLike, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=f"{call.id} stream {name}")

    async def _read(self, call: CallLike, port: PcmPortLike) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            message = await self._ws.receive()
            match message.type:
                case WSMsgType.BINARY if message.data:
                    port.feed(self._checked(message.data))
                    self._held.set()
                    await port.ready()
                    if (wait_s := self._audio.take(clock())) > 0:
                        # Whoever cuts audio into crumbs waits like one who sends too much of it.
                        await asyncio.sleep(max(wait_s, CRUMBS_S))
                    self._held.clear()
                case WSMsgType.BINARY | WSMsgType.TEXT:
                    if self._bucket.take(clock()) > 0:
                        raise ProtocolError(
                            f"more than {MESSAGES_PER_S:.0f} text or empty messages a second", code="rate_limited"
                        )
                    if message.data:
                        self._obey(call, message.data)
                case _:
                    return

    async def _leave(self, transport: asyncio.BaseTransport | None) -> None:
        """Returns when the client has gone and reading cannot tell, since a flood of its own is in the way."""
        with departure(transport) as gone:
            while True:
                await self._held.wait()
                try:
                    async with asyncio.timeout(PROBE_S):
                        await gone.wait()
                except TimeoutError:
                    if self._held.is_set():
                        await self._probe()
                    continue
                if self._held.is_set():
                    return
                await asyncio.sleep(0)

    async def _probe(self) -> None:
        # The end of a stream comes behind all data that the client's kernel still holds and we do not take; but to a
        # socket that no program has any more its kernel answers at once (RFC 9293 section 3.10.7.4).
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._ws.ping()
        except (TimeoutError, ConnectionError):
            self._log.debug("a probe could not be sent")

    def _checked(self, pcm: bytes) -> bytes:
        if len(pcm) % BYTES_PER_SAMPLE:
            raise ProtocolError(
                f"audio: expected whole 16-bit samples, got {len(pcm)} bytes", field="audio", code="odd_length"
            )
        if len(pcm) > self._max_bytes:
            raise ProtocolError(
                f"audio: expected at most {MAX_AUDIO_MS} ms a message ({self._max_bytes} bytes), got {len(pcm)}",
                field="audio",
                code="audio_too_long",
            )
        return pcm

    def _obey(self, call: CallLike, text: str) -> None:
        command = parse_stream_message(text)
        try:
            perform(command, call)
        except ProtocolError:
            raise
        except RejoinderError as error:
            code = "not_interruptible" if isinstance(error, NotInterruptible) else "not_possible"
            self._outbox.put_message(encode(stream_error(code, str(error))))
            self._wake.set()

    async def _write(self) -> None:
        while True:
            item = self._outbox.pop()
            if self._outbox.overrun:
                raise ProtocolError("this client reads more slowly than the agent speaks", code="too_slow")
            if item is None:
                if self._over:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    if isinstance(item, str):
                        await self._ws.send_str(item)
                    else:
                        await self._ws.send_bytes(item)
            except TimeoutError as exc:
                raise ProtocolError("this client does not read", code="too_slow") from exc
            except ConnectionError:
                return


def _limit_buffers(transport: asyncio.Transport | None) -> None:
    if transport is None:
        return
    transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES)
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


class _Socket(web.WebSocketResponse):
    """A WebSocket that says in JSON why it closes, also where aiohttp closes it: on a message it did not read."""

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        """Our own closes carry a reason or follow the client's; one without is aiohttp's, from within `receive`."""
        fault = _FRAME_FAULTS.get(code)
        if fault is not None and not message and not self.closed:
            error, text = fault
            await _tell(self, stream_error(error, text))
            message = error.encode()
        return await super().close(code=code, message=message, drain=drain)


async def _refuse(ws: web.WebSocketResponse, message: Message) -> None:
    await _tell(ws, message)
    await _close(ws, _close_code(message["code"]), message["code"])


def _close_code(error: str) -> int:
    return int(_CLOSE_CODES.get(error, WSCloseCode.POLICY_VIOLATION))


async def _tell(ws: web.WebSocketResponse, message: Message) -> None:
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await ws.send_str(encode(message))
    except (TimeoutError, ConnectionError, RuntimeError):
        logger.debug("a refused client could not be told why")


async def _close(ws: web.WebSocketResponse, code: int, reason: str) -> None:
    try:
        async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
            await ws.close(code=code, message=reason.encode()[:MAX_REASON_BYTES])
    except (TimeoutError, ConnectionError):
        logger.debug("a client did not take the close frame")


async def _shut(request: web.Request, ws: web.WebSocketResponse) -> None:
    if not ws.closed:
        await _close(ws, WSCloseCode.OK, "")
    transport = request.transport
    if transport is not None and transport.get_write_buffer_size() > 0:
        # Whoever did not read for this long will not read now, and a closing transport would wait for them.
        transport.abort()
