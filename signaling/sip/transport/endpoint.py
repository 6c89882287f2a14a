"""The asyncio shell of a user agent: its sockets, its timer, its connections. No SIP logic lives here."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from signaling.sip.peer import Peer, TransportName, is_address
from signaling.sip.protocol import Event, News, Output, Received, Send, SendFailed, Tick, Unreadable
from signaling.sip.registration import RegistrationSettings
from signaling.sip.transport.stream import Connection
from signaling.sip.transport.udp import UdpSocket
from signaling.sip.user_agent import UserAgent

__all__ = ["Listen", "SipEndpoint"]

log = logging.getLogger(__name__)

CONNECT_S = 5.0
"""To resolve a name, connect and shake hands: well under a transaction's 32 s, so that a fail-over is in time."""
CLOSE_S = 2.0
"""For the last BYEs at the end."""
MAX_CONNECTIONS = 1000
MAX_PER_ADDRESS = 50
MAX_OPENING = 100
MAX_WAITING = 64
"""Messages that wait for one connection to open."""


@dataclass(frozen=True, slots=True)
class Listen:
    """One socket to listen on; port 0 takes a free one."""

    transport: TransportName
    host: str
    port: int


class SipEndpoint:
    """Runs a user agent. Use as `async with`; leaving it hangs up and closes everything within CLOSE_S and a bit.

    Args:
        on_news: takes news of calls, in the event loop; must not block.
        server_tls: for a `tls` listener.
        client_tls: for connections of ours over TLS; None: there are none.
    """

    def __init__(
        self,
        agent: UserAgent,
        listen: Sequence[Listen],
        on_news: Callable[[News], None],
        *,
        server_tls: ssl.SSLContext | None = None,
        client_tls: ssl.SSLContext | None = None,
    ) -> None:
        self.agent = agent
        self._listen = listen
        self._on_news = on_news
        self._server_tls = server_tls
        self._client_tls = client_tls
        self._sockets: list[UdpSocket] = []
        self._servers: list[tuple[TransportName, asyncio.Server]] = []
        self._connections: dict[int, Connection] = {}
        self._opening: dict[Peer, list[Send]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._numbers = itertools.count(1)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def addresses(self) -> list[tuple[TransportName, str, int]]:
        """What it listens on."""
        found: list[tuple[TransportName, str, int]] = [("udp", *udp.address) for udp in self._sockets]
        for name, server in self._servers:
            found += [(name, *bound.getsockname()[:2]) for bound in server.sockets]
        return found

    @property
    def connections(self) -> int:
        return len(self._connections)

    async def __aenter__(self) -> Self:
        """Bind all sockets. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            for item in self._listen:
                if item.transport == "udp":
                    self._sockets.append(await UdpSocket.open(item.host, item.port, self.deliver))
                    continue
                context = self._server_tls if item.transport == "tls" else None
                server = await loop.create_server(
                    self._incoming(item.transport), item.host, item.port, ssl=context, backlog=128
                )
                self._servers.append((item.transport, server))
        except BaseException:
            self._close_listeners()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._put_out(self.agent.close(self._now()))
            deadline = self._now() + CLOSE_S
            for _, server in self._servers:
                server.close()
            while self.agent.busy and self._now() < deadline:
                await self._next_change(deadline)
        finally:
            await self._shut()

    async def _next_change(self, deadline: float) -> None:
        """Until a message or a timer has changed something, or the deadline."""
        self._changed = asyncio.Event()
        try:
            async with asyncio.timeout_at(deadline):
                await self._changed.wait()
        except TimeoutError:
            log.info("%d calls had no answer to their BYE in time", self.agent.calls)

    _changed: asyncio.Event | None = None

    async def _shut(self) -> None:
        self._close_listeners()
        if self._timer is not None:
            self._timer.cancel()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in tuple(self._connections.values()):
            # No peer, half-closed or deaf, may delay the end.
            connection.abort()

    def _close_listeners(self) -> None:
        for udp in self._sockets:
            udp.close()
        for _, server in self._servers:
            server.close()

    # Events in, outputs out

    def handle(self, event: Event) -> None:
        """Give the agent an event, a command for example. Raises WrongState where the agent does."""
        try:
            outputs = self.agent.handle(event, self._now())
        finally:
            self._set_timer()
        self._put_out(outputs)

    def register(self, settings: RegistrationSettings) -> None:
        """Keep an address registered until `drain`, or the end."""
        self._put_out(self.agent.register(settings, self._now()))

    def drain(self) -> None:
        """Take no new calls from here on, and refuse those that ring."""
        self._put_out(self.agent.drain(self._now()))

    def deliver(self, event: Received | Unreadable) -> None:
        """A message came."""
        self.handle(event)

    def _put_out(self, outputs: list[Output]) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self._send(output)
            else:
                self._on_news(output)
        self._set_timer()
        if self._changed is not None:
            self._changed.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.agent.next_at
        if due is not None:
            self._timer = asyncio.get_running_loop().call_at(due, self.handle, Tick())

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # Sending

    def _send(self, send: Send) -> None:
        peer = send.peer
        if peer.transport == "udp":
            if is_address(peer.host):
                self._send_datagram(send, peer.host, peer.port)
            else:
                self._own(self._resolve_and_send(send), send)
            return
        connection = self._connections.get(peer.connection) or self._connection_to(peer)
        if connection is None or not connection.send(send.message.to_bytes()):
            self._open_and_send(send)

    def _send_datagram(self, send: Send, host: str, port: int) -> None:
        for udp in self._sockets:
            if udp.is_ipv6 == (":" in host):
                udp.send(send.message.to_bytes(), host, port)
                return
        self._failed([send])

    async def _resolve_and_send(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_S):
                found = await loop.getaddrinfo(send.peer.host, send.peer.port, type=socket.SOCK_DGRAM)
        except (OSError, TimeoutError, UnicodeError):
            self._failed([send])
            return
        families = {udp.is_ipv6 for udp in self._sockets}
        usable = [item[4] for item in found if (":" in str(item[4][0])) in families]
        if usable:
            self._send_datagram(send, str(usable[0][0]), int(usable[0][1]))
        else:
            self._failed([send])

    def _connection_to(self, peer: Peer) -> Connection | None:
        for connection in self._connections.values():
            there = connection.peer
            address = (there.transport, there.host, there.port) == (peer.transport, peer.host, peer.port)
            named = connection.target == Peer(peer.transport, peer.host, peer.port)
            # For TLS only one that was verified by that name will do.
            if (named or (address and peer.transport != "tls")) and not connection.closing:
                return connection
        return None

    def _open_and_send(self, send: Send) -> None:
        target = Peer(send.peer.transport, send.peer.host, send.peer.port)
        waiting = self._opening.get(target)
        if waiting is not None:
            if len(waiting) < MAX_WAITING:
                waiting.append(send)
            else:
                self._failed([send])
        elif len(self._opening) >= MAX_OPENING or (target.transport == "tls" and self._client_tls is None):
            self._failed([send])
        else:
            self._opening[target] = [send]
            self._own(self._open(target), send)

    async def _open(self, target: Peer) -> None:
        loop = asyncio.get_running_loop()
        context = self._client_tls if target.transport == "tls" else None
        connection: Connection | None = None
        try:
            async with asyncio.timeout(CONNECT_S):
                _, connection = await loop.create_connection(
                    lambda: Connection(self, target.transport, next(self._numbers), target),
                    target.host,
                    target.port,
                    ssl=context,
                    server_hostname=target.host if context is not None else None,
                )
        except (OSError, TimeoutError, ssl.SSLError, UnicodeError) as exc:
            log.info("SIP connection over %s failed: %s", target.transport, type(exc).__name__)
        finally:
            waiting = self._opening.pop(target, [])
        unsent = [send for send in waiting if connection is None or not connection.send(send.message.to_bytes())]
        self._failed(unsent)

    def _failed(self, sends: list[Send]) -> None:
        # Told in a turn of its own: the agent may be in the middle of another event's outputs.
        for send in sends:
            if send.owner is not None:
                asyncio.get_running_loop().call_soon(self.handle, SendFailed(send))

    def _own(self, work: Coroutine[Any, Any, None], send: Send) -> None:
        if len(self._tasks) >= MAX_OPENING:
            work.close()
            self._opening.pop(Peer(send.peer.transport, send.peer.host, send.peer.port), None)
            self._failed([send])
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # Connections

    def _incoming(self, transport: TransportName) -> Callable[[], Connection]:
        return lambda: Connection(self, transport, next(self._numbers))

    def opened(self, connection: Connection) -> bool:
        """A connection is up; False: there are too many."""
        same = sum(other.peer.host == connection.peer.host for other in self._connections.values())
        if len(self._connections) >= MAX_CONNECTIONS or (same >= MAX_PER_ADDRESS and not connection.ours):
            return False
        self._connections[connection.number] = connection
        return True

    def closed(self, connection: Connection) -> None:
        """It is gone; what is sent to it opens a new one, or fails."""
        self._connections.pop(connection.number, None)
