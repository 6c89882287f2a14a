"""Header values in their parts."""

from __future__ import annotations

import pytest

from signaling.sip.errors import SipError
from signaling.sip.fields import CSeq, RAck, Replaces, Via, check_date, parse_addresses, parse_delta, parse_name_addr
from signaling.sip.headers import Headers, canonical_name


def test_a_bare_address_gives_its_parameters_to_the_field() -> None:
    bare = parse_name_addr("sip:a@h;tag=1", "From")
    bracketed = parse_name_addr("<sip:a@h;transport=tcp>;tag=1", "From")
    assert (bare.tag, bare.uri.params) == ("1", ())
    assert (bracketed.tag, bracketed.uri.param("transport")) == ("1", "tcp")


def test_commas_in_quotes_and_brackets_do_not_split() -> None:
    found = parse_addresses(['"Bell, A." <sip:a,b@h>;q=0.2, <sip:c@h>'], "Contact")
    assert [(item.display, item.uri.user) for item in found] == [("Bell, A.", "a,b"), ("", "c")]


@pytest.mark.parametrize("value", ["<sip:a@h", '"x" sip:a@h', "<sip:a@h>tag=1", "sip:a@h?x=y", "", "<>", '"<sip:a@h>'])
def test_a_malformed_address_is_refused(value: str) -> None:
    with pytest.raises(SipError):
        parse_name_addr(value, "To")


def test_via_knows_ipv6_ports_and_the_cookie() -> None:
    via = Via.parse("SIP / 2.0 / udp [2001:db8::9]:5070 ;branch=z9hG4bKabc;rport")
    assert (via.transport, via.host, via.port, via.sent_by) == ("UDP", "2001:db8::9", 5070, "[2001:db8::9]:5070")
    assert via.has_cookie
    assert via.param("rport") == ""
    assert str(via.with_param("rport", "9")) == "SIP/2.0/UDP [2001:db8::9]:5070;branch=z9hG4bKabc;rport=9"
    assert not Via.parse("SIP/2.0/UDP h;branch=z9hG4bK").has_cookie


@pytest.mark.parametrize(
    "value", ["SIP/2.0/UDP", "SIP/1.0/UDP h", "HTTP/2.0/UDP h", "SIP/2.0/UDP h:99999", "SIP/2.0/UDP h;;"]
)
def test_a_malformed_via_is_refused(value: str) -> None:
    with pytest.raises(SipError):
        Via.parse(value)


def test_numbers_have_limits() -> None:
    assert CSeq.parse("2147483647 INVITE") == CSeq(2147483647, "INVITE")
    with pytest.raises(SipError):
        CSeq.parse("2147483648 INVITE")
    with pytest.raises(SipError):
        CSeq.parse("1" * 5000 + " INVITE")
    assert CSeq.parse("0" * 5000 + "7 INVITE").number == 7
    assert parse_delta("1800;refresher=uac", "Session-Expires") == 1800
    assert parse_delta("120 (I'm in a meeting)", "Retry-After") == 120


def test_rack_and_replaces_are_written_as_they_are_read() -> None:
    assert str(RAck.parse("776656 1 INVITE")) == "776656 1 INVITE"
    replaces = Replaces.parse("98732@h;from-tag=a;to-tag=b;early-only")
    assert (replaces.to_tag, replaces.from_tag, replaces.early_only) == ("b", "a", True)
    assert Replaces.parse(str(replaces)) == replaces
    with pytest.raises(SipError):
        Replaces.parse("98732@h;from-tag=a")


def test_dates_are_in_gmt() -> None:
    check_date("Sat, 13 Nov 2010 23:29:00 GMT")
    with pytest.raises(SipError):
        check_date("Sat, 13 Nov 2010 23:29:00 EST")


def test_names_have_no_case_and_compact_forms() -> None:
    headers = Headers([("v", "a"), ("VIA", "b, c"), ("call-id", "x")])
    assert headers.values("Via") == ["a", "b", "c"]
    assert "Call-ID" in headers
    assert [canonical_name(n) for n in ("l", "cseq", "x-own")] == ["Content-Length", "CSeq", "X-Own"]


def test_no_value_can_smuggle_in_a_field() -> None:
    headers = Headers()
    for bad in ("a\r\nEvil: 1", "a\nb"):
        with pytest.raises(ValueError, match="line breaks"):
            headers.add("Subject", bad)
    with pytest.raises(ValueError, match="token"):
        headers.add("Evil: x", "a")
