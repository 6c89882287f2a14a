"""Where messages come from and go to. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from typing import Literal

__all__ = ["DEFAULT_PORTS", "Peer", "TransportName", "is_address", "same_host"]

TransportName = Literal["udp", "tcp", "tls"]
DEFAULT_PORTS = {"udp": 5060, "tcp": 5060, "tls": 5061}


@dataclass(frozen=True, slots=True)
class Peer:
    """The far end of a transport."""

    transport: TransportName
    host: str
    """An address without brackets; a name only where a message is sent to: the transport resolves it."""
    port: int
    connection: int = 0
    """Of a stream transport, the connection a message came on; 0: any to that host and port."""

    @property
    def reliable(self) -> bool:
        """The transport retransmits, so we do not."""
        return self.transport != "udp"


def is_address(host: str) -> bool:
    """True for an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def same_host(a: str, b: str) -> bool:
    """Two spellings of one address, or one name."""
    try:
        return ipaddress.ip_address(a) == ipaddress.ip_address(b)
    except ValueError:
        return a.lower() == b.lower()
