"""Bodies of several parts."""

from __future__ import annotations

import pytest

from signaling.sip.errors import SipError
from signaling.sip.message import Request
from signaling.sip.multipart import find_body, parts_of
from signaling.sip.parser import parse_message
from signaling.sip.uri import parse_uri
from tests.signaling.sip import corpus


def request(body: bytes, **headers: str) -> Request:
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    return Request("INVITE", parse_uri("sip:a@h"), named, body)


def test_the_parts_of_the_corpus_message_are_found() -> None:
    text, binary = parts_of(parse_message(corpus.message("mpart01")))
    assert (text.content_type, text.body) == ("text/plain", b"Hello")
    assert binary.content_type == "application/octet-stream"
    # A DER sequence tells its own length.
    assert len(binary.body) == 4 + int.from_bytes(binary.body[2:4], "big")


def test_the_description_is_found_between_others() -> None:
    body = (
        b"preamble\r\n--xy\r\nContent-Type: application/isup\r\nContent-Disposition: signal;handling=optional\r\n\r\n"
        b"\x01\x02\r\n--xy\r\ncontent-type: Application/SDP;x=y\r\n\r\nv=0\r\n\r\n--xy--\r\nepilogue"
    )
    message = request(body, Content_Type='multipart/mixed; boundary="xy"')
    assert find_body(message, "application/sdp") == b"v=0\r\n"
    assert [part.optional for part in parts_of(message)] == [True, False]


def test_a_body_that_nobody_knows_is_415_unless_it_is_optional() -> None:
    assert find_body(request(b""), "application/sdp") is None
    optional = request(b"x", Content_Type="text/plain", Content_Disposition="render;handling=optional")
    assert find_body(optional, "application/sdp") is None
    with pytest.raises(SipError) as caught:
        find_body(request(b"x", Content_Type="text/plain"), "application/sdp")
    assert caught.value.status == 415
    assert ("Accept", "application/sdp") in caught.value.headers


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("multipart/mixed", b"--x\r\n\r\na\r\n--x--", 400),
        ("multipart/mixed;boundary=x", b"--x\r\n\r\nno end", 400),
        ("multipart/mixed;boundary=x", b"--x\r\nbad line\r\n\r\na\r\n--x--", 400),
        ("multipart/mixed;boundary=x", b"\r\n--x\r\n\r\na" * 40 + b"\r\n--x--", 413),
    ],
)
def test_a_malformed_multipart_is_refused(kind: str, body: bytes, status: int) -> None:
    with pytest.raises(SipError) as caught:
        parts_of(request(body, Content_Type=kind))
    assert caught.value.status == status


def test_multiparts_within_multiparts_have_an_end() -> None:
    body = b"deep"
    kind = "text/plain"
    for level in range(6):
        mark = b"b%d" % level
        body = b"--" + mark + b"\r\nContent-Type: " + kind.encode() + b"\r\n\r\n" + body + b"\r\n--" + mark + b"--"
        kind = f"multipart/mixed;boundary=b{level}"
    with pytest.raises(SipError) as caught:
        parts_of(request(body, Content_Type=kind))
    assert caught.value.status == 413
