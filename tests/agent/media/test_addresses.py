"""Which addresses a media server uses and names: choosing, 1:1 NAT, server URLs, and the settings that hold them."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import MediaSettings, load_settings
from agent.errors import ConfigError
from agent.media.addresses import ServerUrl, choose, describe, parse_advertised, parse_interfaces, parse_server

MACHINE = [
    ("lo", "127.0.0.1"),
    ("lo", "::1"),
    ("eth0", "10.0.0.5"),
    ("eth0", "2001:db8::5"),
    ("eth0", "fe80::5"),
    ("docker0", "172.17.0.1"),
    ("eth1", "192.0.2.7"),
]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ((), ["10.0.0.5", "2001:db8::5", "172.17.0.1", "192.0.2.7"]),
        (("eth0",), ["10.0.0.5", "2001:db8::5"]),
        (("192.0.2.7", "eth0"), ["10.0.0.5", "2001:db8::5", "192.0.2.7"]),
        (("10.0.0.0/8",), ["10.0.0.5"]),
        (("::/0",), ["::1", "2001:db8::5"]),
        (("lo",), ["127.0.0.1", "::1"]),
        (("2001:DB8::0:5",), ["2001:db8::5"]),
        (("eth9",), []),
    ],
)
def test_addresses_are_chosen_by_interface_address_or_network(wanted: tuple[str, ...], expected: list[str]) -> None:
    assert choose(MACHINE, wanted) == expected


def test_a_machine_without_a_network_serves_itself() -> None:
    assert choose([("lo", "127.0.0.1")], ()) == ["127.0.0.1"]


def test_one_public_address_stands_for_all_of_its_family() -> None:
    advertised = parse_advertised(["203.0.113.7", "10.0.0.6=203.0.113.8"])
    assert describe("10.0.0.5", advertised) == "203.0.113.7"
    assert describe("10.0.0.6", advertised) == "203.0.113.8"
    assert describe("2001:db8::5", advertised) == "2001:db8::5"


@pytest.mark.parametrize(
    ("url", "turn", "expected"),
    [
        ("stun:stun.example.org", False, ServerUrl("stun.example.org", 3478)),
        ("stun:192.0.2.1:19302", False, ServerUrl("192.0.2.1", 19302)),
        ("stun:[2001:db8::1]:3478", False, ServerUrl("2001:db8::1", 3478)),
        ("stun.example.org:5000", False, ServerUrl("stun.example.org", 5000)),
        ("turn:relay.example.org", True, ServerUrl("relay.example.org", 3478)),
        ("turn:relay.example.org:80?transport=tcp", True, ServerUrl("relay.example.org", 80, "tcp")),
        ("turns:relay.example.org", True, ServerUrl("relay.example.org", 5349, "tcp", tls=True)),
    ],
)
def test_server_urls_are_read(url: str, turn: bool, expected: ServerUrl) -> None:
    assert parse_server(url, turn=turn) == expected


@pytest.mark.parametrize(
    ("values", "field", "expected"),
    [
        ({"stun_servers": ("stun:",)}, "media.stun_servers", "stun:stun.example.org:3478"),
        ({"stun_servers": ("turn:host",)}, "media.stun_servers", "expected a server such as stun:"),
        ({"stun_servers": ("stuns:host",)}, "media.stun_servers", "not supported"),
        ({"stun_servers": ("stun:host:70000",)}, "media.stun_servers", "expected"),
        ({"stun_servers": ("stun:ho st",)}, "media.stun_servers", "expected"),
        ({"turn_server": "relay.example.org"}, "media.turn_server", "expected a TURN server"),
        ({"turn_server": "turn:host?transport=sctp"}, "media.turn_server", "transport=udp"),
        ({"turn_server": "turns:host?transport=udp"}, "media.turn_server", "DTLS"),
        ({"turn_server": "turn:host", "turn_username": "u"}, "media", "turn_username and turn_password"),
        ({"interfaces": ("eth0 eth1",)}, "media.interfaces", "eth0, 10.0.0.5, 10.0.0.0/8"),
        ({"interfaces": ("10.0.0.0/99",)}, "media.interfaces", "expected interface names"),
        ({"interfaces": ("",)}, "media.interfaces", "expected interface names"),
        ({"advertised_addresses": ("nat.example.org",)}, "media.advertised_addresses", "203.0.113.7"),
        ({"advertised_addresses": ("x=203.0.113.7",)}, "media.advertised_addresses", "own=public"),
        ({"advertised_addresses": ("10.0.0.5=2001:db8::1",)}, "media.advertised_addresses", "one family"),
        ({"advertised_addresses": ("0.0.0.0",)}, "media.advertised_addresses", "callers can reach"),
        ({"advertised_addresses": ("192.0.2.1", "192.0.2.2")}, "media.advertised_addresses", "two advertised"),
        ({"udp_port_min": 40000}, "media", "set together"),
        ({"udp_port_min": 40010, "udp_port_max": 40000}, "media", "40010 to 40000"),
        ({"udp_port_min": 0, "udp_port_max": 40000}, "media.udp_port_min", "greater than or equal to 1"),
        ({"udp_port_min": 40000, "udp_port_max": 65536}, "media.udp_port_max", "65535"),
        ({"jitter_min_ms": 60}, "media", "jitter_min_ms <= jitter_start_ms"),
        ({"rtp_silence_s": 0}, "media.rtp_silence_s", "greater than 0"),
        ({"consent_interval_s": -1}, "media.consent_interval_s", "greater than 0"),
    ],
)
def test_a_wrong_setting_names_itself_and_says_what_is_expected(
    values: dict[str, Any], field: str, expected: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"(: |; ){re.escape(field)}: .*{re.escape(expected)}"):
        load_settings(overrides={"media": values})


def test_no_server_is_asked_unless_it_is_named() -> None:
    settings = MediaSettings()
    assert (settings.stun_servers, settings.turn_server) == ((), None)


@given(st.text(max_size=60), st.booleans())
def test_any_text_is_a_server_or_refused(text: str, turn: bool) -> None:
    with contextlib.suppress(ValueError):
        server = parse_server(text, turn=turn)
        assert server.host
        assert 1 <= server.port <= 65535


@given(st.lists(st.text(max_size=40), max_size=3))
def test_any_texts_are_interfaces_and_addresses_or_refused(texts: list[str]) -> None:
    for parse in (parse_interfaces, parse_advertised):
        with contextlib.suppress(ValueError):
            parse(texts)
