"""Whom a relay must never reach, and how coturn is told."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turn.peers import DENIED, DENIED_IN_TESTS, NEVER, parse_networks, spell

NETWORKS = [ipaddress.ip_network(text) for text, _ in DENIED]


def is_denied(address: Any) -> bool:
    return any(address.version == network.version and address in network for network in NETWORKS)


@given(st.ip_addresses())
def test_whatever_is_not_of_the_public_internet_is_denied(address: Any) -> None:
    # The library's own reading of the IANA registries, which knows multicast apart.
    if not address.is_global or address.is_multicast:
        assert is_denied(address)


@given(st.ip_addresses(v=4))
def test_every_spelling_of_an_ipv4_address_in_ipv6_is_denied(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    for prefix, shift in (("::ffff:0:0", 0), ("::", 0), ("::ffff:0:0:0", 0), ("64:ff9b::", 0), ("2002::", 80)):
        assert is_denied(ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) + (number << shift)))


@pytest.mark.parametrize(
    "text", ["8.8.8.8", "1.1.1.1", "11.0.0.1", "172.32.0.1", "2606:4700::1", "2a00::1", "2001:4860::1"]
)
def test_the_public_internet_is_not(text: str) -> None:
    assert not is_denied(ipaddress.ip_address(text))


def test_what_may_never_be_opened_is_denied_in_production() -> None:
    for never in NEVER:
        assert is_denied(never[0])
        assert is_denied(never[-1])
    assert all(ipaddress.ip_network(text) for text, _ in DENIED_IN_TESTS)


@pytest.mark.parametrize(
    ("network", "spelt"),
    [
        ("10.0.0.0/8", "10.0.0.0-10.255.255.255"),
        ("10.0.0.5/32", "10.0.0.5"),
        ("fe80::/10", "fe80::-febf:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("::1/128", "::1"),
        # From the unspecified address on, coturn would take every IPv4 address to be inside.
        ("::/3", "::1-1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"),
        ("0.0.0.0/8", "0.0.0.1-0.255.255.255"),
    ],
)
def test_networks_are_spelt_as_coturn_reads_them(network: str, spelt: str) -> None:
    assert spell(ipaddress.ip_network(network)) == spelt


def test_exceptions_are_addresses_and_networks() -> None:
    found = parse_networks(("10.0.0.5", "192.168.8.0/24", "fd00:1::/64"), "turn.allowed_peers", exception=True)
    assert [str(network) for network in found] == ["10.0.0.5/32", "192.168.8.0/24", "fd00:1::/64"]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("nowhere", "turn.allowed_peers: expected an address or a network such as 10.0.0.0/24, got 'nowhere'"),
        ("10.0.0.5/24", "turn.allowed_peers: expected an address or a network"),
        ("127.0.0.1", "overlaps 127.0.0.0/8, which a relay must never reach"),
        ("169.254.169.254", "overlaps 169.254.0.0/16"),
        ("0.0.0.0/0", "overlaps 0.0.0.0/8"),
        ("::/0", "overlaps ::/8"),
        ("::ffff:10.0.0.1", "overlaps ::/8"),
        ("fe80::1", "overlaps fe80::/10"),
        ("224.0.0.1", "overlaps 224.0.0.0/3"),
        ("128.0.0.0/2", "turn.allowed_peers: 128.0.0.0/2"),
        ("fc00::/7", "too wide; expected at least /16"),
    ],
)
def test_an_exception_that_opens_the_inside_is_refused(entry: str, expected: str) -> None:
    with pytest.raises(ValueError, match=r".*") as caught:
        parse_networks((entry,), "turn.allowed_peers", exception=True)
    assert expected in str(caught.value)
