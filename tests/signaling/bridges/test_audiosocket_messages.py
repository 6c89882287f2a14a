import contextlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import ProtocolError
from agent.events import OutputCleared, UserTranscript
from signaling.bridges.audiosocket_messages import (
    AudioSocketDialect,
    AudioSocketParser,
    Frame,
    call_uuid,
    frame_bytes,
    rate_of,
)
from signaling.commands import HangUp, PressKey
from signaling.streaming import Audio

MAX_MESSAGE_BYTES = 3 + 48_000 // 5 * 2
UUID_BYTES = bytes(range(16))

FRAMES = st.one_of(
    st.just(Frame(0x00)),
    st.builds(Frame, st.just(0x01), st.binary(min_size=16, max_size=16)),
    st.builds(Frame, st.just(0x03), st.binary(min_size=1, max_size=1)),
    st.builds(Frame, st.sampled_from([0x10, 0x12, 0x13, 0x16]), st.binary(max_size=40).map(lambda b: b + b)),
    st.builds(Frame, st.just(0xFF), st.binary(max_size=4)),
)


def test_the_bytes_are_those_of_the_protocol() -> None:
    assert frame_bytes(0x00) == b"\x00\x00\x00"
    assert frame_bytes(0x10, bytes(320)) == b"\x10\x01\x40" + bytes(320)


@given(st.lists(FRAMES, max_size=8), st.data())
def test_messages_are_found_however_the_stream_is_cut(frames: list[Frame], data: st.DataObject) -> None:
    stream = b"".join(frame_bytes(frame.kind, frame.payload) for frame in frames)
    parser, found = AudioSocketParser(), []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += parser.feed(stream[:cut])
        stream = stream[cut:]
    assert found == frames
    assert len(parser) == 0


@given(st.lists(st.binary(max_size=400), max_size=20))
def test_random_bytes_neither_crash_nor_grow(pieces: list[bytes]) -> None:
    parser, dialect = AudioSocketParser(), AudioSocketDialect(8000)
    with contextlib.suppress(ProtocolError):
        for piece in pieces:
            for frame in parser.feed(piece):
                dialect.read(frame_bytes(frame.kind, frame.payload))
            assert len(parser) < MAX_MESSAGE_BYTES


@given(st.integers(0, 255), st.integers(0, 65_535))
def test_a_length_is_refused_before_its_payload_comes(kind: int, length: int) -> None:
    header = bytes((kind,)) + length.to_bytes(2, "big")
    if length > MAX_MESSAGE_BYTES:
        with pytest.raises(ProtocolError):
            AudioSocketParser().feed(header)
    else:
        with contextlib.suppress(ProtocolError):
            AudioSocketParser().feed(header)


@pytest.mark.parametrize(
    ("data", "field", "code"),
    [
        (b"\x10\x0c\x82", "length", "audio_too_long"),
        (b"\x12\x19\x02", "length", "audio_too_long"),
        (b"\x10\x00\x01", "length", "odd_length"),
        (b"\x11\x00\x00", "type", "unsupported_rate"),
        (b"\x15\x00\x00", "type", "unsupported_rate"),
        (b"\x01\x00\x0f", "length", "invalid_value"),
        (b"\x03\x00\x02", "length", "invalid_value"),
        (b"\x00\xff\xff", "length", "invalid_value"),
        (b"\x02\x00\x00", "type", "unknown_type"),
        (b"GET / HTTP/1.1\r\n", "type", "unknown_type"),
    ],
)
def test_what_is_wrong_is_named(data: bytes, field: str, code: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        AudioSocketParser().feed(data)
    assert (caught.value.field, caught.value.code) == (field, code)


def test_the_first_message_names_the_call() -> None:
    assert call_uuid(Frame(0x01, UUID_BYTES)).bytes == UUID_BYTES
    with pytest.raises(ProtocolError, match="UUID"):
        call_uuid(Frame(0x10, b""))


@pytest.mark.parametrize(("kind", "rate"), [(0x10, 8000), (0x12, 16_000), (0x13, 24_000), (0x16, 48_000), (0x03, None)])
def test_the_type_says_the_rate(kind: int, rate: int | None) -> None:
    assert rate_of(Frame(kind)) == rate


def test_messages_mean_audio_keys_and_the_end() -> None:
    dialect = AudioSocketDialect(16_000)
    assert dialect.read(frame_bytes(0x12, b"ab")) == Audio(b"ab")
    assert dialect.read(frame_bytes(0x12)) is None
    assert dialect.read(frame_bytes(0x03, b"#")) == PressKey("#")
    assert dialect.read(frame_bytes(0x03, b"a")) == PressKey("A")
    assert dialect.read(frame_bytes(0x00)) == HangUp()
    assert dialect.read(frame_bytes(0xFF, b"\x01")) == HangUp()


@pytest.mark.parametrize(
    ("message", "field"),
    [(frame_bytes(0x01, UUID_BYTES), "type"), (frame_bytes(0x03, b"x"), "payload")],
)
def test_what_makes_no_sense_within_a_call_is_refused(message: bytes, field: str) -> None:
    with pytest.raises(ProtocolError) as caught:
        AudioSocketDialect(16_000).read(message)
    assert caught.value.field == field


def test_audio_at_another_rate_than_was_guessed_is_heard_all_the_same() -> None:
    dialect = AudioSocketDialect(8000)
    heard = b""
    for kind, size in ((0x12, 640), (0x12, 640), (0x16, 1920), (0x10, 320)):
        said = dialect.read(frame_bytes(kind, b"\x10\x20" * (size // 2)))
        assert isinstance(said, Audio)
        heard += said.pcm
    assert len(heard) == pytest.approx(4 * 320, abs=8)
    samples = np.frombuffer(heard, "<i2")
    assert samples[-160:].max() == samples[-160:].min() == 0x2010


def test_silence_is_sent_when_nothing_else_is() -> None:
    assert AudioSocketDialect(16_000).keep_alive() == (frame_bytes(0x12, bytes(640)),)


def test_audio_goes_out_at_the_rate_it_came() -> None:
    assert AudioSocketDialect(16_000).speak(bytes(640)) == (b"\x12\x02\x80" + bytes(640),)


def test_only_a_clear_is_told() -> None:
    dialect = AudioSocketDialect(8000)
    assert dialect.tell(OutputCleared("r"))
    assert not dialect.tell(UserTranscript("i", "hi", True))
