"""Descriptions as telephones write them, and as attackers do."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.media.codec import G722, OPUS, PCMA, PCMU
from signaling.sip.errors import SipError
from signaling.sip.sdp import Crypto, Session, parse_sdp, write_sdp

KEY = base64.b64encode(bytes(range(30))).decode()
PHONE = """v=0
o=user1 53655765 2353687637 IN IP4 192.0.2.5
s=-
c=IN IP4 192.0.2.5
t=0 0
m=audio 6000 RTP/AVP 9 0 8 101 18
a=rtpmap:101 telephone-event/8000
a=fmtp:101 0-15
a=rtpmap:18 G729/8000
a=ptime:30
"""


def read(text: str) -> Session:
    return parse_sdp(text.replace("\n", "\r\n").encode())


def test_static_types_need_no_rtpmap() -> None:
    audio = read(PHONE).audio
    assert [item.codec for item in audio.formats] == [G722, PCMU, PCMA]
    assert audio.events == ((101, 8000),)
    assert (audio.address, audio.port, audio.ptime_ms, audio.direction) == ("192.0.2.5", 6000, 30, "sendrecv")


def test_an_rtpmap_overrides_a_static_type() -> None:
    audio = read(PHONE + "a=rtpmap:0 opus/48000/2\n").audio
    assert [item.codec for item in audio.formats] == [G722, OPUS, PCMA]


@pytest.mark.parametrize(
    ("more", "direction"),
    [
        ("a=sendonly\n", "sendonly"),
        ("a=inactive\n", "inactive"),
        ("a=recvonly\n", "recvonly"),
        ("c=IN IP4 0.0.0.0\n", "sendonly"),
        ("c=IN IP4 0.0.0.0\na=sendonly\n", "sendonly"),
        ("c=IN IP4 0.0.0.0\na=inactive\n", "inactive"),
        ("c=IN IP4 0.0.0.0\na=recvonly\n", "inactive"),
        ("c=IN IP6 ::\n", "sendonly"),
    ],
)
def test_hold_is_read_in_every_spelling(more: str, direction: str) -> None:
    assert read(PHONE + more).audio.direction == direction


def test_a_direction_of_the_session_holds_for_the_stream() -> None:
    assert read(PHONE.replace("t=0 0\n", "t=0 0\na=inactive\n")).audio.direction == "inactive"


def test_sdes_keys_that_we_cannot_use_are_left_out() -> None:
    lines = (
        f"a=crypto:1 AES_CM_256_HMAC_SHA1_80 inline:{KEY}\n"
        "a=crypto:2 AES_CM_128_HMAC_SHA1_80 inline:short\n"
        f"a=crypto:3 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^20|1:4\n"
        f"a=crypto:4 AES_CM_128_HMAC_SHA1_80 inline:{KEY} UNENCRYPTED_SRTP\n"
        f"a=crypto:5 AES_CM_128_HMAC_SHA1_80 inline:{KEY}|2^31\n"
        f"a=crypto:6 aes_cm_128_hmac_sha1_32 INLINE:{KEY}\n"
    )
    audio = read(PHONE.replace("RTP/AVP", "RTP/SAVP") + lines).audio
    assert audio.secure
    assert [(item.tag, item.suite) for item in audio.crypto] == [
        (5, "AES_CM_128_HMAC_SHA1_80"),
        (6, "AES_CM_128_HMAC_SHA1_32"),
    ]
    assert audio.crypto[0].key == bytes(range(30))


def test_no_key_shows_in_a_log() -> None:
    assert KEY not in repr(Crypto(1, "AES_CM_128_HMAC_SHA1_80", bytes(range(30))))
    assert "x01" not in repr(Crypto(1, "AES_CM_128_HMAC_SHA1_80", bytes(range(30))))


def test_other_streams_are_refused_in_their_places() -> None:
    text = PHONE.replace("m=audio", "m=video 7000 RTP/AVP 31\nm=audio") + "m=image 8000 udptl t38\n"
    session = read(text)
    written = write_sdp(session).decode()
    kinds = [line.split()[:2] for line in written.splitlines() if line.startswith("m=")]
    assert kinds == [["m=video", "0"], ["m=audio", "6000"], ["m=image", "0"]]


def test_the_first_stream_in_use_is_taken() -> None:
    text = PHONE.replace("m=audio 6000", "m=audio 0") + "m=audio 6002 RTP/SAVP 8\n"
    assert (read(text).audio.port, read(text).audio.secure) == (6002, True)


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 400),
        ("o=x\n", 400),
        ("v=0\n", 488),
        (PHONE.replace("m=audio 6000 RTP/AVP 9 0 8 101 18", "m=audio"), 400),
        (PHONE.replace("6000", "70000"), 400),
        (PHONE.replace("c=IN IP4 192.0.2.5", "b=AS:64"), 400),
        (PHONE.replace("c=IN IP4 192.0.2.5", "c=IN IP4"), 400),
        (PHONE.replace("o=user1 53655765", "o=user1 x"), 400),
        (PHONE.replace("s=-", "nonsense"), 400),
        (PHONE.replace("m=audio", "m=video"), 488),
        (PHONE.replace("RTP/AVP", "udptl"), 488),
        (PHONE + "m=video 1 RTP/AVP 31\n" * 20, 488),
        (PHONE + "a=x\n" * 20_000, 413),
        (PHONE + "a=x\n" * 2000, 400),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_code(text: str, status: int) -> None:
    with pytest.raises(SipError) as caught:
        read(text)
    assert caught.value.status == status


@given(st.data())
@settings(max_examples=300, deadline=None)
def test_a_mutated_description_is_read_or_refused(data: st.DataObject) -> None:
    text = bytearray(PHONE.replace("\n", "\r\n").encode())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(text) - 1))
        text[at : at + data.draw(st.integers(0, 12))] = data.draw(st.binary(max_size=6))
        if not text:
            return
    try:
        session = parse_sdp(bytes(text))
    except SipError:
        return
    assert parse_sdp(write_sdp(session)).audio.port == session.audio.port
