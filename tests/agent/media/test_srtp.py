"""SRTP with SDES keys."""

from __future__ import annotations

import pytest

from agent.media.rtcp import build_bye, build_report
from agent.media.rtp import build_rtp
from agent.media.rtp_session import SrtpKey, SrtpSuite
from agent.media.srtp import Cipher

PACKET = build_rtp(0, False, 7, 160, 99, b"\x55" * 160)


@pytest.mark.parametrize("suite", ["AES_CM_128_HMAC_SHA1_80", "AES_CM_128_HMAC_SHA1_32"])
def test_what_one_side_encrypts_the_other_reads(suite: SrtpSuite) -> None:
    ours, theirs = SrtpKey(suite, bytes(range(30))), SrtpKey(suite, bytes(range(30, 60)))
    a, b = Cipher(ours, theirs), Cipher(theirs, ours)
    sealed = a.protect(PACKET)
    assert sealed[12:172] != PACKET[12:]
    assert b.unprotect(sealed) == PACKET
    report = build_report(99, None, None, "x") + build_bye(99)
    assert b.unprotect_rtcp(a.protect_rtcp(report)) == report


def test_a_changed_packet_and_one_that_comes_again_are_refused() -> None:
    key = SrtpKey("AES_CM_128_HMAC_SHA1_80", bytes(30))
    a, b = Cipher(key, key), Cipher(key, key)
    sealed = a.protect(PACKET)
    assert b.unprotect(sealed[:-1] + bytes([sealed[-1] ^ 1])) is None
    assert b.unprotect(sealed) == PACKET
    assert b.unprotect(sealed) is None
    assert b.unprotect(PACKET) is None
    assert b.unprotect_rtcp(b"\x80\xc9\x00\x01") is None


def test_without_keys_packets_pass_as_they_are() -> None:
    plain = Cipher(None, None)
    assert plain.protect(PACKET) == PACKET == plain.unprotect(PACKET)
    assert plain.protect_rtcp(PACKET) == PACKET == plain.unprotect_rtcp(PACKET)


def test_a_key_does_not_show_in_a_log() -> None:
    assert "key=" not in repr(SrtpKey("AES_CM_128_HMAC_SHA1_80", b"s" * 30))
