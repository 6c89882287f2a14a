"""One client's HTTP connection, where it fails below the application: what is no HTTP gets a problem document too.

aiohttp answers such requests itself, with text that repeats what was sent, a stack in the log, and a Server header that
names versions. Its seams for that are `RequestHandler.handle_error` and the server's factory of connections.
"""

from __future__ import annotations

import logging
from typing import Any

from aiohttp import hdrs, web
from aiohttp.http_exceptions import BadHttpMessage, ContentEncodingError, LineTooLong
from aiohttp.web_request import BaseRequest

from signaling.guards import security_headers
from signaling.problems import problem

__all__ = ["DoorRunner"]

IDLE_S = 75.0
"""How long a connection may be without a request, from its first moment on: aiohttp's own hour lets anybody take all
descriptors. Longer than a proxy keeps one (nginx: 60 s), so that none is closed just as the proxy uses it again."""

logger = logging.getLogger(__name__)


class DoorRunner(web.AppRunner):
    """An AppRunner whose connections say every refusal as problem+json, and log it as the client's own in one line."""

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **{"keepalive_timeout": IDLE_S, **made._kwargs},
        )


class _Server(web.Server):
    def __call__(self) -> web.RequestHandler:
        return _Connection(self, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    __slots__ = ()

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        """aiohttp's faults; a body that could not be unpacked, which it reads on to throw away, is the client's."""
        if not isinstance(kwargs.get("exc_info"), web.RequestPayloadError | ContentEncodingError):
            super().log_exception(*args, **kwargs)

    def handle_error(
        self,
        request: BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,  # noqa: ARG002 (the parser's, which repeats what was sent)
    ) -> web.StreamResponse:
        """The answer to what the application never saw (400) or failed on; closes the connection."""
        if request.writer.output_size > 0 or self.transport is None:
            # aiohttp ends the connection on this one without a word.
            raise ConnectionError("an answer has begun or nobody is there, so no other can be sent")
        response: web.Response
        if status < 500:
            logger.info("a request could not be read", extra={"fault": type(exc).__name__})
            response = problem(status, "bad_request", _detail(exc))
        else:
            logger.error("a request failed", exc_info=exc)
            response = problem(status, "internal_error", "the server failed on this request; its log says more")
        bare = _Response(status=response.status, body=response.body, headers=response.headers)
        security_headers(request, bare)
        bare.force_close()
        return bare


class _Response(web.Response):
    """Without a Server header. The application's signal, which drops it from other responses, does not see this one."""

    async def _prepare_headers(self) -> None:
        await super()._prepare_headers()
        self.headers.popall(hdrs.SERVER, None)


def _detail(error: BaseException | None) -> str:
    if isinstance(error, LineTooLong):
        return "the request line or a header is longer than 8190 bytes"
    if isinstance(error, BadHttpMessage):
        return "this is no HTTP/1.1 request (RFC 9112)"
    return "the request could not be read"
