from __future__ import annotations

from types import MappingProxyType

import pytest

from agent.errors import MediaError
from agent.events import ClientData, ReplyFinished, UserTranscript
from agent.recording.clock import PacerClock
from agent.recording.timeline import event_line, line, read_timeline

HEAD = line({"format": "rejoinder.events", "version": 1, "call": "call_1"})


def test_events_are_read_back_with_their_place() -> None:
    data = HEAD + event_line(UserTranscript("item_1", "zwölf \u2028 你好", True), t_ms=40, at_ms=61.27)
    head, rows = read_timeline(data + event_line(ReplyFinished("r", "i", "completed", "Hi."), t_ms=60, at_ms=80))
    assert head["call"] == "call_1"
    assert rows[0] == {
        "t_ms": 40,
        "at_ms": 61.3,
        "event": "UserTranscript",
        "item_id": "item_1",
        "text": "zwölf \u2028 你好",
        "final": True,
    }
    assert rows[1]["heard"] == "Hi."


def test_what_a_hook_sends_is_written_whatever_it_is() -> None:
    data = ClientData(MappingProxyType({"a": MappingProxyType({"b": {1, 2}}), "c": "lone \ud800 surrogate"}))
    rows = read_timeline(HEAD + event_line(data, t_ms=0, at_ms=0))[1]
    assert rows[0]["data"]["a"] == {"b": "{1, 2}"}
    assert rows[0]["data"]["c"] == "lone \ud800 surrogate"


def test_a_last_line_that_was_cut_off_is_left_out() -> None:
    data = HEAD + line({"event": "A"}) + line({"event": "B"})
    for cut in range(1, len(line({"event": "B"}))):
        assert [row["event"] for row in read_timeline(data[:-cut])[1]] in (["A"], ["A", "B"])


@pytest.mark.parametrize(
    "data", [b"", b"\n", b"hello\n", b"{}\n", line({"format": "rejoinder.events", "version": 2}), HEAD + b"[]\n" + HEAD]
)
def test_what_is_no_timeline_is_told(data: bytes) -> None:
    with pytest.raises(MediaError):
        read_timeline(data)


def test_ticks_that_never_ran_are_time_and_an_endless_gap_is_not() -> None:
    clock = PacerClock()
    assert (clock.t_ms, clock.advance(500), clock.t_ms) == (0, 0, 0)
    assert (clock.advance(501), clock.t_ms) == (0, 20)
    assert (clock.advance(504), clock.t_ms) == (2, 80)
    assert (clock.advance(3), clock.t_ms) == (0, 100)
    assert clock.advance(10**9) == 3_000
