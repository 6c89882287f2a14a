"""Messages out of a stream, however it is cut."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signaling.sip.framing import BrokenStream, Framer, Ping, Pong
from signaling.sip.message import Request
from signaling.sip.parser import UnreadableMessage
from tests.signaling.sip import corpus

FIRST = (
    b"OPTIONS sip:a@h SIP/2.0\r\nVia: SIP/2.0/TCP h;branch=z9hG4bK1\r\nFrom: <sip:b@h>;tag=1\r\nTo: <sip:a@h>\r\n"
    b"Call-ID: x\r\nCSeq: 1 OPTIONS\r\nContent-Length: 5\r\n\r\nhello"
)
SECOND = FIRST.replace(b"hello", b"").replace(b"Length: 5", b"Length: 0").replace(b"CSeq: 1", b"CSeq: 2")


@given(cuts=st.lists(st.integers(1, 400), max_size=6))
@settings(max_examples=60, deadline=None)
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    data = FIRST + b"\r\n\r\n" + SECOND + FIRST
    framer = Framer()
    found = []
    start = 0
    for cut in [*sorted(cuts), len(data)]:
        found += framer.feed(data[start:cut])
        start = max(start, cut)
    requests = [item for item in found if isinstance(item, Request)]
    assert [(item.cseq.number, item.body) for item in requests] == [(1, b"hello"), (2, b""), (1, b"hello")]
    # One keep-alive that was cut in two reads as two answers to one: no harm either way.
    assert all(isinstance(item, (Ping, Pong)) for item in found if not isinstance(item, Request))
    assert not framer.waiting


def test_keep_alives_are_told_from_their_answers() -> None:
    framer = Framer()
    assert framer.feed(b"\r\n\r\n") == [Ping()]
    assert framer.feed(b"\r\n") == [Pong()]
    assert framer.feed(b"\r\n\r") == []
    assert framer.feed(b"\n") == [Ping()]


def test_a_malformed_message_of_known_length_is_skipped() -> None:
    bad = FIRST.replace(b"CSeq: 1 OPTIONS", b"CSeq: 1 INVITE")
    fault, good = Framer().feed(bad + SECOND)
    assert isinstance(fault, UnreadableMessage)
    assert fault.partial is not None
    assert isinstance(good, Request)


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (FIRST.replace(b"Content-Length: 5\r\n", b""), 400),
        (FIRST.replace(b"Length: 5", b"Length: -5"), 400),
        (FIRST.replace(b"Length: 5", b"Length: 99999999"), 513),
        (FIRST.replace(b"Length: 5", b"Length: 5\r\nl: 6"), 400),
        (corpus.message("mcl01"), 400),
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"x" * 40_000, 513),
    ],
)
def test_a_stream_whose_next_message_cannot_be_found_is_given_up(data: bytes, status: int) -> None:
    framer = Framer()
    found = framer.feed(data + SECOND)
    assert [type(item) for item in found] == [BrokenStream]
    assert found[0].fault.status == status
    assert framer.feed(SECOND) == []


def test_half_a_message_waits() -> None:
    framer = Framer()
    framer.feed(FIRST[:-2])
    assert framer.waiting
    assert len(framer.feed(FIRST[-2:])) == 1
