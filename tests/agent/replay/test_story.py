from __future__ import annotations

from typing import Any

from agent.replay.story import Entry, differences, tell


def _finished(t_ms: int, response: str, status: str, heard: str, unheard: str = "") -> dict[str, Any]:
    return {
        "t_ms": t_ms,
        "event": "ReplyFinished",
        "response_id": response,
        "status": status,
        "heard": heard,
        "unheard": unheard,
    }


def test_a_timeline_is_told_in_contributions() -> None:
    rows = [
        {"t_ms": 0, "event": "ReplyStarted", "response_id": "r1"},
        {"t_ms": 40, "event": "PlayoutStarted", "response_id": "r1"},
        _finished(900, "r1", "completed", "Hi."),
        {"t_ms": 2_000, "event": "UserTranscript", "text": "what", "final": False},
        {"t_ms": 2_500, "event": "UserTranscript", "text": "what time", "final": True},
        {"t_ms": 2_600, "event": "PlayoutStarted", "response_id": "r2"},
        {"t_ms": 2_600, "event": "TurnTimings", "response_id": "r2", "response_ms": 540.0},
        {"t_ms": 3_000, "event": "DtmfPressed", "digit": "4"},
        _finished(3_000, "r2", "cancelled", "At", "9"),
        _finished(3_100, "r3", "cancelled", ""),
        {"t_ms": 3_200, "event": "CallFault", "part": "asr", "message": "failed"},
        {"t_ms": 3_200, "event": "CallFault", "part": "recording", "message": "dropped"},
        {"t_ms": 4_000, "event": "CallEnded", "reason": "peer closed"},
        {"t_ms": 4_000, "event": "RecordingEnded", "reason": "peer closed"},
    ]
    assert tell(rows) == [
        Entry(40, "agent", "Hi.", status="completed"),
        Entry(2_500, "caller", "what time"),
        Entry(3_000, "key", "4"),
        Entry(2_600, "agent", "At", "9", "cancelled", 540.0),
        Entry(3_200, "fault", "asr: failed"),
        Entry(4_000, "end", "peer closed"),
    ]


def test_differences_name_what_changed_is_missing_was_added_or_took_another_time() -> None:
    a, b, c = (Entry(0, "caller", text) for text in "abc")
    reply = Entry(5, "agent", "x", status="completed", response_ms=500.0)
    slower = Entry(9, "agent", "x", status="completed", response_ms=700.0)
    near = Entry(9, "agent", "x", status="completed", response_ms=590.0)
    assert differences([a, reply], [a, near]) == []
    assert [d.what for d in differences([a, reply], [a, slower])] == ["timing"]
    assert [d.what for d in differences([a, reply], [c, reply])] == ["changed"]
    assert [(d.what, d.recorded) for d in differences([a, b, reply], [a, reply])] == [("missing", b)]
    assert [(d.what, d.replayed) for d in differences([a, reply], [a, reply, c])] == [("added", c)]


def test_a_turn_that_goes_on_is_one_contribution() -> None:
    rows = [
        {"t_ms": t_ms, "event": "UserTranscript", "item_id": item, "text": text, "final": True}
        for t_ms, item, text in ((10, "a", "my name"), (20, "a", "my name is Ann"), (30, "b", "hello"))
    ]
    assert tell(rows) == [Entry(10, "caller", "my name is Ann"), Entry(30, "caller", "hello")]
