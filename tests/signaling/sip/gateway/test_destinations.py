"""Where calls and transfers may go."""

from __future__ import annotations

import pytest

from agent.config import SipSettings
from agent.errors import ConfigError, ProtocolError
from signaling.sip.gateway.destinations import Destinations, proxy_of
from signaling.sip.peer import Peer


def destinations(**sip: object) -> Destinations:
    return Destinations(SipSettings(**sip))


def test_nothing_is_allowed_unless_it_is_named() -> None:
    for to in ("+493012345", "sip:200@pbx.example"):
        with pytest.raises(ProtocolError) as caught:
            destinations(number_domain="trunk.example").find(to)
        assert caught.value.code == "403"


@pytest.mark.parametrize(
    ("to", "uri"),
    [
        ("+49 (30) 123-45", "sip:+493012345@trunk.example:5070"),
        ("+49.30.12345", "sip:+493012345@trunk.example:5070"),
        ("012", "sip:012@trunk.example:5070"),
        ("sip:200@PBX.example;transport=tcp", "sip:200@PBX.example;transport=tcp"),
        ("sales", "sip:300@pbx.example"),
    ],
)
def test_numbers_addresses_and_names_are_found(to: str, uri: str) -> None:
    found = destinations(
        dial=("+49*", "012", "sip:2*@pbx.example"),
        destinations={"sales": "sip:300@pbx.example"},
        number_domain="trunk.example:5070",
    ).find(to)
    assert str(found) == uri


@pytest.mark.parametrize("to", ["+4930 12345", "sip:+493012345@trunk.example", "+1900555", "sip:200@pbx.example.evil"])
def test_a_pattern_covers_no_more_than_it_says(to: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        destinations(dial=("+4940*", "sip:*@pbx.example"), number_domain="trunk.example").find(to)
    assert caught.value.code == "403"


@pytest.mark.parametrize(
    "to", ["", "x" * 300, "nobody", "tel:+49", "sip:", "sip:a:secret@h", "sip:a@h?Replaces=x", "+49\r\nTo: x", "١٢٣"]
)
def test_what_is_no_destination_is_refused_with_what_was_expected(to: str) -> None:
    with pytest.raises(ProtocolError, match="expected"):
        destinations(dial=("*",), number_domain="h").find(to)


def test_a_number_goes_to_the_proxy_or_the_peer_when_no_domain_is_set() -> None:
    assert str(destinations(dial=("*",), proxy="sip:proxy.example:5080;transport=tcp").find("200")) == (
        "sip:200@proxy.example:5080"
    )
    assert str(destinations(dial=("*",)).find("200", numbers_at=("192.0.2.7", 5060))) == "sip:200@192.0.2.7:5060"
    with pytest.raises(ProtocolError, match="number_domain"):
        destinations(dial=("*",)).find("200")


def test_the_proxy_is_read_with_its_transport() -> None:
    assert proxy_of(SipSettings()) is None
    assert proxy_of(SipSettings(proxy="sip:192.0.2.1;transport=tcp")) == Peer("tcp", "192.0.2.1", 5060)
    assert proxy_of(SipSettings(proxy="sips:proxy.example")) == Peer("tls", "proxy.example", 5061)


@pytest.mark.parametrize("sip", [{"proxy": "proxy.example"}, {"destinations": {"sales": "nowhere"}}])
def test_wrong_settings_are_named(sip: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"sip.{next(iter(sip))}"):
        destinations(**sip)
