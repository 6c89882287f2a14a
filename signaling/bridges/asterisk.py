"""GET /v1/asterisk: calls that Asterisk's WebSocket channel brings, each with a token."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging

from aiohttp import hdrs, web

from agent.errors import CallRefused, ProtocolError
from signaling.bridges.asterisk_messages import AsteriskDialect, MediaStart, parse_media_start
from signaling.bridges.parameters import take_parameters, telephone_session
from signaling.guards import bearer_token
from signaling.stream_host import StreamHost
from signaling.streaming import StreamedCall
from signaling.tokens import Claims, Verifier
from signaling.websocket import WebSocketWire, open_socket, serve_socket

__all__ = ["AsteriskDoor"]

SUBPROTOCOL = "media"
"""What websocket_client.conf names in `protocols`."""

START_TIMEOUT_S = 5.0
"""MEDIA_START comes right after the handshake."""

logger = logging.getLogger(__name__)


class AsteriskDoor:
    """The handler of /v1/asterisk."""

    def __init__(self, host: StreamHost, verifier: Verifier) -> None:
        self._host = host
        self._verifier = verifier
        self._settings = host.agent.settings.bridges

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Check the token, upgrade, then one call until either side ends it.

        Raises Unauthorized, and HttpFault (426) when no WebSocket is asked for.
        """
        claims = self._verifier.verify(_token(request))
        ws = open_socket(request, _say_nothing, protocols=(SUBPROTOCOL,))

        async def serve(request: web.Request, wire: WebSocketWire) -> None:
            await self._serve(request, wire, claims)

        return await serve_socket(request, ws, _say_nothing, serve, self._host.agent.metrics)

    async def _serve(self, request: web.Request, wire: WebSocketWire, claims: Claims) -> None:
        told = take_parameters(request.query, self._settings.parameters, "query")
        start = await _await_start(wire)
        session = telephone_session(told, self._host.agent.settings.asr.language)
        dialect = AsteriskDialect(start)
        stream = StreamedCall(wire, dialect, start.format.rate_hz, opening=(dialect.answer(),), leaves_on_transfer=True)
        logger.info("a call came from Asterisk", extra={"call_id": session.id, "channel_id": start.channel})
        await self._host.carry(stream, start.format.rate_hz, claims, session)


def _token(request: web.Request) -> str:
    """From the query, or the password that websocket_client.conf sends (RFC 7617), or a bearer token."""
    scheme, _, encoded = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
        except (binascii.Error, ValueError):
            return ""
    return request.query.get("token") or bearer_token(request)


async def _await_start(wire: WebSocketWire) -> MediaStart:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            message = await wire.receive()
    except TimeoutError as exc:
        raise ProtocolError(
            f"event: expected MEDIA_START within {START_TIMEOUT_S:.0f} s", field="event", code="start_missing"
        ) from exc
    if message is None:
        raise ProtocolError("event: the connection closed before MEDIA_START", field="event", code="start_missing")
    return parse_media_start(message)


def _say_nothing(error: CallRefused | ProtocolError) -> str | None:
    # Asterisk takes commands only; the close frame carries the code, the log the sentence.
    logger.info("a call from Asterisk was refused: %s", error)
    return None
