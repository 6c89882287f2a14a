"""GET /v1/twilio: calls that Twilio, or a vendor that speaks its shape, brings over a WebSocket."""

from __future__ import annotations

import asyncio
import logging

from aiohttp import hdrs, web

from agent.errors import CallRefused, ProtocolError
from signaling.bridges.parameters import take_parameters, telephone_session
from signaling.bridges.twilio_messages import RATE_HZ, Start, TwilioDialect, parse_start
from signaling.bridges.twilio_signature import signed
from signaling.problems import HttpFault
from signaling.stream_host import StreamHost
from signaling.streaming import StreamedCall
from signaling.tokens import Claims
from signaling.websocket import WebSocketWire, open_socket, serve_socket

__all__ = ["TwilioDoor"]

SIGNATURE = "X-Twilio-Signature"

START_TIMEOUT_S = 5.0
"""connected and start come at once, one behind the other."""

CLAIMS = Claims(subject="twilio", expires_at=0, token_id="")
"""Whose calls these are: the signature knows one account."""

logger = logging.getLogger(__name__)


class TwilioDoor:
    """The handler of /v1/twilio."""

    def __init__(self, host: StreamHost, auth_token: str) -> None:
        self._host = host
        self._auth_token = auth_token
        self._settings = host.agent.settings.bridges

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Check the signature, upgrade, then one call until either side ends it.

        Raises HttpFault: 403 for a wrong signature, 426 when no WebSocket is asked for.
        """
        if not signed(self._auth_token, self._url(request), request.headers.get(SIGNATURE, "")):
            raise HttpFault(
                403,
                "signature_invalid",
                f"{SIGNATURE}: expected the account's signature of this address (bridges.twilio_url is what it covers)",
                field=SIGNATURE,
            )
        ws = open_socket(request, _say_nothing)
        return await serve_socket(request, ws, _say_nothing, self._serve, self._host.agent.metrics)

    def _url(self, request: web.Request) -> str:
        """The address as the TwiML names it; behind a proxy only the setting knows it."""
        query = f"?{request.rel_url.raw_query_string}" if request.rel_url.raw_query_string else ""
        base = self._settings.twilio_url
        if not base:
            base = f"wss://{request.headers.get(hdrs.HOST, '')}{request.rel_url.raw_path}"
        return base + query

    async def _serve(self, _request: web.Request, wire: WebSocketWire) -> None:
        start = await _await_start(wire)
        told = take_parameters(start.parameters, self._settings.parameters, "start.customParameters")
        session = telephone_session(told, self._host.agent.settings.asr.language)
        stream = StreamedCall(wire, TwilioDialect(start), RATE_HZ, leaves_on_transfer=True)
        await self._host.carry(stream, RATE_HZ, CLAIMS, session)


async def _await_start(wire: WebSocketWire) -> Start:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            for _ in range(2):
                message = await wire.receive()
                if message is None:
                    break
                if (start := parse_start(message)) is not None:
                    return start
    except TimeoutError as exc:
        raise ProtocolError(
            f"event: expected start within {START_TIMEOUT_S:.0f} s", field="event", code="start_missing"
        ) from exc
    raise ProtocolError("event: expected start", field="event", code="start_missing")


def _say_nothing(error: CallRefused | ProtocolError) -> str | None:
    # The protocol has no message for it; the close frame carries the code, the log the sentence.
    logger.info("a Twilio stream was refused: %s", error)
    return None
