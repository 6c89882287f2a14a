"""Calls over WebRTC: an offer in and an answer out, trickled candidates, hang-up.

The data channel's events are in `realtime`; who may call is decided in `admission`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Annotated, Any, Literal

from aiohttp import hdrs, web
from aiohttp.http_exceptions import ContentEncodingError
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agent.errors import CallGone, CallRefused, MediaError, NegotiationError, ProtocolError
from agent.nlu.hook import Session
from signaling.admission import CallRegistry, OwnedCall, resume_expired
from signaling.fields import Caller, LanguageTag, flag, json_object, validate
from signaling.guards import bearer_token
from signaling.ice import IceServers
from signaling.places import QueueTicket
from signaling.ports import CALLER_HUNG_UP, NOT_CONNECTED, AgentLike, AnswerOffer, CallLike, WebRtcPortLike
from signaling.problems import HttpFault
from signaling.realtime_session import RealtimeSession
from signaling.resume import Connection, ResumeToken, Resumption
from signaling.tokens import Claims, Verifier

__all__ = ["WebRtcCalls", "new_call_id", "read_body"]

NEGOTIATION_TIMEOUT_S = 10.0
"""Gathering waits up to 1 s for a dead STUN or TURN server; ten times that is a fault."""

BODY_TIMEOUT_S = 10.0
"""10 KB take 3 s on the slowest mobile link; who needs longer holds the connection on purpose."""

PORT_CLOSE_TIMEOUT_S = 2.0
"""What the contract of MediaPort.close promises."""

MAX_SDP_CHARS = 128 * 1024
"""An offer is about 10 KB; a big conference's is 60 KB."""

MAX_CANDIDATE_CHARS = 1024

logger = logging.getLogger(__name__)


