import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signaling.commands import (
    CancelReply,
    ClientCommand,
    ClientError,
    HangUp,
    PressKey,
    Respond,
    TypeText,
    UpdateSession,
    parse_client_message,
)


def item(text: object) -> dict[str, object]:
    content = [{"type": "input_text", "text": text}]
    return {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}


@pytest.mark.parametrize(
    ("message", "command"),
    [
        ({"type": "session.update", "session": {"voice": "heart"}}, UpdateSession(voice="heart")),
        (
            {
                "type": "session.update",
                "session": {"language": "de-AT", "turn_detection": {"silence_duration_ms": 400}, "instructions": "x"},
            },
            UpdateSession(language="de-AT", silence_ms=400),
        ),
        ({"type": "session.update", "session": {"turn_detection": None}}, UpdateSession()),
        ({"type": "response.cancel"}, CancelReply()),
        ({"type": "output_audio_buffer.clear", "event_id": "e"}, CancelReply()),
        ({"type": "response.create", "response": {"modalities": ["audio"]}}, Respond()),
        (item("Where is my order?"), TypeText("Where is my order?")),
        (item("bell\x07 and\ttab"), TypeText("bell and\ttab")),
        ({"type": "rejoinder.dtmf", "digit": "#"}, PressKey("#")),
        ({"type": "rejoinder.hangup"}, HangUp()),
    ],
)
def test_good_messages(message: dict[str, object], command: ClientCommand) -> None:
    assert parse_client_message(json.dumps(message))[0] == command


@pytest.mark.parametrize(
    ("text", "code", "param"),
    [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("[]", "invalid_json", None),
        ("null", "invalid_json", None),
        ('"session.update"', "invalid_json", None),
        ('{"type": NaN}', "invalid_json", None),
        ("[" * 20_000, "invalid_json", None),
        ('{"a":' * 100 + "1" + "}" * 100, "invalid_json", None),
        ("x" * 40_000, "message_too_long", None),
        ("{}", "missing_type", "type"),
        ('{"type": 5}', "missing_type", "type"),
        ('{"type": ["response.cancel"]}', "missing_type", "type"),
        ('{"type": "session.destroy"}', "unknown_event", "type"),
        ('{"type": "session.update"}', "invalid_value", "session"),
        ('{"type": "session.update", "session": []}', "invalid_value", "session"),
        ('{"type": "session.update", "session": {"voice": "../x"}}', "invalid_value", "session.voice"),
        ('{"type": "session.update", "session": {"voice": 3}}', "invalid_value", "session.voice"),
        ('{"type": "session.update", "session": {"language": "e n"}}', "invalid_value", "session.language"),
        (
            '{"type": "session.update", "session": {"turn_detection": {"silence_duration_ms": 99}}}',
            "invalid_value",
            "session.turn_detection.silence_duration_ms",
        ),
        (
            '{"type": "session.update", "session": {"turn_detection": {"silence_duration_ms": "500"}}}',
            "invalid_value",
            "session.turn_detection.silence_duration_ms",
        ),
        ('{"type": "rejoinder.dtmf", "digit": "55"}', "invalid_value", "digit"),
        ('{"type": "rejoinder.dtmf", "digit": 5}', "invalid_value", "digit"),
        ('{"type": "rejoinder.dtmf", "digit": "5\\n"}', "invalid_value", "digit"),
        ('{"type": "rejoinder.dtmf"}', "invalid_value", "digit"),
        ('{"type": "conversation.item.create"}', "invalid_value", "item"),
        (json.dumps(item("")), "invalid_value", "item.content.0.text"),
        (json.dumps(item("   ")), "invalid_value", "item.content.0.text"),
        (json.dumps(item("\x00\x01")), "invalid_value", "item.content.0.text"),
        (json.dumps(item("\ud800")), "invalid_value", "item.content.0.text"),
        (json.dumps(item("x" * 4001)), "invalid_value", "item.content.0.text"),
        (json.dumps(item(None)), "invalid_value", "item.content.0.text"),
        (
            '{"type": "conversation.item.create", "item": {"type": "message", "role": "system", "content": []}}',
            "invalid_value",
            "item.role",
        ),
    ],
)
def test_a_wrong_message_names_its_field(text: str, code: str, param: str | None) -> None:
    parsed, _ = parse_client_message(text)
    assert isinstance(parsed, ClientError)
    assert (parsed.code, parsed.param) == (code, param)
    assert parsed.message


def test_the_clients_event_id_comes_back_if_it_is_one() -> None:
    assert parse_client_message('{"type": "x", "event_id": "e7"}')[1] == "e7"
    assert parse_client_message('{"type": "x", "event_id": 7}')[1] is None
    assert parse_client_message(json.dumps({"type": "x", "event_id": "y" * 600}))[1] is None


@given(st.text(max_size=300))
def test_any_text_is_a_command_or_an_error(text: str) -> None:
    parsed, _ = parse_client_message(text)
    assert isinstance(parsed, ClientCommand | ClientError)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)


@given(
    st.sampled_from(["session.update", "conversation.item.create", "rejoinder.dtmf", "response.create"]),
    st.dictionaries(st.sampled_from(["session", "item", "digit", "event_id", "content"]), _json, max_size=4),
)
def test_any_object_is_a_command_or_an_error(kind: str, fields: dict[str, object]) -> None:
    parsed, _ = parse_client_message(json.dumps({"type": kind} | fields))
    assert isinstance(parsed, ClientCommand | ClientError)
