import base64
import contextlib
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProtocolError
from agent.events import OutputCleared, OutputPaused, UserTranscript
from signaling.bridges.companding import compress, expand
from signaling.bridges.twilio_messages import Start, TwilioDialect, parse_start
from signaling.commands import HangUp, PressKey
from signaling.streaming import Audio

START: dict[str, Any] = {
    "event": "start",
    "sequenceNumber": "1",
    "start": {
        "accountSid": "AC1",
        "streamSid": "MZ1",
        "callSid": "CA1",
        "tracks": ["inbound"],
        "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        "customParameters": {"caller": "+4315550100", "queue": "sales"},
    },
    "streamSid": "MZ1",
}


def said(event: str, **members: Any) -> str:
    return json.dumps({"event": event, "streamSid": "MZ1", **members})


def media(data: bytes, track: str = "inbound") -> str:
    return said("media", media={"track": track, "payload": base64.b64encode(data).decode()})


@pytest.fixture
def dialect() -> TwilioDialect:
    return TwilioDialect(Start("MZ1", {}))


def test_start_comes_behind_connected() -> None:
    assert parse_start(json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})) is None
    assert parse_start(json.dumps(START)) == Start("MZ1", {"caller": "+4315550100", "queue": "sales"})


@pytest.mark.parametrize(
    ("member", "value", "field"),
    [
        ("mediaFormat", {"encoding": "audio/x-l16"}, "start.mediaFormat.encoding"),
        ("mediaFormat", {"sampleRate": 16000}, "start.mediaFormat.sampleRate"),
        ("streamSid", "", "start.streamSid"),
        ("customParameters", {"a": 1}, "start.customParameters.a"),
    ],
)
def test_a_start_that_cannot_be_served_is_refused_by_field(member: str, value: Any, field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_start(json.dumps(START | {"start": START["start"] | {member: value}}))
    assert caught.value.field == field


def test_mulaw_becomes_samples(dialect: TwilioDialect) -> None:
    assert dialect.read(media(b"\xff" * 160)) == Audio(bytes(320))
    assert dialect.read(media(b"\x00" * 1600)) == Audio(expand("ulaw", b"\x00" * 1600))


def test_our_own_voice_on_the_outbound_track_is_not_heard(dialect: TwilioDialect) -> None:
    assert dialect.read(media(b"\xff", "outbound")) is None


def test_keys_and_the_end_are_commands(dialect: TwilioDialect) -> None:
    assert dialect.read(said("dtmf", dtmf={"track": "inbound_track", "digit": "#"})) == PressKey("#")
    assert dialect.read(said("stop", stop={"accountSid": "AC1", "callSid": "CA1"})) == HangUp()


@pytest.mark.parametrize(
    ("message", "field", "code"),
    [
        (media(b"\xff" * 1601), "media.payload", "audio_too_long"),
        (said("media", media={"payload": "!!!"}), "media.payload", "invalid_value"),
        (said("media"), "media", "invalid_value"),
        (said("dtmf", dtmf={"digit": "12"}), "dtmf.digit", "invalid_value"),
        (said("mark", mark={"name": "x" * 257}), "mark.name", "invalid_value"),
        (said("start"), "event", "invalid_value"),
        (said("video"), "event", "unknown_type"),
        ("{}", "event", "unknown_type"),
        ("[]", None, "invalid_json"),
        (b"\x00", None, "unknown_type"),
    ],
)
def test_what_is_wrong_is_named(dialect: TwilioDialect, message: str, field: str | None, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        dialect.read(message)
    assert (caught.value.field, caught.value.code) == (field, code)


def test_a_frame_goes_out_as_media_and_each_tenth_is_marked(dialect: TwilioDialect) -> None:
    pcm = np.arange(-8000, 8000, 100, dtype="<i2").tobytes()
    sent = [json.loads(text) for _ in range(10) for text in dialect.speak(pcm)]
    assert [message["event"] for message in sent] == ["media"] * 10 + ["mark"]
    assert {message["streamSid"] for message in sent} == {"MZ1"}
    assert base64.b64decode(sent[0]["media"]["payload"]) == compress("ulaw", pcm)


@pytest.mark.parametrize("event", [OutputCleared("r"), OutputPaused("r")])
def test_an_interruption_is_a_clear_and_forgets_marks(dialect: TwilioDialect, event: Any) -> None:
    first = next(json.loads(t)["mark"]["name"] for _ in range(10) for t in dialect.speak(bytes(320)) if "mark" in t)
    dialect.read(said("mark", mark={"name": first}))
    for _ in range(40):
        dialect.speak(bytes(320))
    assert dialect.unplayed == 30 * 160
    assert [json.loads(text)["event"] for text in dialect.tell(event)] == ["clear"]
    assert dialect.unplayed == 0


def test_at_the_end_the_last_sample_is_waited_for(dialect: TwilioDialect) -> None:
    (first,) = [json.loads(t)["mark"] for _ in range(13) for t in dialect.speak(bytes(320)) if "mark" in t]
    dialect.read(said("mark", mark=first))
    (text,) = dialect.ask_played()
    assert dialect.unplayed > 0
    dialect.read(said("mark", mark=json.loads(text)["mark"]))
    assert dialect.unplayed == 0


def test_transcripts_are_not_for_the_telephone_network(dialect: TwilioDialect) -> None:
    assert not dialect.tell(UserTranscript("i", "my card number", True))


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300)))
def test_anything_is_read_or_refused(message: str | bytes) -> None:
    with contextlib.suppress(ProtocolError):
        TwilioDialect(Start("MZ1", {})).read(message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(["connected", "start", "media", "dtmf", "mark", "stop"]), JSON)
def test_any_content_of_a_known_event_is_read_or_refused(event: str, content: Any) -> None:
    message = json.dumps({"event": event, event: content})
    for read in (parse_start, TwilioDialect(Start("MZ1", {})).read):
        with contextlib.suppress(ProtocolError):
            read(message)
