"""Key presses by RFC 4733, as browsers, phones and bad networks send them."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import MediaError
from agent.media.dtmf import DIGITS, DtmfReceiver, DtmfSender


def event(code: int, duration: int, *, end: bool = False) -> bytes:
    return struct.pack("!BBH", code, 10 | (0x80 if end else 0), duration)


def press(receiver: DtmfReceiver, code: int, timestamp: int, now: float, *, ends: int = 3) -> list[str]:
    got: list[str] = []
    for n in range(5):
        got += receiver.receive(timestamp, event(code, 160 * (n + 1)), now + n * 0.02)
    for _ in range(ends):
        got += receiver.receive(timestamp, event(code, 960, end=True), now + 0.1)
    return got


def test_three_end_packets_are_one_press() -> None:
    assert press(DtmfReceiver(), 5, 1000, 0.0) == ["5"]


@pytest.mark.parametrize("code", range(16))
def test_every_key_is_known(code: int) -> None:
    assert press(DtmfReceiver(), code, 1000, 0.0) == [DIGITS[code]]


def test_the_same_key_twice_is_two_presses() -> None:
    receiver = DtmfReceiver()
    assert press(receiver, 1, 1000, 0.0) + press(receiver, 1, 9000, 0.3) == ["1", "1"]


def test_an_end_packet_alone_is_a_press() -> None:
    assert DtmfReceiver().receive(7, event(11, 800, end=True), 0.0) == ["#"]


def test_lost_ends_are_made_up_for_by_the_next_event() -> None:
    receiver = DtmfReceiver()
    assert press(receiver, 1, 1000, 0.0, ends=0) == []
    assert press(receiver, 2, 9000, 0.2) == ["1", "2"]


def test_lost_ends_are_made_up_for_by_silence() -> None:
    receiver = DtmfReceiver()
    press(receiver, 1, 1000, 0.0, ends=0)
    assert receiver.tick(0.2) == []
    assert receiver.tick(0.4) == ["1"]
    assert receiver.tick(0.8) == []


def test_ends_that_come_after_all_are_not_counted_again() -> None:
    receiver = DtmfReceiver()
    press(receiver, 1, 1000, 0.0, ends=0)
    assert receiver.tick(0.5) == ["1"]
    assert receiver.receive(1000, event(1, 960, end=True), 0.6) == []


def test_a_long_press_stays_one_press() -> None:
    receiver = DtmfReceiver()
    got: list[str] = []
    for n in range(500):
        got += receiver.receive(1000, event(3, min(0xFFFF, n * 960)), n * 0.02) + receiver.tick(n * 0.02 + 0.01)
    got += receiver.receive(1000, event(3, 0xFFFF, end=True), 10.0)
    assert got == ["3"]


def test_a_reordered_packet_of_the_event_before_is_ignored() -> None:
    receiver = DtmfReceiver()
    press(receiver, 1, 0xFFFF_FF00, 0.0)
    receiver.receive(500, event(2, 160), 0.2)
    assert receiver.receive(0xFFFF_FE00, event(9, 160), 0.21) == []
    assert receiver.receive(500, event(2, 960, end=True), 0.3) == ["2"]


def test_other_events_and_short_payloads_are_ignored() -> None:
    receiver = DtmfReceiver()
    assert receiver.receive(1, event(66, 160, end=True), 0.0) == []
    assert receiver.receive(1, b"\x01\x80", 0.0) == []
    assert receiver.tick(9.0) == []


@given(st.lists(st.tuples(st.integers(0, 2**32 - 1), st.binary(max_size=8), st.floats(0, 0.3)), max_size=60))
def test_any_payload_gives_at_most_one_digit_a_packet(items: list[tuple[int, bytes, float]]) -> None:
    receiver, now, digits = DtmfReceiver(), 0.0, 0
    for timestamp, payload, wait in items:
        now += wait
        digits += len(receiver.receive(timestamp, payload, now) + receiver.tick(now))
    assert digits <= len(items) + 1


@pytest.mark.parametrize("clock_hz", [8_000, 48_000])
def test_what_is_sent_is_received(clock_hz: int) -> None:
    sender, receiver, got = DtmfSender(clock_hz), DtmfReceiver(), []
    sender.send("12*#ad")
    for tick in range(100):
        sent = sender.tick(tick * clock_hz // 50)
        assert len([p for p in sent if p.marker]) <= 1
        for packet in sent:
            got += receiver.receive(packet.timestamp, packet.payload, tick * 0.02)
    assert "".join(got) == "12*#AD"
    assert not sender.busy


def test_a_sent_press_has_growing_durations_and_three_ends() -> None:
    sender = DtmfSender(48_000)
    sender.send("9")
    packets = [packet for tick in range(10) for packet in sender.tick(tick * 960)]
    durations = [struct.unpack("!BBH", p.payload)[2] for p in packets]
    assert durations == [960, 1920, 2880, 3840, 4800, 4800, 4800]
    assert [bool(p.payload[1] & 0x80) for p in packets] == [False] * 4 + [True] * 3
    assert {p.timestamp for p in packets} == {0}


def test_wrong_or_too_many_digits_are_refused_whole() -> None:
    sender = DtmfSender(8_000)
    with pytest.raises(MediaError, match="digits"):
        sender.send("12x")
    with pytest.raises(MediaError, match="waiting"):
        sender.send("1" * 65)
    assert not sender.busy
