"""SIP over UDP (RFC 3261 section 18). One socket, one address family."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from signaling.sip.parser import UnreadableMessage, parse_message
from signaling.sip.peer import Peer
from signaling.sip.protocol import Received, Unreadable

__all__ = ["UdpSocket"]


class UdpSocket(asyncio.DatagramProtocol):
    """Parses what comes and hands it on.

    Args:
        deliver: takes each message, in the event loop.
    """

    def __init__(self, deliver: Callable[[Received | Unreadable], None]) -> None:
        self._deliver = deliver
        self._transport: asyncio.DatagramTransport | None = None

    @classmethod
    async def open(cls, host: str, port: int, deliver: Callable[[Received | Unreadable], None]) -> UdpSocket:
        """Bind. Raises OSError."""
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_datagram_endpoint(lambda: cls(deliver), local_addr=(host, port))
        return socket

    @property
    def address(self) -> tuple[str, int]:
        """Where it is bound."""
        assert self._transport is not None
        host, port = self._transport.get_extra_info("sockname")[:2]
        return host, port

    @property
    def is_ipv6(self) -> bool:
        return ":" in self.address[0]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Python 3.11's own datagram transport is no subclass of it.
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, ...]) -> None:
        if not data.strip(b"\r\n\x00"):
            # A keep-alive that opens a NAT binding; nothing is to be said.
            return
        peer = Peer("udp", str(addr[0]).partition("%")[0], int(addr[1]))
        try:
            self._deliver(Received(parse_message(data), peer))
        except UnreadableMessage as fault:
            self._deliver(Unreadable(fault, peer))

    def error_received(self, exc: Exception) -> None:
        """An ICMP error says of which datagram only on a connected socket: the timers find out."""

    def send(self, data: bytes, host: str, port: int) -> None:
        """Send to an address."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.sendto(data, (host, port))

    def close(self) -> None:
        """Idempotent."""
        if self._transport is not None:
            self._transport.close()
