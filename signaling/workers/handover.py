"""A WebSocket's connection given from the supervisor to a worker: the kernel's socket itself, with what was read of it.

From then on the client talks with the worker, and no byte of audio passes the supervisor. Only WebSockets are given
away: a plain HTTP connection may carry the next request, which may be for another worker.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping

from aiohttp import hdrs, web

__all__ = ["adopt", "early_bytes", "upgrade_head"]

KEPT_HEADERS = (
    hdrs.HOST,
    hdrs.UPGRADE,
    hdrs.CONNECTION,
    hdrs.ORIGIN,
    hdrs.SEC_WEBSOCKET_KEY,
    hdrs.SEC_WEBSOCKET_VERSION,
    hdrs.SEC_WEBSOCKET_PROTOCOL,
    hdrs.SEC_WEBSOCKET_EXTENSIONS,
)
"""What an upgrade needs (RFC 6455 section 4.1). The token stays behind."""

KEPT_QUERY = ("rate", "record")


def upgrade_head(request: web.Request, headers: Mapping[str, str]) -> bytes:
    """The request's head, built anew for a worker: only known headers and queries, then `headers`."""
    query = {name: request.query[name] for name in KEPT_QUERY if name in request.query}
    target = request.rel_url.with_query(query).raw_path_qs
    lines = [f"GET {target} HTTP/1.1".encode()]
    kept = {name.lower().encode() for name in KEPT_HEADERS}
    lines += [name + b": " + value for name, value in request.raw_headers if name.lower() in kept]
    lines += [f"{name}: {value}".encode() for name, value in headers.items()]
    return b"\r\n".join(lines) + b"\r\n\r\n"


def early_bytes(request: web.Request) -> bytes:
    """What the client sent behind its head without waiting for the answer.

    RFC 6455 section 4.1 forbids that, but one process alone would take it. aiohttp shows it nowhere else; a test guards
    the attribute.
    """
    tail: bytes = request.protocol._message_tail
    return tail


class _Adoption(asyncio.Protocol):
    """aiohttp's own protocol, which gets the head before anything that is read from the socket."""

    def __init__(self, server: web.Server, head: bytes, on_lost: Callable[[], None]) -> None:
        self._protocol = server()
        self._head = head
        self._on_lost = on_lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._protocol.connection_made(transport)
        self._protocol.data_received(self._head)

    def data_received(self, data: bytes) -> None:
        self._protocol.data_received(data)

    def eof_received(self) -> None:
        self._protocol.eof_received()

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._protocol.connection_lost(exc)
        self._on_lost()


async def adopt(server: web.Server, descriptor: int, head: bytes, on_lost: Callable[[], None]) -> None:
    """Serve a connection that another process accepted; `on_lost` is called when it is closed.

    Owns the descriptor. Raises OSError when it is unusable.
    """
    sock = socket.socket(fileno=descriptor)
    try:
        sock.setblocking(False)
        await asyncio.get_running_loop().connect_accepted_socket(lambda: _Adoption(server, head, on_lost), sock)
    except BaseException:
        sock.close()
        raise
