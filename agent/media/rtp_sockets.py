"""A pair of UDP sockets for one call: RTP on an even port, RTCP on the next (RFC 3550 section 11)."""

from __future__ import annotations

import asyncio
import errno
import random
import socket
from collections.abc import Callable

from agent.errors import CallRefused
from agent.media.rtp_session import Address

__all__ = ["RtpSockets"]

MAX_DATAGRAM_BYTES = 2048
"""RTP of telephones is under 1,500; what is longer is cut, and fails to parse."""
BURST = 32
"""Datagrams taken at once: other calls want the loop, too."""
ATTEMPTS = 128
RECEIVE_BUFFER_BYTES = 256 * 1024
TAKEN = (errno.EADDRINUSE, errno.EACCES)

OnDatagram = Callable[[bytes, Address], None]


class RtpSockets:
    """Open from the start; `listen` begins to deliver. Close it.

    Args:
        host: the local address; IPv4 or IPv6.
        low, high: ports to take from, both included; None: any.

    Raises CallRefused when no pair of ports is free.
    """

    def __init__(self, host: str, low: int | None, high: int | None) -> None:
        self._sockets = _bind_pair(host, low, high)
        self.port = int(self._sockets[0].getsockname()[1])
        """Of RTP."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.failures = 0
        """Datagrams that could not be sent."""

    def listen(self, on_rtp: OnDatagram, on_rtcp: OnDatagram) -> None:
        """Deliver what comes, on the running event loop."""
        self._loop = asyncio.get_running_loop()
        for sock, deliver in zip(self._sockets, (on_rtp, on_rtcp), strict=True):
            self._loop.add_reader(sock, self._read, sock, deliver)

    def send_rtp(self, packet: bytes, to: Address) -> bool:
        """False when it could not be sent."""
        return self._send(self._sockets[0], packet, to)

    def send_rtcp(self, packet: bytes, to: Address) -> bool:
        """False when it could not be sent."""
        return self._send(self._sockets[1], packet, to)

    def close(self) -> None:
        """Idempotent."""
        for sock in self._sockets:
            if self._loop is not None and sock.fileno() >= 0:
                self._loop.remove_reader(sock)
            sock.close()

    def _send(self, sock: socket.socket, packet: bytes, to: Address) -> bool:
        try:
            sock.sendto(packet, to)
        except OSError:
            # A full buffer, no route, an ICMP error of an earlier packet: RTP is lost now and then.
            self.failures += 1
            return False
        return True

    def _read(self, sock: socket.socket, deliver: OnDatagram) -> None:
        for _ in range(BURST):
            try:
                data, source = sock.recvfrom(MAX_DATAGRAM_BYTES)
            except BlockingIOError:
                return
            except OSError:
                # What the kernel heard of an earlier packet of ours (ICMP); the next read gets data again.
                continue
            deliver(data, (source[0], source[1]))
            if sock.fileno() < 0:
                return


def _bind_pair(host: str, low: int | None, high: int | None) -> tuple[socket.socket, socket.socket]:
    if low is None or high is None:
        candidates = [0] * ATTEMPTS
    else:
        pairs = list(range(low + low % 2, high, 2))
        first = random.randrange(len(pairs)) if pairs else 0
        # From a random place on, so that a port just given up rests and late packets of its call meet nobody.
        candidates = pairs[first:] + pairs[:first]
    for port in candidates:
        rtp = _bind(host, port)
        if rtp is None:
            continue
        taken = int(rtp.getsockname()[1])
        rtcp = _bind(host, taken + 1) if taken % 2 == 0 else None
        if rtcp is not None:
            return rtp, rtcp
        rtp.close()
    raise CallRefused("no pair of UDP ports is free for RTP (sip.rtp_port_min, sip.rtp_port_max)")


def _bind(host: str, port: int) -> socket.socket | None:
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        sock.bind((host, port))
    except OSError as exc:
        sock.close()
        if exc.errno in TAKEN:
            return None
        raise
    return sock