class _Offer(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    sdp: Annotated[str, StringConstraints(min_length=1, max_length=MAX_SDP_CHARS)]
    type: Literal["offer"] = "offer"
    channel: Literal["browser", "widget"] = "browser"
    caller: Caller | None = None
    language: LanguageTag | None = None
    resumable: bool = False
    """Closing the connection is not hanging up: the call waits for its caller to come back."""
    resume: ResumeToken | None = None
    """Go on with that call; its channel, caller and language stay as they are."""
    record: bool = False
    queue: QueueTicket | None = None
    """The ticket of a caller who has waited so far."""


class _Candidate(BaseModel):
    # A browser's RTCIceCandidate serialises with usernameFragment and, in time, with more: unknown members pass.
    model_config = ConfigDict(extra="ignore", strict=True)

    candidate: Annotated[str, StringConstraints(max_length=MAX_CANDIDATE_CHARS)] | None
    sdp_mid: Annotated[str, StringConstraints(max_length=64)] | None = Field(None, alias="sdpMid")
    sdp_mline_index: Annotated[int, Field(ge=0, le=65535)] | None = Field(None, alias="sdpMLineIndex")


def new_call_id(_request: web.Request | None = None) -> str:
    """An id that cannot be guessed: 96 random bits."""
    return f"call_{secrets.token_hex(12)}"


class WebRtcCalls:
    """The handlers of /v1/calls."""

    def __init__(
        self,
        agent: AgentLike,
        *,
        verifier: Verifier,
        registry: CallRegistry,
        answer: AnswerOffer,
        call_id: Callable[[web.Request], str] = new_call_id,
    ) -> None:
        self._agent = agent
        self._verifier = verifier
        self._registry = registry
        self._answer = answer
        self._call_id = call_id
        self._ice = IceServers(agent.settings.turn)
        self._closing: set[asyncio.Task[None]] = set()

    async def close(self) -> None:
        """Wait for the ports of calls that never began; ends within `PORT_CLOSE_TIMEOUT_S`."""
        if self._closing:
            await asyncio.wait(self._closing, timeout=2 * PORT_CLOSE_TIMEOUT_S)

    def _close_later(self, port: WebRtcPortLike) -> None:
        # A task of its own, since the handler that gives up may itself be under cancellation.
        task = asyncio.create_task(_close(port))
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def create(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/calls: 201 with the answer, once the call is live."""
        claims = self._verifier.verify(bearer_token(request))
        offer = await _read_offer(request)
        if offer.resume is not None:
            return await self._resume(request, claims, offer.sdp, offer.resume)
        async with self._registry.starting(claims, offer.channel, offer.queue) as place:
            call, port, resumption = await self._start(offer, self._call_id(request))
            self._registry.add(claims.subject, call, port, resumption, place=place)
        try:
            return await self._respond(request, claims, call, port, resumption)
        except BaseException:
            # The caller left before the answer reached it (connection lost, or this handler was cancelled for it).
            self._registry.forget(call.id)
            call.hangup(NOT_CONNECTED)
            raise

    async def _resume(self, request: web.Request, claims: Claims, sdp: str, token: str) -> web.StreamResponse:
        owned, resumption = self._registry.resumable(token, claims)
        call = owned.call
        connection = Connection(resumption.realtime.on_message)
        port = await self._negotiate(sdp, connection, call.id)
        try:
            if self._registry.find(call.id, claims.subject) is None:
                raise CallGone("the call ended meanwhile")
            call.attach_port(port)
        except CallGone as exc:
            self._close_later(port)
            raise resume_expired() from exc
        except MediaError as exc:
            self._close_later(port)
            raise NegotiationError(f"sdp: {exc}; offer the codec that the call began with") from exc
        except BaseException:
            self._close_later(port)
            raise
        resumption.take_over(connection, port.send_message)
        self._registry.add(claims.subject, call, port, resumption)
        # If this answer does not arrive, the caller may ask again with the token it has: the call is left waiting.
        return await self._respond(request, claims, call, port, resumption, resumed=True)

    async def _negotiate(self, sdp: str, connection: Connection, call_id: str) -> WebRtcPortLike:
        try:
            async with asyncio.timeout(NEGOTIATION_TIMEOUT_S):
                return await self._answer(
                    sdp,
                    settings=self._ice.own(self._agent.settings.media, call_id),
                    ticker=self._agent.ticker,
                    on_message=connection.on_message,
                )
        except TimeoutError as exc:
            raise CallRefused(f"no answer could be made within {NEGOTIATION_TIMEOUT_S:.0f} s") from exc

    async def _start(self, offer: _Offer, call_id: str) -> tuple[CallLike, WebRtcPortLike, Resumption | None]:
        realtime = RealtimeSession()
        connection = Connection(realtime.on_message)
        port = await self._negotiate(offer.sdp, connection, call_id)
        session = Session(
            id=call_id,
            channel=offer.channel,
            language=offer.language or self._agent.settings.asr.language,
            caller=offer.caller,
        )
        try:
            realtime.bind_port(port.send_message)
            places = self._registry.places
            observer = realtime.on_event if places is None else places.watched(realtime.on_event)
            call = self._agent.start_call(port=port, session=session, observer=observer, record=offer.record)
        except BaseException:
            self._close_later(port)
            raise
        realtime.bind_call(call)
        resume_s = call.allow_resume() if offer.resumable else 0.0
        return call, port, Resumption(call.id, realtime, connection, resume_s) if resume_s else None

    async def _respond(
        self,
        request: web.Request,
        claims: Claims,
        call: CallLike,
        port: WebRtcPortLike,
        resumption: Resumption | None,
        *,
        resumed: bool = False,
    ) -> web.StreamResponse:
        headers = {hdrs.LOCATION: f"/v1/calls/{call.id}", hdrs.CACHE_CONTROL: "no-store"}
        response: web.Response
        if "application/sdp" in request.headers.get(hdrs.ACCEPT, ""):
            response = web.Response(status=201, text=port.answer_sdp, content_type="application/sdp", headers=headers)
        else:
            body: dict[str, Any] = {"id": call.id, "sdp": port.answer_sdp, "type": "answer"}
            if resumption is not None:
                body["resume"] = {"token": resumption.issue(), "expires_in_s": resumption.expires_in_s}
            if resumed:
                body["resumed"] = True
            body |= self._ice.for_answer(claims)
            response = web.json_response(body, status=201, headers=headers)
        if request.transport is None or request.transport.is_closing():
            raise ConnectionResetError("the client is gone")
        # Written here and not by the framework, so that a failure to send is still ours to clean up after.
        await response.prepare(request)
        await response.write_eof()
        return response

    async def trickle(self, request: web.Request) -> web.StreamResponse:
        """PATCH /v1/calls/{call_id}: one more candidate of the client (RFC 8838); an empty one is the last."""
        owned = self._owned(request)
        if owned.port is None:
            raise HttpFault(404, "call_not_found", "there is no such call over WebRTC")
        _expect_type(request, "application/json")
        body = _body_object(await read_body(request))
        candidate = validate(_Candidate, body)
        try:
            await owned.port.add_candidate(candidate.candidate, candidate.sdp_mid, candidate.sdp_mline_index)
        except NegotiationError as exc:
            raise HttpFault(422, "candidate_unusable", str(exc), field="candidate") from exc
        return web.Response(status=204)

    async def hang_up(self, request: web.Request) -> web.StreamResponse:
        """DELETE /v1/calls/{call_id}."""
        owned = self._owned(request)
        self._registry.forget(owned.call.id)
        owned.call.hangup(CALLER_HUNG_UP)
        return web.Response(status=204)

    def _owned(self, request: web.Request) -> OwnedCall:
        claims = self._verifier.verify(bearer_token(request))
        owned = self._registry.find(request.match_info["call_id"], claims.subject)
        if owned is None:
            raise HttpFault(404, "call_not_found", "there is no such call, or it is over")
        return owned


async def _close(port: WebRtcPortLike) -> None:
    try:
        async with asyncio.timeout(PORT_CLOSE_TIMEOUT_S):
            await port.close()
    except Exception:
        logger.exception("a port failed to close")


async def _read_offer(request: web.Request) -> _Offer:
    kind = _expect_type(request, "application/json", "application/sdp")
    data = await read_body(request)
    if kind == "application/json":
        return _checked(validate(_Offer, _body_object(data)))
    try:
        sdp = data.decode("utf-8")
    except UnicodeDecodeError as exc:
        raise ProtocolError("sdp: expected UTF-8", field="sdp") from exc
    query = {key: value for key, value in request.query.items() if key in ("channel", "caller", "language", "queue")}
    return _checked(validate(_Offer, {"sdp": sdp, "record": flag(request.query.get("record"), "record"), **query}))


async def read_body(request: web.Request) -> bytes:
    """All of the body. Raises HttpFault: 408 when it takes too long, 400 when it cannot be unpacked."""
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await request.read()
    except (web.RequestPayloadError, ContentEncodingError) as exc:
        # Not in the encoding that the request names, as gzip that is none.
        raise HttpFault(400, "bad_request", "body: it is not what Content-Encoding says", field="body") from exc
    except TimeoutError as exc:
        raise HttpFault(
            408,
            "request_timeout",
            f"body: expected all of it within {BODY_TIMEOUT_S:.0f} s",
            headers={"Connection": "close"},
        ) from exc


def _checked(offer: _Offer) -> _Offer:
    # RFC 8866 section 5: the version line comes first. Anything else never was an SDP.
    if not offer.sdp.startswith("v=0"):
        raise ProtocolError(
            "sdp: expected a session description that begins with v=0", field="sdp", code="sdp_unusable"
        )
    if any(char < " " and char not in "\r\n\t" for char in offer.sdp) or not _encodes(offer.sdp):
        raise ProtocolError("sdp: expected text without control characters", field="sdp", code="sdp_unusable")
    return offer


def _encodes(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _body_object(data: bytes) -> dict[str, Any]:
    try:
        return json_object(data)
    except ProtocolError as exc:
        raise HttpFault(400, exc.code, f"body: {exc}", field="body") from exc


def _expect_type(request: web.Request, *kinds: str) -> str:
    if request.content_type not in kinds or hdrs.CONTENT_TYPE not in request.headers:
        raise HttpFault(
            415, "unsupported_media_type", f"Content-Type: expected {' or '.join(kinds)}", field="Content-Type"
        )
    return request.content_type
