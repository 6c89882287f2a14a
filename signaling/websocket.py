"""A WebSocket as a `Wire`: bounded buffers, pings, and an error said before each close. Shell only."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import WSCloseCode, WSMsgType, web

from agent.errors import CallRefused, ProtocolError
from agent.observe.metrics import Metrics
from signaling.limits import TokenBucket
from signaling.problems import HttpFault

__all__ = [
    "HEARTBEAT_S",
    "MAX_MESSAGE_BYTES",
    "SayError",
    "WebSocketWire",
    "limit_buffers",
    "open_socket",
    "serve_socket",
    "shut",
]

MAX_MESSAGE_BYTES = 64 * 1024
"""200 ms at 48 kHz are 19,200 bytes; up to here the call says what is wrong, above it the frame is not even read."""

HEARTBEAT_S = 20.0
"""Well above the few seconds for which back-pressure may leave a pong unread."""

SEND_BUFFER_BYTES = 32 * 1024
"""What kernel and transport may each hold; more would hide a slow client, and no barge-in could call it back."""

RECEIVE_BUFFER_BYTES = 32 * 1024
"""The kernel makes it twice that: 0.7 s at 48 kHz, and so little that a flood waits at the client that sends it."""

CLOSE_TIMEOUT_S = 2.0

UNHEARD_PER_S = 1_000.0
UNHEARD_STRIDE_S = 0.02
"""Messages of a client that waits; one that sends more is read in strides."""

CLOSE_UNAUTHORIZED = 4401
"""401, in the range for private use (RFC 6455 section 7.4.2)."""

MAX_REASON_BYTES = 123
"""RFC 6455 section 5.5: a control frame holds 125 bytes, two are the code."""

_CLOSE_CODES: Mapping[str, int] = {
    "invalid_json": WSCloseCode.INVALID_TEXT,
    "invalid_value": WSCloseCode.INVALID_TEXT,
    "odd_length": WSCloseCode.INVALID_TEXT,
    "audio_too_long": WSCloseCode.MESSAGE_TOO_BIG,
    "unknown_type": WSCloseCode.UNSUPPORTED_DATA,
    "unsupported_rate": WSCloseCode.UNSUPPORTED_DATA,
    "unsupported_format": WSCloseCode.UNSUPPORTED_DATA,
    "rate_limited": WSCloseCode.POLICY_VIOLATION,
    "channel_not_allowed": WSCloseCode.POLICY_VIOLATION,
    "call_refused": WSCloseCode.TRY_AGAIN_LATER,
    "too_many_calls": WSCloseCode.TRY_AGAIN_LATER,
    "too_slow": WSCloseCode.TRY_AGAIN_LATER,
    "unauthorized": CLOSE_UNAUTHORIZED,
    "internal_error": WSCloseCode.INTERNAL_ERROR,
}

_FRAME_FAULTS: Mapping[int, tuple[str, str]] = {
    WSCloseCode.MESSAGE_TOO_BIG: ("too_long", f"a message may have at most {MAX_MESSAGE_BYTES} bytes"),
    WSCloseCode.PROTOCOL_ERROR: ("protocol_error", "that was no WebSocket frame (RFC 6455 section 5.2)"),
    WSCloseCode.INVALID_TEXT: ("invalid_text", "a text message must be UTF-8"),
}
"""What aiohttp finds wrong before there is a message: error code and text by close code."""

SayError = Callable[[CallRefused | ProtocolError], str | None]
"""An error in the words of the protocol spoken, or None where that has no words for errors."""

logger = logging.getLogger(__name__)


def open_socket(
    request: web.Request,
    say_error: SayError,
    *,
    heartbeat_s: float = HEARTBEAT_S,
    protocols: tuple[str, ...] = (),
) -> web.WebSocketResponse:
    """The response that will upgrade this request. Raises HttpFault (426) when it asks for no WebSocket.

    Args:
        say_error: what is said before a close.
        protocols: subprotocols (RFC 6455 section 1.9) that may be asked for.
    """
    ws = _Socket(
        say_error,
        timeout=CLOSE_TIMEOUT_S,
        heartbeat=heartbeat_s,
        max_msg_size=MAX_MESSAGE_BYTES,
        writer_limit=SEND_BUFFER_BYTES // 4,
        compress=False,
        protocols=protocols,
    )
    if not ws.can_prepare(request):
        raise HttpFault(426, "upgrade_required", "this address speaks WebSocket only", headers={"Upgrade": "websocket"})
    return ws


async def serve_socket(
    request: web.Request,
    ws: web.WebSocketResponse,
    say_error: SayError,
    serve: Callable[[web.Request, WebSocketWire], Awaitable[None]],
    metrics: Metrics,
) -> web.StreamResponse:
    """Upgrade, serve, close. What `serve` raises is told over the socket: no problem document can be sent any more."""
    await ws.prepare(request)
    limit_buffers(request.transport)
    wire = WebSocketWire(request, ws, say_error)
    try:
        await serve(request, wire)
    except (CallRefused, ProtocolError) as error:
        await wire.refuse(error)
    except Exception as error:
        metrics.error("signaling", error)
        logger.exception("a stream failed")
        await wire.refuse(ProtocolError("the server failed on this call", code="internal_error"))
    finally:
        await shut(request, ws)
    return ws


class WebSocketWire:
    """Implements Wire on an upgraded socket."""

    def __init__(self, request: web.Request, ws: web.WebSocketResponse, say_error: SayError) -> None:
        self._request = request
        self._ws = ws
        self._say_error = say_error

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        return self._request.transport

    async def receive(self) -> bytes | str | None:
        """A binary message as bytes, a text message as str."""
        message = await self._ws.receive()
        if message.type in (WSMsgType.BINARY, WSMsgType.TEXT):
            data: bytes | str = message.data
            return data
        return None

    async def send(self, item: bytes | str) -> None:
        """Bytes as a binary message, str as a text message."""
        if isinstance(item, str):
            await self._ws.send_str(item)
        else:
            await self._ws.send_bytes(item)

    async def probe(self) -> None:
        await self._ws.ping()

    async def say(self, text: str) -> None:
        """A text message to a client that has no call yet; one that does not take it in time is not waited for."""
        await _tell(self._ws, text)

    async def waits(self, seconds: float) -> bool:
        """Let `seconds` pass; False when the client left first. What it says meanwhile is heard by nobody."""
        clock = asyncio.get_running_loop().time
        bucket = TokenBucket(UNHEARD_PER_S, UNHEARD_PER_S / 4)
        until = clock() + seconds
        while (left_s := until - clock()) > 0:
            try:
                message = await self._ws.receive(left_s)
            except TimeoutError:
                return True
            if message.type not in (WSMsgType.BINARY, WSMsgType.TEXT):
                return False
            if (wait_s := bucket.take(clock())) > 0:
                await asyncio.sleep(max(wait_s, UNHEARD_STRIDE_S))
        return True

    async def tell(self, error: CallRefused | ProtocolError) -> None:
        """Also for a call that is refused."""
        await _tell(self._ws, self._say_error(error))

    async def close(self, error: CallRefused | ProtocolError | None = None) -> None:
        code = "" if error is None else "call_refused" if isinstance(error, CallRefused) else error.code
        await _close(self._ws, close_code(code), code)

    async def refuse(self, error: CallRefused | ProtocolError) -> None:
        """Say why there is no call, and close."""
        await self.tell(error)
        await self.close(error)


def close_code(error: str) -> int:
    """The close code (RFC 6455 section 7.4) for an error code; 1000 for none."""
    return int(_CLOSE_CODES.get(error, WSCloseCode.POLICY_VIOLATION)) if error else int(WSCloseCode.OK)


def limit_buffers(transport: asyncio.Transport | None) -> None:
    """Keep little on the way, so that a slow client shows and a flood stays with its sender."""
    if transport is None:
        return
    transport.set_write_buffer_limits(high=SEND_BUFFER_BYTES)
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)


class _Socket(web.WebSocketResponse):
    """A WebSocket that says why it closes, also where aiohttp closes it: on a message it did not read."""

    def __init__(
        self,
        say_error: SayError,
        *,
        timeout: float,
        heartbeat: float,
        max_msg_size: int,
        writer_limit: int,
        compress: bool,
        protocols: tuple[str, ...],
    ) -> None:
        super().__init__(
            timeout=timeout,
            heartbeat=heartbeat,
            max_msg_size=max_msg_size,
            writer_limit=writer_limit,
            compress=compress,
            protocols=protocols,
        )
        self._say_error = say_error

    async def close(self, *, code: int = WSCloseCode.OK, message: bytes = b"", drain: bool = True) -> bool:
        """Our own closes carry a reason or follow the client's; one without is aiohttp's, from within `receive`."""
        fault = _FRAME_FAULTS.get(code)
        if fault is not None and not message and not self.closed:
            error, text = fault
            await _tell(self, self._say_error(ProtocolError(text, code=error)))
            message = error.encode()
        return await super().close(code=code, message=message, drain=drain)


async def _tell(ws: web.WebSocketResponse, text: str | None) -> None:
    if text is None:
        return
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await ws.send_str(text)
    except (TimeoutError, ConnectionError, RuntimeError):
        logger.debug("a refused client could not be told why")


async def _close(ws: web.WebSocketResponse, code: int, reason: str) -> None:
    try:
        async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
            await ws.close(code=code, message=reason.encode()[:MAX_REASON_BYTES])
    except (TimeoutError, ConnectionError):
        logger.debug("a client did not take the close frame")


async def shut(request: web.Request, ws: web.WebSocketResponse) -> None:
    """Close what is not closed, and let nothing linger."""
    if not ws.closed:
        await _close(ws, WSCloseCode.OK, "")
    transport = request.transport
    if transport is not None and transport.get_write_buffer_size() > 0:
        # Whoever did not read for this long will not read now, and a closing transport would wait for them.
        transport.abort()
