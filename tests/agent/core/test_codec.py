"""Messages come back as they went, and bytes that are no message are one clear error."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.asr.protocol import EngineInfo, Hypothesis, Word
from agent.core import codec
from agent.core.codec import MAX_PCM_BYTES, decode, decode_batch, encode, join_batch
from agent.core.fairqueue import Priority
from agent.core.messages import (
    Ack,
    Audio,
    Cancel,
    Close,
    Evidence,
    Fault,
    FaultCode,
    Final,
    GoAway,
    Hello,
    Kind,
    Message,
    Model,
    Open,
    Partial,
    Ping,
    Pong,
    Read,
    SpeechOut,
    Text,
    Urge,
)
from agent.errors import ProtocolError

numbers = st.integers(0, 2**32 - 1)
texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
seconds = st.floats(0, 1e6)
shares = st.floats(0, 1)
pcm = st.binary(max_size=200).map(lambda data: data[: len(data) // 2 * 2])
words = st.lists(st.builds(Word, texts, seconds, seconds), max_size=5).map(tuple)
hypotheses = st.builds(Hypothesis, texts, texts, words, shares, st.none() | shares, numbers, st.none() | shares)
names = st.lists(texts, max_size=4).map(tuple)
engines = st.builds(EngineInfo, texts, texts, st.integers(8000, 48_000), names, st.booleans(), names)
priorities = st.sampled_from(Priority)
models = st.lists(st.builds(Model, texts, engines, numbers), max_size=3).map(tuple)
messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, texts, models),
    st.builds(Open, numbers, texts, texts, names, st.booleans()),
    st.builds(Audio, numbers, numbers, pcm),
    st.builds(Read, numbers, numbers),
    st.builds(Partial, numbers, numbers, hypotheses),
    st.builds(Final, numbers, numbers, hypotheses),
    st.builds(Text, numbers, numbers, texts, texts, texts, seconds, texts, priorities),
    st.builds(SpeechOut, numbers, numbers, pcm, words, texts, st.booleans(), st.booleans()),
    st.builds(Cancel, numbers, numbers),
    st.builds(Close, numbers),
    st.builds(Ack, numbers, numbers, st.integers(0, 65_535)),
    st.builds(Evidence, numbers, numbers, st.none() | shares, st.none() | shares),
    st.builds(GoAway, texts, numbers),
    st.builds(Fault, numbers, numbers, st.sampled_from(FaultCode), texts),
    st.builds(Ping, numbers),
    st.builds(Pong, numbers),
    st.builds(Urge, numbers, numbers, priorities),
)


@given(messages)
def test_a_message_comes_back_as_it_went(message: Message) -> None:
    assert decode(encode(message)) == message


@given(st.lists(messages, max_size=6))
def test_a_batch_keeps_messages_and_their_order(batch: list[Message]) -> None:
    assert decode_batch(join_batch(map(encode, batch))) == batch


def test_every_kind_is_encoded_and_decoded() -> None:
    assert set(codec._DECODERS) | {Kind.AUDIO} == set(Kind)
    assert len(codec._ENCODERS) + 1 == len(Kind)


@given(st.binary(max_size=300))
def test_arbitrary_bytes_are_a_message_or_one_clear_error(data: bytes) -> None:
    told = read_or_error(decode, data)
    if isinstance(told, ProtocolError):
        assert told.field
        assert told.code in ("bad_message", "version")
    else:
        assert decode(encode(told)) == told


def read_or_error(read, data: bytes):  # type: ignore[no-untyped-def]
    """What came out; any error but the one that is promised goes on."""
    try:
        return read(data)
    except ProtocolError as exc:
        return exc


@given(messages, st.data())
def test_a_damaged_message_is_a_message_or_one_clear_error(message: Message, data: st.DataObject) -> None:
    whole = bytearray(encode(message))
    at = data.draw(st.integers(0, len(whole) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "grow"])):
        case "flip":
            whole[at] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del whole[at:]
        case "grow":
            whole += b"\0" * 3
    for read in (decode, decode_batch):
        told = read_or_error(read, bytes(whole))
        assert not isinstance(told, ProtocolError) or told.field


@pytest.mark.parametrize("message", [Partial(1, 2, Hypothesis("a")), Hello("edge"), Text(1, 1, "hi"), Ack(1, 2, 8)])
def test_a_message_that_ends_early_is_refused(message: Message) -> None:
    with pytest.raises(ProtocolError, match=r"left|at least"):
        decode(encode(message)[:-1])


def test_another_version_is_refused_with_both_numbers() -> None:
    with pytest.raises(ProtocolError, match="protocol 7, this side 1") as caught:
        decode(encode(Hello("edge", version=7)))
    assert caught.value.code == "version"


def test_a_later_hello_of_unknown_shape_is_still_told_as_a_version() -> None:
    later = struct.pack("<BII4sH", Kind.HELLO, 0, 0, b"RJCR", 2) + b"whatever a later protocol says"
    with pytest.raises(ProtocolError, match="same version of Rejoinder"):
        decode(later)


def test_somebody_else_is_not_taken_for_a_peer() -> None:
    with pytest.raises(ProtocolError, match="not a Rejoinder"):
        decode(struct.pack("<BII4sH", Kind.HELLO, 0, 0, b"HTTP", 1))


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (Audio(1, 1, bytes(MAX_PCM_BYTES + 2)), "audio.pcm"),
        (SpeechOut(1, 1, bytes(MAX_PCM_BYTES + 2)), "speech_out.pcm"),
        (Text(1, 1, "x" * 40_000), "text.text"),
        (Open(1, "asr:en", hints=("a",) * 300), "open.hints"),
        (Final(1, 1, Hypothesis(words=(Word("a", 0, 1),) * 2001)), "words"),
    ],
)
def test_what_is_too_long_is_not_sent(message: Message, field: str) -> None:
    with pytest.raises(ProtocolError, match="at most") as caught:
        encode(message)
    assert caught.value.field == field


def test_numbers_beyond_the_wire_are_not_sent() -> None:
    with pytest.raises(ProtocolError, match="Read"):
        encode(Read(2**32, 1))


def test_a_length_that_lies_allocates_nothing() -> None:
    with pytest.raises(ProtocolError, match="4294967295 bytes"):
        decode_batch(b"\xff\xff\xff\xff" + b"\0" * 20)


def test_a_lone_surrogate_does_not_end_a_call() -> None:
    sent = Text(1, 1, "a\ud800b")
    assert decode(encode(sent)) == Text(1, 1, "a?b")
