"""The torture messages, limits, and whatever a mutation makes of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signaling.sip.fields import NameAddr
from signaling.sip.message import Request, Response
from signaling.sip.parser import MAX_HEAD_BYTES, UnreadableMessage, parse_message
from signaling.sip.uri import Uri
from tests.signaling.sip import corpus

OPTIONS = (
    b"OPTIONS sip:a@example.com SIP/2.0\r\nVia: SIP/2.0/UDP h;branch=z9hG4bK1\r\nFrom: <sip:b@h>;tag=1\r\n"
    b"To: <sip:a@example.com>\r\nCall-ID: x\r\nCSeq: 1 OPTIONS\r\n"
)


def test_the_corpus_is_whole() -> None:
    assert set(corpus.names()) == set(corpus.TAKEN) | set(corpus.REFUSED)


@pytest.mark.parametrize("name", corpus.TAKEN)
def test_a_valid_message_is_taken_and_written_again_without_loss(name: str) -> None:
    message = parse_message(corpus.message(name))
    again = parse_message(message.to_bytes())
    assert type(again) is type(message)
    assert again.start_line == message.start_line
    assert again.body == message.body
    assert [item for item in again.headers if item[0] != "Content-Length"] == [
        item for item in message.headers if item[0] != "Content-Length"
    ]


@pytest.mark.parametrize(("name", "status"), corpus.REFUSED.items())
def test_an_invalid_message_is_refused_with_its_code(name: str, status: int) -> None:
    with pytest.raises(UnreadableMessage) as caught:
        parse_message(corpus.message(name))
    assert caught.value.status == status
    answerable = name not in corpus.UNANSWERED
    assert (caught.value.partial is not None) == answerable
    if caught.value.partial is not None:
        refusal = Response.to_request(caught.value.partial, status, tag="t").to_bytes()
        assert refusal.startswith(f"SIP/2.0 {status} ".encode())
        assert b"\r\nVia: " in refusal


def test_folded_and_compact_fields_are_read() -> None:
    message = parse_message(corpus.message("wsinv"))
    assert isinstance(message, Request)
    assert message.recipient.tag == "1918181833n"
    assert message.sender.display == 'J Rosenberg \\"'
    assert message.cseq.number == 9
    assert [via.split()[-1] for via in message.headers.values("Via")][:1] == ["192.0.2.2;branch=390skdjuw"]
    assert len(message.headers.values("Via")) == 3
    assert message.contacts[0].params == (("newparam", "newvalue"), ("secondparam", None), ("q", "0.33"))
    assert message.headers.get("Subject") == ""
    assert message.headers.get("Newfangledheader") == "newfangled value continued newfangled value"


def test_an_escaped_uri_is_kept_as_written_and_read_without_escapes() -> None:
    message = parse_message(corpus.message("esc01"))
    assert isinstance(message, Request)
    assert message.uri.user_text == "sips:user@example.com"
    assert str(message.uri) == "sip:sips%3Auser%40example.com@example.net"
    contact = message.contacts[0].uri
    assert contact.user_text == "caller"
    assert contact.param("lr") == ""
    assert contact.param("name") == "value%41"


def test_bytes_after_the_body_are_cut_off() -> None:
    assert parse_message(OPTIONS + b"Content-Length: 3\r\n\r\nabcdef").body == b"abc"
    assert parse_message(OPTIONS + b"\r\nabcdef").body == b"abcdef"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (OPTIONS + b"X: " + b"a" * 9000 + b"\r\n\r\n", 513),
        (OPTIONS + b"X: y\r\n" * 300 + b"\r\n", 513),
        (OPTIONS + b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", 513),
        (OPTIONS + b"\r\n" + b"a" * 70_000, 513),
        (OPTIONS + b"Contact: <sip:a@b>" + b",<sip:a@b>" * 200 + b"\r\n\r\n", 513),
        (OPTIONS + b"X: a\rb\r\n\r\n", 400),
        (OPTIONS + b"X: a\nInjected: b\r\n\r\n", 400),
        (OPTIONS + b"X: a\x00b\r\n\r\n", 400),
        (OPTIONS, 400),
        (b"", 400),
        (b"\r\n\r\n", 400),
        (b"SIP/2.0 099 low\r\n\r\n", 400),
        (b"SIP/2.0 700 high\r\n\r\n", 400),
        (b"SIP/3.0 200 OK\r\n\r\n", 400),
    ],
)
def test_what_is_too_large_or_no_message_is_refused(data: bytes, status: int) -> None:
    with pytest.raises(UnreadableMessage) as caught:
        parse_message(data)
    assert caught.value.status == status


def test_an_unreadable_ack_is_never_answered() -> None:
    with pytest.raises(UnreadableMessage) as caught:
        parse_message(OPTIONS.replace(b"OPTIONS", b"ACK").replace(b"CSeq: 1 ACK", b"CSeq: 1 BYE") + b"\r\n")
    assert caught.value.partial is None


WORD = st.text("abcXYZ019-._~!*", min_size=1, max_size=12)
TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x00"), max_size=40).map(str.strip)


@given(
    method=st.sampled_from(["INVITE", "BYE", "X-Own"]),
    fields=st.lists(st.tuples(WORD.map(lambda word: "X-" + word.replace("~", "a")), TEXT), max_size=8),
    body=st.binary(max_size=200),
    display=TEXT,
)
@settings(max_examples=150, deadline=None)
def test_what_is_written_is_read_back(method: str, fields: list, body: bytes, display: str) -> None:
    request = Request(method, Uri.sip("a b;c", "2001:db8::1", 5061, (("lr", None),)), body=body)
    shown = "".join(char for char in display if char >= " " and char != "\x7f")
    request.headers.add("Via", "SIP/2.0/UDP [2001:db8::2]:5060;branch=z9hG4bKx;rport")
    request.headers.add("From", str(NameAddr(Uri.sip("é", "h"), display, (("tag", "1"),))))
    request.headers.add("CSeq", f"7 {method}")
    for name, value in fields:
        request.headers.add(name, value)
    again = parse_message(request.to_bytes())
    assert isinstance(again, Request)
    assert (again.method, again.uri, again.body) == (method, request.uri, body)
    assert again.uri.user_text == "a b;c"
    assert again.sender.display == shown
    assert again.sender.uri.user_text == "é"
    for name, _ in fields:
        assert [" ".join(v.split()) for v in again.headers.all(name)] == [
            " ".join(v.split()) for v in request.headers.all(name)
        ]


@given(name=st.sampled_from(corpus.TAKEN), seed=st.integers(0, 1 << 30))
@settings(max_examples=400, deadline=None)
def test_a_mutated_message_is_taken_or_refused_and_never_breaks_anything(name: str, seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(corpus.message(name))
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(data))
        what = chance.randrange(4)
        if what == 0:
            data[at] = chance.randrange(256)
        elif what == 1:
            del data[at : at + chance.randint(1, 40)]
        elif what == 2:
            data[at:at] = bytes(chance.choice(b'\r\n :;,<>"@%\\=\x00\xff') for _ in range(chance.randint(1, 6)))
        else:
            data[at:at] = data[at : at + chance.randint(1, 200)]
        if not data:
            return
    try:
        message = parse_message(bytes(data))
    except UnreadableMessage as fault:
        if fault.partial is not None:
            Response.to_request(fault.partial, fault.status, tag="t").to_bytes()
        return
    assert parse_message(message.to_bytes()).start_line == message.start_line
