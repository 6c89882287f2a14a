"""URIs: parts, escapes, equality (RFC 3261 section 19.1)."""

from __future__ import annotations

import pytest

from signaling.sip.errors import SipError
from signaling.sip.uri import Uri, parse_uri


@pytest.mark.parametrize(
    "text",
    [
        "sip:alice@atlanta.com",
        "sip:alice:secretword@atlanta.com;transport=tcp",
        "sips:alice@atlanta.com?subject=project%20x&priority=urgent",
        "sip:+1-212-555-1212:1234@gateway.com;user=phone",
        "sip:atlanta.com;method=REGISTER?to=alice%40atlanta.com",
        "sip:[2001:db8::10]:5070;lr",
        "sip:alice;day=tuesday@atlanta.com",
        "tel:+15551234;phone-context=example.com",
    ],
)
def test_a_uri_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_uri(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "sip:", "sip:@h", "sip:a@", "sip:a@h:x", "sip:a@h:70000", "sip:a b@h", "sip:a@h;", "sip:a@h?", "sip:a@[::1",
     "sip:a@[zz]", "alice", "sip:a%zz@h", "sip:a@h\r\n", "sip:" + "a" * 5000 + "@h"],
)  # fmt: skip
def test_a_malformed_uri_is_refused(text: str) -> None:
    with pytest.raises(SipError):
        parse_uri(text)


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ("sip:%61lice@atlanta.com;transport=TCP", "sip:alice@AtLanTa.CoM;Transport=tcp", True),
        ("sip:carol@chicago.com", "sip:carol@chicago.com;newparam=5", True),
        ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;newparam=5", True),
        ("sip:a@h?subject=x&priority=u", "sip:a@h?priority=u&subject=x", True),
        ("SIP:ALICE@AtLanTa.CoM", "sip:alice@AtLanTa.CoM", False),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com:5060", False),
        ("sip:bob@biloxi.com", "sip:bob@biloxi.com;transport=udp", False),
        ("sip:carol@chicago.com", "sip:carol@chicago.com?Subject=next%20meeting", False),
        ("sip:carol@chicago.com;security=on", "sip:carol@chicago.com;security=off", False),
        ("sip:a@h", "sips:a@h", False),
    ],
)
def test_equality_is_that_of_the_rfc(a: str, b: str, same: bool) -> None:
    assert parse_uri(a).same_as(parse_uri(b)) is same
    assert parse_uri(b).same_as(parse_uri(a)) is same


def test_a_user_of_plain_text_is_escaped() -> None:
    uri = Uri.sip("a@b <c>", "h")
    assert str(uri) == "sip:a%40b%20%3Cc%3E@h"
    assert parse_uri(str(uri)).user_text == "a@b <c>"


def test_a_header_part_carries_replaces() -> None:
    uri = parse_uri("sip:a@h").with_header("Replaces", "x@y;to-tag=1;from-tag=2")
    assert "?Replaces=x%40y%3Bto-tag%3D1%3Bfrom-tag%3D2" in str(uri)
    assert parse_uri(str(uri)).header("replaces") == "x@y;to-tag=1;from-tag=2"


def test_the_transport_is_told_by_scheme_and_parameter() -> None:
    wanted = {"sip:h": "udp", "sip:h;transport=TCP": "tcp", "sips:h": "tls", "sip:h;transport=tls": "tls"}
    assert {text: parse_uri(text).transport for text in wanted} == wanted
