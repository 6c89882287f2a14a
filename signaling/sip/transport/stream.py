"""SIP over one TCP or TLS connection (RFC 3261 section 18, RFC 5626 keep-alives)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from signaling.sip.framing import PING, PONG, BrokenStream, Framer, Ping, Pong
from signaling.sip.parser import UnreadableMessage
from signaling.sip.peer import Peer, TransportName
from signaling.sip.protocol import Received, Unreadable

__all__ = ["Connection", "ConnectionOwner"]

MESSAGE_S = 10.0
"""A message that has begun must be whole by then: nobody holds our memory with half of one."""
IDLE_S = 900.0
"""Longer than any keep-alive interval in use; a call that is up refreshes its session at least so often."""
PING_S = 110.0
"""Of connections we opened (RFC 5626 section 4.4.1: 95 to 120 s)."""
PONG_S = 10.0
BATCH = 16
"""Messages handled in one turn of the event loop: a flood on one connection stops nobody's sound."""
MAX_BUFFER_BYTES = 256 * 1024
"""Unsent: a peer that does not read is closed."""


class ConnectionOwner(Protocol):
    """Who keeps the connections."""

    def deliver(self, event: Received | Unreadable) -> None:
        """A message came."""

    def opened(self, connection: Connection) -> bool:
        """A connection is up; False: there are too many, it is closed."""

    def closed(self, connection: Connection) -> None:
        """It is gone."""


class Connection(asyncio.Protocol):
    """One connection.

    Args:
        number: names it in `Peer.connection`; above 0.
        target: where it was asked to go, with the name as given, when we opened it: then we keep it alive.
    """

    def __init__(
        self, owner: ConnectionOwner, transport: TransportName, number: int, target: Peer | None = None
    ) -> None:
        self.number = number
        self.target = target
        self._owner = owner
        self._name: TransportName = transport
        self._framer = Framer()
        self._transport: asyncio.Transport | None = None
        self._peer = Peer(transport, "", 0, number)
        self._deadline: asyncio.TimerHandle | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._known = False

    @property
    def peer(self) -> Peer:
        """The far end."""
        return self._peer

    @property
    def ours(self) -> bool:
        """We opened it."""
        return self.target is not None

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        host, port = transport.get_extra_info("peername")[:2]
        self._peer = Peer(self._name, str(host).partition("%")[0], int(port), self.number)
        transport.set_write_buffer_limits(high=MAX_BUFFER_BYTES)
        self._known = self._owner.opened(self)
        if not self._known:
            transport.abort()
            return
        self._wait(IDLE_S if self.ours else MESSAGE_S)
        if self.ours:
            self._ping_later()

    def data_received(self, data: bytes) -> None:
        self._take(data)

    def _take(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        half = self._framer.waiting
        some = self._framer.feed(data, BATCH)
        for found in some:
            if isinstance(found, Ping):
                self.send(PONG)
            elif isinstance(found, Pong):
                continue
            elif isinstance(found, BrokenStream):
                self._give_up(found.fault)
                return
            elif isinstance(found, UnreadableMessage):
                self._owner.deliver(Unreadable(found, self._peer))
            else:
                self._owner.deliver(Received(found, self._peer))
            if self.closing:
                return
        if not self._framer.waiting:
            self._wait(IDLE_S)
        elif some or not half:
            # Only when it begins: a byte now and then buys no more time.
            self._wait(MESSAGE_S)
        if len(some) == BATCH:
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._take, b"")
        else:
            self._transport.resume_reading()

    def eof_received(self) -> bool:
        """A peer that only listens on is of no use: its responses could not come any more. Both sides close."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - of a protocol
        for handle in (self._deadline, self._ping):
            if handle is not None:
                handle.cancel()
        if self._known:
            self._owner.closed(self)

    def pause_writing(self) -> None:
        """The peer does not read: what it would get is too old by the time it does."""
        self.abort()

    def send(self, data: bytes) -> bool:
        """False: the connection is closed."""
        if self._transport is None or self._transport.is_closing():
            return False
        self._transport.write(data)
        return True

    def close(self) -> None:
        """Close after what is written; a peer that reads no more is cut off by `abort`."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once. Idempotent."""
        if self._transport is not None:
            self._transport.abort()

    def _give_up(self, fault: UnreadableMessage) -> None:
        # The owner's answer is written before the close.
        self._owner.deliver(Unreadable(fault, self._peer))
        self.close()
        self._wait(PONG_S)

    def _wait(self, seconds: float) -> None:
        self._set("_deadline", seconds, self.abort)

    def _ping_later(self) -> None:
        self._set("_ping", PING_S, self._keep_alive)

    def _keep_alive(self) -> None:
        if self.send(PING):
            if not self._framer.waiting:
                # The answer to the ping moves it on, and so does a message. One that has begun has its own deadline.
                self._wait(PONG_S)
            self._ping_later()

    def _set(self, name: str, seconds: float, action: Callable[[], None]) -> None:
        handle: asyncio.TimerHandle | None = getattr(self, name)
        if handle is not None:
            handle.cancel()
        setattr(self, name, asyncio.get_running_loop().call_later(seconds, action))
