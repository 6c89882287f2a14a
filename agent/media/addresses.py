"""Where a media server can be reached: which of its addresses and ports to use, and what to say they are. Pure.

Three settings are read here: `media.interfaces` chooses among the machine's addresses, `media.advertised_addresses`
says what a router in front of it turns them into (1:1 NAT), and `media.stun_servers` with `media.turn_server` name
the servers to ask. Every function raises ValueError saying what was expected; the settings tree adds the field's name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

__all__ = ["Interface", "ServerUrl", "choose", "describe", "parse_advertised", "parse_interfaces", "parse_server"]

Interface = tuple[str, str]
"""(name, address) of one address of this machine."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,14}")
"""Linux: at most 15 characters (IFNAMSIZ)."""
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\.?")
DEFAULT_PORT = 3478
DEFAULT_TLS_PORT = 5349
"""RFC 7064 section 3.2, RFC 7065 section 3.2."""


@dataclass(frozen=True, slots=True)
class ServerUrl:
    """A STUN or TURN server."""

    host: str
    port: int
    transport: Literal["udp", "tcp"] = "udp"
    tls: bool = False

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}/{'tls' if self.tls else self.transport}"


def parse_server(url: str, *, turn: bool) -> ServerUrl:
    """A STUN (RFC 7064) or TURN (RFC 7065) URI; for STUN a bare `host:port` too."""
    example = "turn:relay.example.org:3478?transport=udp" if turn else "stun:stun.example.org:3478"
    scheme, found, rest = url.partition(":")
    if scheme not in ("stun", "stuns", "turn", "turns") or not found:
        if turn:
            raise ValueError(f"expected a TURN server such as {example}, got {url!r}")
        scheme, rest = "stun", url
    if scheme == "stuns":
        raise ValueError("STUN over TLS is not supported; expected a server such as " + example)
    if (scheme == "stun") == turn:
        raise ValueError(f"expected a server such as {example}, got {url!r}")
    address, _, query = rest.partition("?")
    tls = scheme == "turns"
    transport: Literal["udp", "tcp"] = "tcp" if tls else "udp"
    if query:
        if not turn or query not in ("transport=udp", "transport=tcp"):
            raise ValueError(f"expected at most ?transport=udp or ?transport=tcp after a TURN server, got {url!r}")
        if query == "transport=udp" and tls:
            raise ValueError("turns: over UDP (DTLS) is not supported; expected turns:host or turns:host?transport=tcp")
        transport = "tcp" if query.endswith("tcp") else "udp"
    host, port = _host_port(address.strip("/"), DEFAULT_TLS_PORT if tls else DEFAULT_PORT)
    if host is None:
        raise ValueError(f"expected a server such as {example}, got {url!r}")
    return ServerUrl(host, port, transport, tls)


def _host_port(text: str, default: int) -> tuple[str | None, int]:
    bracketed = re.fullmatch(r"\[([^\]]+)\](?::(\d{1,5}))?", text)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
        if _address(host) is None:
            return None, 0
    else:
        host, _, port = text.partition(":")
        if not HOST.fullmatch(host) or (":" in text and not re.fullmatch(r"\d{1,5}", port)):
            return None, 0
    number = int(port) if port else default
    return (host, number) if 1 <= number <= 65535 else (None, 0)


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


def parse_interfaces(entries: Sequence[str]) -> None:
    """Check that each is an interface name, an address, or a network in CIDR form."""
    for entry in entries:
        if _address(entry) is not None or NAME.fullmatch(entry):
            continue
        try:
            ipaddress.ip_network(entry, strict=False)
        except ValueError:
            raise ValueError(
                f"expected interface names, addresses or networks such as eth0, 10.0.0.5, 10.0.0.0/8; got {entry!r}"
            ) from None


def parse_advertised(entries: Sequence[str]) -> dict[str, str]:
    """`203.0.113.7` for every address of its family, or `10.0.0.5=203.0.113.7` for one.

    Returns own address to advertised one; the keys `4` and `6` stand for a whole family.
    """
    found: dict[str, str] = {}
    for entry in entries:
        own_text, pair, public_text = entry.rpartition("=")
        public = _address(public_text)
        own = _address(own_text) if pair else None
        if public is None or (pair and own is None):
            raise ValueError(f"expected an address (203.0.113.7) or own=public (10.0.0.5=203.0.113.7), got {entry!r}")
        if public.is_unspecified or public.is_multicast:
            raise ValueError(f"an advertised address must be one that callers can reach, got {public}")
        if own is not None and own.version != public.version:
            raise ValueError(f"own and public address must be of one family, got {entry!r}")
        key = str(own) if own is not None else str(public.version)
        if key in found:
            raise ValueError(f"{key if own else f'IPv{key}'} has two advertised addresses: name each own address")
        found[key] = str(public)
    return found


def describe(own: str, advertised: Mapping[str, str]) -> str:
    """The address to offer for our `own` one."""
    ip = ipaddress.ip_address(own)
    return advertised.get(str(ip)) or advertised.get(str(ip.version)) or own


def choose(interfaces: Sequence[Interface], wanted: Sequence[str]) -> list[str]:
    """The addresses to bind: those of `wanted`, in the machine's order, each once.

    Without `wanted`: all but loopback and IPv6 link-local ones, which nobody elsewhere can reach; loopback alone when
    there is nothing else, since a caller on this machine can still be served.
    """
    found = dict.fromkeys(address for name, address in interfaces if _is_wanted(name, address, wanted))
    if not found and not wanted:
        return ["127.0.0.1"]
    return list(found)


def _is_wanted(name: str, address: str, wanted: Sequence[str]) -> bool:
    ip = _address(address)
    if ip is None or (ip.version == 6 and ip.is_link_local):
        return False
    if not wanted:
        return not ip.is_loopback
    for entry in wanted:
        if entry == name or _address(entry) == ip:
            return True
        if "/" in entry and ip in ipaddress.ip_network(entry, strict=False):
            return True
    return False
