import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.events import (
    AgentText,
    CallEnded,
    CallEvent,
    CallFault,
    CallResumed,
    CallSuspended,
    ClientData,
    DtmfPressed,
    DtmfSent,
    FloorChanged,
    MediaResumed,
    MediaStalled,
    OutputCleared,
    OutputPaused,
    OutputResumed,
    PlayoutStarted,
    PlayoutStopped,
    ReplyFinished,
    ReplyStarted,
    SpeechStarted,
    SpeechStopped,
    TransferRequested,
    TurnTimings,
    UserTranscript,
)
from agent.nlu.actions import MAX_SEND_BYTES, check_item
from agent.nlu.hook import Send
from signaling.realtime import MAX_MESSAGE_BYTES, MAX_OPEN_ITEMS, RealtimeTranslator, appended, encode

TIMINGS = TurnTimings("r1", 500.04, 80.0, 3.2, 21.06, 14.0, 618.31, "hit")

ONE_EACH: list[tuple[CallEvent, dict[str, Any]]] = [
    (SpeechStarted("i1", 120), {"type": "input_audio_buffer.speech_started", "item_id": "i1", "audio_start_ms": 120}),
    (SpeechStopped("i1", 920), {"type": "input_audio_buffer.speech_stopped", "item_id": "i1", "audio_end_ms": 920}),
    (
        UserTranscript("i1", "where is", final=False),
        {
            "type": "conversation.item.input_audio_transcription.delta",
            "item_id": "i1",
            "content_index": 0,
            "delta": "where is",
            "transcript": "where is",
        },
    ),
    (
        UserTranscript("i1", "Where is it?", final=True),
        {
            "type": "conversation.item.input_audio_transcription.completed",
            "item_id": "i1",
            "content_index": 0,
            "transcript": "Where is it?",
        },
    ),
    (ReplyStarted("r1", "i2"), {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}}),
    (
        AgentText("r1", "i2", "It is here."),
        {
            "type": "response.output_audio_transcript.delta",
            "response_id": "r1",
            "item_id": "i2",
            "output_index": 0,
            "content_index": 0,
            "delta": "It is here.",
        },
    ),
    (
        ReplyFinished("r1", "i2", "cancelled", "It is", "here."),
        {
            "type": "response.done",
            "response": {
                "id": "r1",
                "status": "cancelled",
                "output": [
                    {
                        "id": "i2",
                        "type": "message",
                        "role": "assistant",
                        "content": [{"type": "output_audio", "transcript": "It is"}],
                    }
                ],
            },
            "rejoinder": {"heard": "It is", "unheard": "here."},
        },
    ),
    (PlayoutStarted("r1"), {"type": "output_audio_buffer.started", "response_id": "r1"}),
    (PlayoutStopped("r1"), {"type": "output_audio_buffer.stopped", "response_id": "r1"}),
    (OutputCleared("r1"), {"type": "output_audio_buffer.cleared", "response_id": "r1"}),
    (OutputPaused("r1"), {"type": "rejoinder.paused", "response_id": "r1"}),
    (OutputResumed("r1"), {"type": "rejoinder.resumed", "response_id": "r1"}),
    (FloorChanged("thinking"), {"type": "rejoinder.floor", "floor": "thinking"}),
    (
        TIMINGS,
        {
            "type": "rejoinder.timings",
            "response_id": "r1",
            "endpoint_ms": 500.0,
            "asr_final_ms": 80.0,
            "nlu_first_ms": 3.2,
            "tts_first_ms": 21.1,
            "playout_ms": 14.0,
            "response_ms": 618.3,
            "cache": "hit",
        },
    ),
    (DtmfPressed("5"), {"type": "rejoinder.dtmf", "digit": "5"}),
    (DtmfSent("12"), {"type": "rejoinder.dtmf_sent", "digits": "12"}),
    (ClientData({"order": 7}), {"type": "rejoinder.data", "data": {"order": 7}}),
    (MediaStalled(2.04), {"type": "rejoinder.media_stalled", "silence_s": 2.0}),
    (MediaResumed(3.5), {"type": "rejoinder.media_resumed", "silence_s": 3.5}),
    (TransferRequested("sip:desk@shop.example"), {"type": "rejoinder.transfer", "to": "sip:desk@shop.example"}),
    (
        CallFault("tts", "the voice failed"),
        {
            "type": "error",
            "error": {
                "type": "server_error",
                "code": "tts_failed",
                "message": "the voice failed",
                "param": None,
                "event_id": None,
            },
        },
    ),
    (CallSuspended("peer vanished", 30.0), {"type": "rejoinder.suspended", "resume_s": 30.0}),
    (CallResumed(2.04), {"type": "rejoinder.reconnected", "away_s": 2.0}),
    (CallEnded("completed"), {"type": "rejoinder.ended", "reason": "completed"}),
]


@pytest.mark.parametrize(("event", "expected"), ONE_EACH, ids=lambda value: type(value).__name__)
def test_each_event_has_its_message(event: CallEvent, expected: dict[str, Any]) -> None:
    (message,) = RealtimeTranslator().translate(event)
    assert message == expected | {"event_id": "event_1"}
    assert json.loads(encode(message)) == message


