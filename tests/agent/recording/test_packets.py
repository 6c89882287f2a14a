from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import MediaError
from agent.recording.packets import Kind, head_of, read_log, record, tick_record

WHOLE = (
    head_of({"call": "call_1"})
    + record(Kind.PACKET, 1.0, b"abc")
    + tick_record(77, 1.01)
    + record(Kind.COMMAND, 1.5, b'{"do": "press", "digit": "1"}')
    + record(Kind.END, 2.0, b'{"reason": "peer closed"}')
)


def test_a_log_is_read_back() -> None:
    log = read_log(WHOLE)
    assert log.whole
    assert log.head == {"call": "call_1"}
    assert [r.kind for r in log.records] == [Kind.PACKET, Kind.TICK, Kind.COMMAND, Kind.END]
    assert (log.records[0].at, log.records[0].data, log.records[1].tick) == (1.0, b"abc", 77)
    assert log.records[2].body == {"do": "press", "digit": "1"}


def test_a_log_that_was_cut_off_anywhere_gives_its_whole_records() -> None:
    head = len(head_of({"call": "call_1"}))
    for length in range(len(WHOLE)):
        if length < head:
            with pytest.raises(MediaError):
                read_log(WHOLE[:length])
        else:
            log = read_log(WHOLE[:length])
            assert not log.whole
            assert len(log.records) <= 3


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not a packet log"),
        (b"RIFF....WAVE", "not a packet log"),
        (b"RJPACKET\x00\x02" + bytes(10), "version 2"),
        (b"RJPACKET\x00\x01\x7f\xff\xff\xff", "damaged head"),
        (b"RJPACKET\x00\x01\x00\x00\x00\x02[]", "JSON object"),
        (head_of({}) + record(Kind.END, 0.0, b"{}") + b"x", "follows its end"),
        (head_of({}) + record(Kind.COMMAND, 0.0, b"nonsense"), "JSON object"),
        (head_of({}) + b"\x09" + bytes(12), "damaged at byte"),
        (head_of({}) + record(Kind.PACKET, float("nan"), b""), "no time"),
        (head_of({}) + tick_record(1, 5.0) + tick_record(2, 4.0), "backwards"),
    ],
)
def test_what_is_no_log_is_told_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(MediaError, match=says) as caught:
        read_log(data)
    assert "\n" not in str(caught.value)


@given(st.binary(max_size=200), st.integers(0, len(WHOLE)))
def test_no_bytes_raise_anything_else(noise: bytes, at: int) -> None:
    for data in (noise, b"RJPACKET" + noise, WHOLE[:at] + noise):
        try:
            read_log(data)
        except MediaError:
            continue
