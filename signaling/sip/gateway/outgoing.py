"""Calls that the agent places: `POST /v1/calls` with `to`. Answered when the callee has, or has not."""

from __future__ import annotations

import asyncio
from typing import Annotated, Protocol

from aiohttp import hdrs, web
from pydantic import BaseModel, ConfigDict, StringConstraints

from agent.errors import CallRefused, ProtocolError
from agent.nlu.hook import Session
from signaling.admission import CallRegistry
from signaling.calls import new_call_id, read_body
from signaling.fields import LanguageTag, json_object, validate
from signaling.guards import bearer_token
from signaling.problems import HttpFault
from signaling.sip.errors import WrongState
from signaling.sip.gateway.leg import Leg, Outcome
from signaling.sip.uri import Uri
from signaling.tokens import Claims, Verifier

__all__ = ["Dials", "OutgoingCalls", "wants_telephone"]

MAX_TO_CHARS = 256


class _Order(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    to: Annotated[str, StringConstraints(min_length=1, max_length=MAX_TO_CHARS)]
    language: LanguageTag | None = None


class Dials(Protocol):
    """The gateway's side."""

    def destination(self, to: str) -> Uri:
        """Raises ProtocolError."""
        ...

    def dial(self, target: Uri, session: Session, claims: Claims) -> Leg:
        """Begin a call. Raises CallRefused, HttpFault, WrongState."""
        ...

    def give_up(self, leg: Leg) -> None:
        """End it, however far it has come."""

    @property
    def language(self) -> str: ...


async def wants_telephone(request: web.Request) -> bool:
    """Whether the body of a `POST /v1/calls` orders a call rather than offering one."""
    if request.content_type != "application/json":
        return False
    body = await read_body(request)
    try:
        return "to" in json_object(body)
    except ProtocolError:
        # What is wrong with it is told by whoever reads it next.
        return False


class OutgoingCalls:
    """The handler."""

    def __init__(self, dials: Dials, *, verifier: Verifier, registry: CallRegistry) -> None:
        self._dials = dials
        self._verifier = verifier
        self._registry = registry

    async def create(self, request: web.Request) -> web.StreamResponse:
        """201 once the callee has answered; 502 with `sip_status` if not. A client that leaves before gives it up."""
        claims = self._verifier.verify(bearer_token(request))
        order = validate(_Order, json_object(await read_body(request)))
        try:
            target = self._dials.destination(order.to)
        except ProtocolError as exc:
            status = 403 if exc.code == "403" else 422
            code = "destination_not_allowed" if status == 403 else "destination_unusable"
            raise HttpFault(status, code, str(exc), field="to") from exc
        session = Session(
            id=new_call_id(),
            channel="sip",
            language=order.language or self._dials.language,
            caller=target.user_text or target.host,
            direction="out",
        )
        try:
            leg = self._dials.dial(target, session, claims)
        except WrongState as exc:
            raise CallRefused(str(exc)) from exc
        try:
            outcome = await asyncio.shield(leg.outcome)
        except asyncio.CancelledError:
            self._dials.give_up(leg)
            raise
        if outcome.code != "answered":
            raise HttpFault(502, outcome.code, _told(outcome), extra={"sip_status": outcome.status})
        headers = {hdrs.LOCATION: f"/v1/calls/{session.id}", hdrs.CACHE_CONTROL: "no-store"}
        return web.json_response({"id": session.id, "channel": "sip"}, status=201, headers=headers)


def _told(outcome: Outcome) -> str:
    return {
        "busy": "the callee is busy",
        "no_answer": "nobody answered",
        "refused": "the callee refused the call",
    }.get(outcome.code, "the call could not be set up")
