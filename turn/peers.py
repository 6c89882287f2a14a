"""Which addresses a relay must never send to, and the ways they are spelt. Pure.

A relay stands inside: whoever may allocate could reach through it whatever its machine can reach (databases, metadata
services, the neighbours' management ports), so all that is not the public Internet is denied.
Source: the IANA special-purpose address registries (RFC 6890) and RFC 8656 section 21.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

__all__ = ["DENIED", "DENIED_IN_TESTS", "NEVER", "Network", "parse_networks", "spell"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

DENIED: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this network"),
    ("10.0.0.0/8", "private"),
    ("100.64.0.0/10", "carrier-grade NAT"),
    ("127.0.0.0/8", "loopback"),
    ("169.254.0.0/16", "link-local, cloud metadata"),
    ("172.16.0.0/12", "private"),
    ("192.0.0.0/24", "protocol assignments"),
    ("192.0.2.0/24", "documentation"),
    ("192.88.99.0/24", "6to4 anycast"),
    ("192.168.0.0/16", "private"),
    ("198.18.0.0/15", "benchmarks"),
    ("198.51.100.0/24", "documentation"),
    ("203.0.113.0/24", "documentation"),
    ("224.0.0.0/4", "multicast"),
    ("240.0.0.0/4", "reserved, broadcast"),
    # All that is not 2000::/3 is no public IPv6: unspecified, loopback, v4-compatible, v4-mapped, translated, NAT64,
    # discard, segment routing, unique local, link-local, site-local, multicast.
    ("::/3", "loopback, v4-mapped, v4-compatible, NAT64"),
    ("4000::/2", "reserved, segment routing"),
    ("8000::/1", "unique local, link-local, site-local, multicast"),
    ("2001::/23", "Teredo, ORCHID, benchmarks"),
    ("2001:db8::/32", "documentation"),
    ("2002::/16", "6to4: an IPv4 address inside"),
    ("3fff::/20", "documentation"),
)
"""(network, what it is)."""

DENIED_IN_TESTS: tuple[tuple[str, str], ...] = (
    ("0.0.0.0/8", "this network"),
    ("169.254.0.0/16", "link-local, cloud metadata"),
    ("224.0.0.0/3", "multicast, reserved, broadcast"),
    ("::ffff:0:0/96", "v4-mapped"),
    ("64:ff9b::/32", "NAT64"),
    ("fe80::/10", "link-local"),
    ("ff00::/8", "multicast"),
)
"""Even on a developer's machine nobody's media lies there."""

NEVER = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "224.0.0.0/3",
        "::/8",
        "64:ff9b::/32",
        "2001::/32",
        "2002::/16",
        "fe80::/10",
        "ff00::/8",
    )
)
"""No exception may open these: nothing that a media server offers lies there, and metadata services do."""

MIN_EXCEPTION_BITS = {4: 8, 6: 16}
"""Wider exceptions are a slip of the hand."""


def parse_networks(entries: Sequence[str], field: str, *, exception: bool = False) -> list[Network]:
    """Addresses and networks in CIDR form.

    Raises ValueError naming `field`; for an exception also when it would open what no relay may reach.
    """
    found: list[Network] = []
    for entry in entries:
        try:
            network = ipaddress.ip_network(entry, strict=True)
        except ValueError as exc:
            raise ValueError(f"{field}: expected an address or a network such as 10.0.0.0/24, got {entry!r}") from exc
        if exception:
            for never in NEVER:
                if network.version == never.version and network.overlaps(never):
                    raise ValueError(f"{field}: {entry} overlaps {never}, which a relay must never reach")
            if network.prefixlen < MIN_EXCEPTION_BITS[network.version]:
                raise ValueError(
                    f"{field}: {entry} is too wide; expected at least /{MIN_EXCEPTION_BITS[network.version]}"
                )
        found.append(network)
    return found


def spell(network: Network) -> str:
    """As coturn reads it: `first-last`, or one address. It knows no CIDR form before 4.7.

    A range that begins with the unspecified address has no beginning for coturn, and `::` to anything then holds every
    IPv4 address too; so it begins one later. The unspecified address itself coturn never relays to.
    """
    first, last = network[0], network[-1]
    if first == last:
        return str(first)
    return f"{first + 1 if first.is_unspecified else first}-{last}"
