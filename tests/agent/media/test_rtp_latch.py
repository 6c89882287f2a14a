"""Whose RTP is believed, and where it goes."""

from __future__ import annotations

from agent.media.rtp_latch import PROBATION_PACKETS, Latch

SAID = ("192.0.2.1", 4000)
NAT = ("203.0.113.9", 61000)
STRANGER = ("198.51.100.66", 5004)


def described(*, known: bool = True) -> Latch:
    latch = Latch(allowance=3)
    latch.describe(SAID, known=known)
    return latch


def test_the_described_address_is_heard_at_once_and_shuts_everybody_else_out() -> None:
    latch = described()
    assert latch.take(SAID, 1)
    assert not any(latch.take(STRANGER, 7) for _ in range(50))
    assert latch.target == SAID
    assert latch.refused == 50


def test_a_telephone_behind_a_nat_is_believed_after_its_first_packets_only() -> None:
    latch = described()
    taken = [latch.take(NAT, 1) for _ in range(PROBATION_PACKETS + 1)]
    assert taken == [False] * (PROBATION_PACKETS - 1) + [True, True]
    assert latch.target == NAT
    assert not any(latch.take(STRANGER, 2) for _ in range(20))


def test_packets_of_two_unknown_sources_between_each_other_prove_neither() -> None:
    latch = described()
    assert not any(latch.take((NAT, STRANGER)[i % 2], i % 2) for i in range(20))
    assert latch.target == SAID


def test_another_ssrc_of_an_unknown_source_starts_its_proof_again() -> None:
    latch = described()
    assert not any(latch.take(NAT, ssrc) for ssrc in range(20))


def test_the_described_address_wins_over_one_that_was_believed_before() -> None:
    latch = described()
    for _ in range(PROBATION_PACKETS):
        latch.take(NAT, 1)
    assert latch.take(SAID, 1)
    assert latch.target == SAID


def test_a_new_description_with_another_port_moves_the_stream() -> None:
    latch = described()
    latch.take(SAID, 1)
    latch.describe(("192.0.2.1", 4002), known=True)
    assert latch.target == ("192.0.2.1", 4002)
    assert latch.take(("192.0.2.1", 4002), 1)


def test_a_hold_with_the_same_description_keeps_the_address_that_was_learned() -> None:
    latch = described()
    for _ in range(PROBATION_PACKETS):
        latch.take(NAT, 1)
    latch.describe(SAID, known=True)
    assert latch.target == NAT
    assert latch.take(NAT, 1)


def test_after_a_reinvite_the_telephone_may_come_from_elsewhere() -> None:
    latch = described()
    for _ in range(PROBATION_PACKETS):
        latch.take(NAT, 1)
    latch.describe(SAID, known=True)
    moved = ("203.0.113.9", 61999)
    assert [latch.take(moved, 1) for _ in range(PROBATION_PACKETS)][-1]
    assert latch.target == moved


def test_a_third_partys_address_gets_no_more_than_the_allowance() -> None:
    latch = described(known=False)
    assert [latch.may_send() for _ in range(6)] == [True, True, True, False, False, False]
    latch.describe(("192.0.2.77", 9), known=False)
    assert not latch.may_send()


def test_who_sends_something_is_no_third_party() -> None:
    latch = described(known=False)
    latch.take(SAID, 1)
    assert all(latch.may_send() for _ in range(10))


def test_the_host_of_the_signalling_needs_no_proof() -> None:
    latch = described(known=True)
    assert all(latch.may_send() for _ in range(10))


def test_nothing_is_sent_before_there_is_a_description() -> None:
    assert not Latch().may_send()


def test_rtcp_may_come_from_any_port_of_the_peer() -> None:
    latch = described()
    assert latch.is_peer(SAID[0])
    assert not latch.is_peer(STRANGER[0])
