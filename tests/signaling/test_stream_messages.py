from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProtocolError
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
from signaling.commands import CancelReply, ClientCommand, HangUp, PressKey, TypeText
from signaling.stream_messages import StreamTranslator, parse_stream_message

EXPECTED: list[tuple[CallEvent, list[dict[str, Any]]]] = [
    (UserTranscript("i", "hi", False), [{"type": "transcript", "role": "user", "text": "hi", "final": False}]),
    (UserTranscript("i", "Hi.", True), [{"type": "transcript", "role": "user", "text": "Hi.", "final": True}]),
    (AgentText("r", "i", "Hello."), [{"type": "transcript", "role": "agent", "text": "Hello.", "final": False}]),
    (
        ReplyFinished("r", "i", "cancelled", "Hel", "lo."),
        [{"type": "transcript", "role": "agent", "text": "Hel", "final": True}],
    ),
    (ReplyFinished("r", "i", "completed", ""), []),
    (OutputCleared("r"), [{"type": "clear"}]),
    (OutputPaused("r"), [{"type": "clear"}]),
    (OutputResumed("r"), []),
    (DtmfPressed("5"), []),
    (DtmfSent("5#"), [{"type": "dtmf", "digit": "5"}, {"type": "dtmf", "digit": "#"}]),
    (ClientData({"a": 1}), [{"type": "data", "data": {"a": 1}}]),
    (MediaStalled(2.04), [{"type": "media_stalled", "silence_s": 2.0}]),
    (MediaResumed(3.5), [{"type": "media_resumed", "silence_s": 3.5}]),
    (TransferRequested("desk"), [{"type": "transfer", "to": "desk"}]),
    (
        CallFault("asr", "no words"),
        [{"type": "error", "code": "asr_failed", "message": "no words", "field": None}],
    ),
    (
        TurnTimings("r", 500, 80, 1, 20, 10, 611),
        [
            {
                "type": "timings",
                "endpoint_ms": 500,
                "asr_final_ms": 80,
                "nlu_first_ms": 1,
                "tts_first_ms": 20,
                "playout_ms": 10,
                "response_ms": 611,
                "cache": "miss",
            }
        ],
    ),
    (CallEnded("completed"), [{"type": "hangup", "reason": "completed"}]),
    (SpeechStarted("i", 0), []),
    (SpeechStopped("i", 0), []),
    (ReplyStarted("r", "i"), []),
    (PlayoutStarted("r"), []),
    (PlayoutStopped("r"), []),
    (FloorChanged("agent"), []),
    (CallSuspended("peer vanished", 30.0), []),
    (CallResumed(1.0), []),
]


@pytest.mark.parametrize(("event", "expected"), EXPECTED, ids=lambda value: type(value).__name__)
def test_each_event(event: CallEvent, expected: list[dict[str, Any]]) -> None:
    assert StreamTranslator().translate(event) == expected


def test_no_event_is_forgotten() -> None:
    assert {type(event) for event, _ in EXPECTED} == set(get_args(CallEvent))


def test_partials_of_the_agent_carry_the_whole_reply_so_far() -> None:
    translator = StreamTranslator()
    events: list[CallEvent] = [
        ReplyStarted("r1", "i"),
        AgentText("r1", "i", "Hello."),
        AgentText("r1", "i", "How are you?"),
        ReplyStarted("r2", "i"),
        AgentText("r2", "i", "Goodbye."),
    ]
    texts = [m["text"] for event in events for m in translator.translate(event)]
    assert texts == ["Hello.", "Hello. How are you?", "Goodbye."]


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ('{"type":"clear"}', CancelReply()),
        ('{"type":"hangup"}', HangUp()),
        ('{"type":"hangup","reason":"bye"}', HangUp()),
        ('{"type":"dtmf","digit":"*"}', PressKey("*")),
        ('{"type":"text","text":"where is it"}', TypeText("where is it")),
    ],
)
def test_good_messages(text: str, command: ClientCommand) -> None:
    assert parse_stream_message(text) == command


@pytest.mark.parametrize(
    ("text", "code", "field"),
    [
        ("", "invalid_json", None),
        ("hello", "invalid_json", None),
        ("[1]", "invalid_json", None),
        ("{}", "unknown_type", "type"),
        ('{"type":null}', "unknown_type", "type"),
        ('{"type":"transcript"}', "unknown_type", "type"),
        ('{"type":"dtmf"}', "invalid_value", "digit"),
        ('{"type":"dtmf","digit":"12"}', "invalid_value", "digit"),
        ('{"type":"dtmf","digit":1}', "invalid_value", "digit"),
        ('{"type":"text"}', "invalid_value", "text"),
        ('{"type":"text","text":""}', "invalid_value", "text"),
        ('{"type":"text","text":"\\ud800"}', "invalid_value", "text"),
        ('{"type":"text","text":"x","more":1}', "invalid_value", "more"),
        ('{"type":"clear","why":"x"}', "invalid_value", "why"),
    ],
)
def test_wrong_messages(text: str, code: str, field: str | None) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_stream_message(text)
    assert (caught.value.code, caught.value.field) == (code, field)


@given(st.text(max_size=100))
def test_any_text_is_a_command_or_a_protocol_error(text: str) -> None:
    try:
        command = parse_stream_message(text)
    except ProtocolError:
        return
    assert isinstance(command, ClientCommand)
