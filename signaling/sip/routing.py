"""Where a message goes: responses by Via (RFC 3261 section 18.2.2, RFC 3581), requests by route and target. Pure.

Names stay names here; the transport resolves them.
"""

from __future__ import annotations

import ipaddress

from signaling.sip.fields import Via
from signaling.sip.message import Request
from signaling.sip.peer import DEFAULT_PORTS, Peer, TransportName, is_address, same_host
from signaling.sip.uri import Uri

__all__ = ["mark_received", "next_hop", "response_peer"]


def mark_received(request: Request, source: Peer) -> None:
    """Note in the topmost Via where a request really came from. Raises SipError on a malformed Via."""
    via = request.via
    marked = via
    wants_port = any(name.lower() == "rport" for name, _ in via.params)
    if wants_port:
        marked = marked.with_param("rport", str(source.port))
    if wants_port or not same_host(via.host, source.host):
        host = f"[{source.host}]" if ":" in source.host else source.host
        marked = marked.with_param("received", host.strip("[]"))
    if marked != via:
        rest = request.headers.values("Via")[1:]
        request.headers.remove("Via")
        for value in reversed([str(marked), *rest]):
            request.headers.prepend("Via", value)


def response_peer(via: Via, source: Peer) -> Peer:
    """Where responses go: back on the connection, or to the address the request came from.

    `maddr` is ignored: it would let a sender aim our responses at anybody.
    """
    if source.reliable:
        return source
    port = source.port if via.param("rport") is not None else via.port or DEFAULT_PORTS[source.transport]
    return Peer(source.transport, source.host, port)


def next_hop(target: Uri, routes: list[Uri], proxy: Peer | None, heard_from: Peer | None) -> Peer:
    """Where a request goes.

    Args:
        target: the request URI.
        routes: the route set; its first is the next hop.
        proxy: the outbound proxy for requests outside a dialog, if one is set.
        heard_from: where the dialog's last message came from, if there was one.
    """
    uri = routes[0] if routes else target
    if not routes and heard_from is None and proxy is not None:
        return proxy
    if not uri.is_sip:
        if proxy is not None:
            return proxy
        if heard_from is not None:
            return heard_from
        return Peer("udp", uri.opaque, 0)
    transport: TransportName = uri.transport  # type: ignore[assignment]
    host, port = uri.host, uri.port or DEFAULT_PORTS[transport]
    if heard_from is not None:
        if heard_from.transport == transport and heard_from.reliable:
            # The peer's own connection: behind NAT it is the only way in (RFC 5923's purpose).
            return heard_from
        if not heard_from.reliable and transport == "udp" and _hidden(host, heard_from.host):
            return heard_from
    return Peer(transport, host, port)


def _hidden(host: str, source: str) -> bool:
    """A contact of a private network that came from elsewhere cannot be reached but where it came from."""
    if not is_address(host) or not is_address(source) or same_host(host, source):
        return False
    return not ipaddress.ip_address(host).is_global
