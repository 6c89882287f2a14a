"""Offer and answer between two sides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.media.codec import G722, OPUS, PCMA, PCMU
from signaling.sip.errors import SipError, WrongState
from signaling.sip.negotiation import LocalMedia, Negotiation
from signaling.sip.sdp import parse_sdp

HERE = LocalMedia("10.0.0.1", 4000)
THERE = LocalMedia("10.0.0.2", 5000)


def agree(caller: Negotiation, callee: Negotiation) -> None:
    callee.offered(caller.offer())
    caller.answered(callee.answer())


def test_both_sides_agree_on_the_offerer_s_first_codec() -> None:
    caller = Negotiation(replace(HERE, codecs=(G722, PCMA)))
    callee = Negotiation(THERE)
    agree(caller, callee)
    assert caller.agreement is not None
    assert callee.agreement is not None
    assert caller.agreement.codec == callee.agreement.codec == G722
    assert (caller.agreement.remote_address, caller.agreement.remote_port) == ("10.0.0.2", 5000)
    assert (callee.agreement.event_type, callee.agreement.event_clock_hz) == (101, 8000)
    assert caller.agreement.local_crypto is None


def test_opus_takes_telephone_events_at_its_own_clock() -> None:
    caller, callee = Negotiation(replace(HERE, codecs=(OPUS, PCMU))), Negotiation(THERE)
    agree(caller, callee)
    assert callee.agreement is not None
    assert (callee.agreement.codec, callee.agreement.event_clock_hz) == (OPUS, 48000)


def test_sdes_keys_are_exchanged_and_kept_on_a_new_offer() -> None:
    caller, callee = Negotiation(replace(HERE, offer_secure=True)), Negotiation(THERE)
    agree(caller, callee)
    first = callee.agreement
    assert first is not None
    assert caller.agreement is not None
    assert caller.agreement.local_crypto == first.remote_crypto
    assert caller.agreement.remote_crypto == first.local_crypto
    assert first.local_crypto != first.remote_crypto
    agree(callee, caller)
    assert callee.agreement == first


@pytest.mark.parametrize(
    ("media", "offer_secure"),
    [(replace(THERE, need_secure=True), False), (replace(THERE, take_secure=False), True),
     (replace(THERE, codecs=(OPUS,)), False)],
)  # fmt: skip
def test_what_does_not_fit_is_488(media: LocalMedia, offer_secure: bool) -> None:
    caller = Negotiation(replace(HERE, codecs=(PCMU,), offer_secure=offer_secure))
    with pytest.raises(SipError) as caught:
        Negotiation(media).offered(caller.offer())
    assert caught.value.status == 488


def test_hold_and_resume_are_seen_by_both() -> None:
    caller, callee = Negotiation(HERE), Negotiation(THERE)
    agree(caller, callee)
    caller.set_direction("sendonly")
    agree(caller, callee)
    assert callee.agreement is not None
    assert caller.agreement is not None
    assert (caller.agreement.direction, callee.agreement.direction) == ("sendonly", "recvonly")
    assert callee.agreement.on_hold
    caller.set_direction("sendrecv")
    agree(caller, callee)
    assert (caller.agreement.direction, callee.agreement.direction) == ("sendrecv", "sendrecv")
    caller.set_direction("inactive")
    callee.set_direction("sendonly")
    agree(callee, caller)
    assert (caller.agreement.direction, callee.agreement.direction) == ("inactive", "inactive")


def test_the_version_goes_up_only_when_the_text_changes() -> None:
    caller, callee = Negotiation(HERE), Negotiation(THERE)
    agree(caller, callee)
    versions = []
    for direction in ("sendrecv", "sendonly", "sendonly"):
        caller.set_direction(direction)
        offer = caller.offer()
        versions.append(parse_sdp(offer).version)
        callee.offered(offer)
        caller.answered(callee.answer())
    assert versions == [1, 2, 2]


def test_one_offer_at_a_time() -> None:
    caller, callee = Negotiation(HERE), Negotiation(THERE)
    offer = caller.offer()
    with pytest.raises(WrongState):
        caller.offer()
    with pytest.raises(SipError) as glare:
        caller.offered(offer)
    callee.offered(offer)
    with pytest.raises(SipError) as twice:
        callee.offered(offer)
    assert (glare.value.status, twice.value.status) == (491, 500)
    with pytest.raises(WrongState):
        Negotiation(HERE).answer()


def test_a_refused_offer_leaves_what_was_agreed() -> None:
    caller, callee = Negotiation(HERE), Negotiation(THERE)
    agree(caller, callee)
    before = caller.agreement
    caller.set_direction("inactive")
    caller.offer()
    caller.withdraw()
    assert caller.agreement == before
    agree(callee, caller)


def test_a_stream_that_is_switched_off_is_answered_so() -> None:
    caller, callee = Negotiation(HERE), Negotiation(THERE)
    agree(caller, callee)
    off = caller.offer().replace(b"m=audio 4000", b"m=audio 0")
    callee.offered(off)
    assert b"m=audio 0 " in callee.answer()
    assert callee.agreement is None


@pytest.mark.parametrize(
    "change",
    [(b"m=audio 5000", b"m=audio 0"), (b"RTP/AVP 0", b"RTP/SAVP 0"), (b"a=rtpmap:0 PCMU", b"a=rtpmap:0 GSM")],
)
def test_an_answer_that_does_not_fit_is_refused(change: tuple[bytes, bytes]) -> None:
    caller, callee = Negotiation(HERE), Negotiation(THERE)
    callee.offered(caller.offer())
    answer = callee.answer()
    assert change[0] in answer
    with pytest.raises(SipError):
        caller.answered(answer.replace(*change))
    caller.offer()
