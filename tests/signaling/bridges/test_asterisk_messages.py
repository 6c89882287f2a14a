import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProtocolError
from agent.events import OutputCleared, OutputPaused, UserTranscript
from signaling.bridges.asterisk_messages import FORMATS, AsteriskDialect, MediaStart, parse_media_start
from signaling.bridges.companding import compress, expand
from signaling.commands import PressKey
from signaling.streaming import Audio

PLAIN = (
    "MEDIA_START connection_id:rejoinder channel:WebSocket/rejoinder/0x7fd7600029c0 channel_id:1796099039.2 "
    "format:slin16 optimal_frame_size:640 ptime:20"
)
"""As Asterisk 22.10 sent it; the next one too, shortened."""
AS_JSON = json.dumps(
    {
        "event": "MEDIA_START",
        "connection_id": "rejoinder",
        "channel": "WebSocket/rejoinder/0x7fd774003400",
        "channel_id": "1796099043.5",
        "format": "ulaw",
        "optimal_frame_size": 160,
        "ptime": 20,
        "channel_variables": {"DIALEDPEERNUMBER": "rejoinder/c(ulaw)f(json)"},
    }
)


def dialect(name: str = "slin16", *, as_json: bool = False) -> AsteriskDialect:
    return AsteriskDialect(MediaStart(FORMATS[name], "1.2", as_json))


def test_the_first_message_says_the_format_in_both_wordings() -> None:
    assert parse_media_start(PLAIN) == MediaStart(FORMATS["slin16"], "1796099039.2", False)
    assert parse_media_start(AS_JSON) == MediaStart(FORMATS["ulaw"], "1796099043.5", True)


@pytest.mark.parametrize(
    ("message", "field", "code"),
    [
        (PLAIN.replace("slin16", "opus"), "format", "unsupported_format"),
        ("MEDIA_START connection_id:x", "format", "unsupported_format"),
        ('{"event": "MEDIA_START", "format": ["ulaw"]}', "format", "unsupported_format"),
        ("DTMF_END digit:5", "event", "start_missing"),
        ("", "event", "start_missing"),
        (b"\x00\x00", "event", "start_missing"),
        ("{", None, "invalid_json"),
        ('{"event": 1}', "event", "invalid_value"),
        ("x" * 20_000, "event", "invalid_value"),
    ],
)
def test_what_is_no_start_is_refused_by_field(message: str | bytes, field: str | None, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        parse_media_start(message)
    assert (caught.value.field, caught.value.code) == (field, code)


@pytest.mark.parametrize("name", FORMATS)
def test_audio_both_ways_in_every_format(name: str) -> None:
    pcm = bytes(range(200)) * 2
    law = FORMATS[name].law
    sent = compress(law, pcm) if law else pcm
    assert dialect(name).speak(pcm) == (sent,)
    assert dialect(name).read(sent) == Audio(expand(law, sent) if law else pcm)


@pytest.mark.parametrize(("name", "size"), [("ulaw", 1601), ("slin", 3202), ("slin48", 19_202)])
def test_a_message_holds_200_ms_at_most(name: str, size: int) -> None:
    with pytest.raises(ProtocolError) as caught:
        dialect(name).read(bytes(size))
    assert caught.value.code == "audio_too_long"


@pytest.mark.parametrize("text", ["DTMF_END digit:a", '{"event": "DTMF_END", "digit": "A"}'])
def test_a_key_is_a_command(text: str) -> None:
    assert dialect().read(text) == PressKey("A")


@pytest.mark.parametrize("text", ["DTMF_END", "DTMF_END digit:12", "DTMF_END digit:", '{"event":"DTMF_END","digit":1}'])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        dialect().read(text)
    assert caught.value.field == "digit"


def test_nothing_is_sent_between_xoff_and_xon() -> None:
    side = dialect()
    assert side.read("MEDIA_XOFF") is None
    assert side.held
    side.read("MEDIA_XON")
    assert not side.held
    side.read('{"event": "MEDIA_XOFF"}')
    side.tell(OutputCleared("r"))
    assert not side.held, "a flushed queue has room"


@pytest.mark.parametrize("text", ["STATUS queue_length:4", "MEDIA_MARK_PROCESSED", "SOMETHING_NEW a:b", "ERROR"])
def test_other_news_are_not_for_us(text: str) -> None:
    assert dialect().read(text) is None


def test_a_second_start_is_refused() -> None:
    with pytest.raises(ProtocolError):
        dialect().read(PLAIN)


@pytest.mark.parametrize("event", [OutputCleared("r"), OutputPaused("r")])
def test_an_interruption_flushes(event: OutputCleared | OutputPaused) -> None:
    assert dialect().tell(event) == ("FLUSH_MEDIA",)
    assert dialect(as_json=True).tell(event) == ('{"command": "FLUSH_MEDIA"}',)


def test_words_do_not_go_to_asterisk() -> None:
    assert not dialect().tell(UserTranscript("i", "my card number", True))


def test_the_end_waits_for_the_queue_and_then_hangs_up() -> None:
    side = dialect()
    side.speak(bytes(640))
    assert side.ask_played() == ("REPORT_QUEUE_DRAINED",)
    assert side.unplayed
    side.read("QUEUE_DRAINED")
    assert not side.unplayed
    assert side.farewell() == ("HANGUP",)


def test_a_call_without_a_word_has_nothing_to_wait_for() -> None:
    side = dialect()
    assert side.ask_played() == ()
    assert not side.unplayed


@given(st.one_of(st.text(max_size=300), st.binary(max_size=300), st.text(max_size=50).map(lambda t: "DTMF_END " + t)))
def test_anything_is_read_or_refused(message: str | bytes) -> None:
    for name in FORMATS:
        with contextlib.suppress(ProtocolError):
            dialect(name).read(message)
    with contextlib.suppress(ProtocolError):
        parse_media_start(message)
