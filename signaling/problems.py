"""HTTP errors as problem+json (RFC 9457): one shape for every refusal, and no internals in any of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from agent.errors import CallRefused, NegotiationError, ProtocolError
from agent.observe.metrics import Metrics
from signaling.tokens import Unauthorized

__all__ = ["HttpFault", "problem", "problem_for", "problems_middleware"]

PROBLEM_JSON = "application/problem+json"

logger = logging.getLogger(__name__)

_CODES = {
    400: "bad_request",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    411: "length_required",
    413: "body_too_large",
    415: "unsupported_media_type",
    417: "expectation_failed",
    426: "upgrade_required",
}


class HttpFault(ProtocolError):
    """A refusal with an HTTP status of its own."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        field: str | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message, field=field, code=code)
        self.status = status
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})
        """Further members of the problem document."""


def problem(
    status: int,
    code: str,
    detail: str,
    *,
    field: str | None = None,
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> web.Response:
    """A problem+json response.

    `type` is about:blank, so `title` is the phrase of the status (RFC 9457 section 4.2.1); `code` tells kinds apart.
    """
    body: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "code": code,
    }
    if field is not None:
        body["field"] = field
    body.update(extra or {})
    return web.Response(
        status=status,
        body=json.dumps(body).encode(),
        content_type=PROBLEM_JSON,
        headers={"Cache-Control": "no-store", **(headers or {})},
    )


def problem_for(error: Exception) -> web.Response | None:
    """The problem that says `error`, or None when it is none of ours (a fault of the server)."""
    match error:
        case HttpFault():
            return problem(
                error.status, error.code, str(error), field=error.field, headers=error.headers, extra=error.extra
            )
        case Unauthorized():
            return problem(
                401,
                error.code,
                str(error),
                field=error.field,
                headers={"WWW-Authenticate": 'Bearer realm="rejoinder"'},
            )
        case CallRefused():
            return problem(503, "call_refused", str(error), headers={"Retry-After": str(error.retry_after_s)})
        case NegotiationError():
            return problem(422, "sdp_unusable", str(error), field="sdp")
        case ProtocolError():
            return problem(422, error.code, str(error), field=error.field)
    return None


def _http_problem(error: web.HTTPException) -> web.Response:
    kept = {name: error.headers[name] for name in ("Allow", "Retry-After", "Upgrade") if name in error.headers}
    details = {
        404: "there is nothing at this address",
        405: "this address does not take that method",
        413: "the body is larger than the server takes",
    }
    detail = details.get(error.status, error.reason)
    return problem(error.status, _CODES.get(error.status, "http_error"), detail, headers=kept)


def problems_middleware(metrics: Metrics) -> Middleware:
    """Outermost middleware: whatever is raised inside becomes a problem. Unknown exceptions are logged and counted."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except web.HTTPException as error:
            if error.status < 400:
                raise
            return _http_problem(error)
        except Exception as error:
            if isinstance(error, ConnectionError) and (request.transport is None or request.transport.is_closing()):
                # Nobody is left to read this; the framework wants an answer all the same.
                logger.debug("a client left before its answer", extra={"route": _route(request)})
                return problem(400, "client_gone", "the client left before its answer")
            response = problem_for(error)
            if response is not None:
                return response
            metrics.error("signaling", error)
            logger.exception(
                "request failed",
                extra={
                    "method": request.method,
                    "route": _route(request),
                    "call_id": request.match_info.get("call_id"),
                },
            )
            return problem(500, "internal_error", "the server failed on this request; its log says more")

    return middleware


def _route(request: web.Request) -> str:
    resource = request.match_info.route.resource
    return resource.canonical if resource is not None else "-"