def test_no_event_is_forgotten() -> None:
    assert {type(event) for event, _ in ONE_EACH} == set(get_args(CallEvent))


def kinds(translator: RealtimeTranslator, *events: CallEvent) -> list[str]:
    return [message["type"] for event in events for message in translator.translate(event)]


def test_event_ids_count_up_and_never_repeat() -> None:
    translator = RealtimeTranslator()
    ids = [m["event_id"] for event, _ in ONE_EACH for m in translator.translate(event)]
    assert len(set(ids)) == len(ids)


def test_a_spoken_item_is_committed_once_before_it_completes() -> None:
    seen = kinds(
        RealtimeTranslator(),
        SpeechStarted("i1", 0),
        SpeechStopped("i1", 800),
        SpeechStarted("i1", 1200),
        SpeechStopped("i1", 1900),
        UserTranscript("i1", "yes please", final=True),
        UserTranscript("typed", "yes", final=True),
    )
    assert seen[4:] == [
        "input_audio_buffer.committed",
        "conversation.item.input_audio_transcription.completed",
        "conversation.item.input_audio_transcription.completed",
    ]


def test_partials_grow_by_suffix_and_a_revision_says_the_whole_text() -> None:
    translator = RealtimeTranslator()
    texts = ["I want", "I want", "I want to", "I went to the", "I went to the shop"]
    messages = [m for text in texts for m in translator.translate(UserTranscript("i1", text, final=False))]
    assert [m["delta"] for m in messages] == ["I want", " to", "", " shop"]
    assert [m["transcript"] for m in messages] == ["I want", "I want to", "I went to the", "I went to the shop"]


@given(st.lists(st.text(max_size=12), min_size=1, max_size=8))
def test_deltas_of_a_reply_join_up_to_its_transcript(clauses: list[str]) -> None:
    translator = RealtimeTranslator()
    translator.translate(ReplyStarted("r1", "i1"))
    deltas = [translator.translate(AgentText("r1", "i1", clause))[0]["delta"] for clause in clauses]
    messages = translator.translate(ReplyFinished("r1", "i1", "completed", "heard"))
    whole = "".join(deltas)
    assert [m["transcript"] for m in messages if m["type"].endswith("transcript.done")] == ([whole] if whole else [])
    assert "".join(whole.split()) == "".join("".join(clauses).split())


def test_clauses_join_with_a_space_but_not_in_chinese() -> None:
    assert appended("Hello.", "How are you?") == " How are you?"
    assert appended("Hello. ", "How are you?") == "How are you?"
    assert appended("", "Hello.") == "Hello."
    assert appended("您好。", "请问") == "请问"
    assert appended("Hello.", "") == ""


def test_a_silent_reply_has_no_transcript_event() -> None:
    assert kinds(RealtimeTranslator(), ReplyStarted("r1", "i1"), ReplyFinished("r1", "i1", "completed", "")) == [
        "response.created",
        "response.done",
    ]


def test_two_replies_at_once_keep_their_texts() -> None:
    translator = RealtimeTranslator()
    kinds(translator, ReplyStarted("r1", "i1"), AgentText("r1", "i1", "One"), ReplyStarted("r2", "i2"))
    translator.translate(AgentText("r2", "i2", "Two"))
    done = translator.translate(ReplyFinished("r1", "i1", "cancelled", "One"))
    assert done[0]["transcript"] == "One"


def test_timings_of_parts_that_did_not_happen_are_null() -> None:
    (message,) = RealtimeTranslator().translate(TurnTimings("r1", None, None, None, None, None, None))
    assert message["endpoint_ms"] is None
    assert message["cache"] == "miss"


def test_memory_of_items_that_never_end_is_bounded() -> None:
    translator = RealtimeTranslator()
    for number in range(500):
        translator.translate(SpeechStarted(f"i{number}", 0))
        translator.translate(UserTranscript(f"i{number}", "x", final=False))
        translator.translate(ReplyStarted(f"r{number}", "i"))
    tables = (translator._heard, translator._spoken, translator._replies)
    assert max(len(table) for table in tables) <= MAX_OPEN_ITEMS


@pytest.mark.parametrize("data", [object(), float("nan"), {1, 2}, "\ud800", b"x", "y" * MAX_MESSAGE_BYTES])
def test_what_json_cannot_say_is_refused(data: object) -> None:
    with pytest.raises(ValueError, match="message"):
        encode({"type": "rejoinder.data", "data": data})


def test_a_circle_is_refused() -> None:
    circle: dict[str, Any] = {}
    circle["self"] = circle
    with pytest.raises(ValueError, match="JSON"):
        encode(circle)


def test_the_largest_payload_of_a_hook_fits_into_one_message() -> None:
    payload = {"text": "x" * (MAX_SEND_BYTES - len('{"text": ""}'))}
    assert check_item(Send(payload)) == Send(payload)
    (message,) = RealtimeTranslator().translate(ClientData(payload))
    assert len(encode(message)) > MAX_SEND_BYTES
