"""Entries as bytes."""

from __future__ import annotations

import hashlib
import struct
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.asr.protocol import Word
from agent.errors import MediaError
from agent.media.encoded import EncodedSpeech
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.format import HEADER_BYTES, MAX_ENTRY_BYTES, Unreadable, body_size, dump, load
from agent.voicecache.key import SpeechKey
from tests.agent.voicecache.support import entry, key_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@st.composite
def words(draw: st.DrawFn) -> Word:
    start = draw(st.floats(0, 1000, allow_nan=False))
    return Word(draw(texts), start, start + draw(st.floats(0, 100, allow_nan=False)))


@st.composite
def codings(draw: st.DrawFn) -> EncodedSpeech:
    rate = draw(st.sampled_from([8000, 16_000, 48_000]))
    pcm = np.array(draw(st.lists(st.integers(-32768, 32767), min_size=1, max_size=900)), np.int16)
    frames = -(-len(pcm) // (rate // 50))
    return EncodedSpeech(draw(texts), rate, tuple(draw(st.binary(max_size=20)) for _ in range(frames)), pcm)


@st.composite
def entries(draw: st.DrawFn) -> CachedSpeech:
    pcm = np.array(draw(st.lists(st.integers(-32768, 32767), max_size=400)), np.int16)
    coded = draw(st.lists(codings(), max_size=2, unique_by=lambda each: each.key))
    return CachedSpeech(
        SpeechKey(draw(st.binary(min_size=20, max_size=20))),
        *(draw(texts) for _ in range(4)),
        draw(st.sampled_from([8000, 24_000, 48_000])),
        pcm,
        tuple(draw(st.lists(words(), max_size=4))),
        packets={each.key: each for each in coded},
    )


@settings(max_examples=60, deadline=None)
@given(entries())
def test_what_was_written_is_read(speech: CachedSpeech) -> None:
    back = load(dump(speech), speech.key)
    for name in ("key", "text", "voice", "language", "source", "sample_rate_hz", "words"):
        assert getattr(back, name) == getattr(speech, name)
    assert np.array_equal(back.pcm, speech.pcm)
    assert back.packets.keys() == speech.packets.keys()
    for name, coded in speech.packets.items():
        assert back.packets[name].payloads == coded.payloads
        assert np.array_equal(back.packets[name].pcm, coded.pcm)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_changed_bit_is_found(data: st.DataObject) -> None:
    whole = bytearray(dump(entry()))
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= 1 << data.draw(st.integers(0, 7))
    with pytest.raises(Unreadable):
        load(bytes(whole))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, len(dump(entry())) - 1))
def test_any_cut_is_found(length: int) -> None:
    with pytest.raises(Unreadable):
        load(dump(entry())[:length])


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=300))
def test_a_body_that_is_nonsense_under_a_right_checksum_is_refused(body: bytes) -> None:
    digest = hashlib.blake2b(body, digest_size=16).digest()
    with pytest.raises(Unreadable):
        load(struct.pack("<4sHHI16s", b"RJVC", 1, 0, len(body), digest) + body)


def test_another_keys_speech_is_refused() -> None:
    with pytest.raises(Unreadable, match="another key"):
        load(dump(entry("One.")), key_of("Two."))


def test_another_version_and_a_huge_length_are_refused() -> None:
    good = dump(entry())
    with pytest.raises(Unreadable, match=r"format 2\.0"):
        body_size(good[:4] + struct.pack("<H", 2) + good[6:HEADER_BYTES])
    with pytest.raises(Unreadable, match="announced"):
        body_size(good[:8] + struct.pack("<I", MAX_ENTRY_BYTES + 1) + good[12:HEADER_BYTES])


def test_what_is_larger_than_the_format_allows_is_not_written() -> None:
    with pytest.raises(ValueError, match="at most"):
        dump(replace(entry(), pcm=np.zeros(MAX_ENTRY_BYTES // 2, np.int16)))


def test_packets_of_another_length_do_not_join_an_entry() -> None:
    speech = entry(seconds=0.1)
    coded = EncodedSpeech("pcmu", 8000, (b"x",) * 5, np.zeros(800, np.int16))
    grown = speech.with_packets(coded)
    assert grown.encoded("pcmu") is coded
    assert grown.size_bytes > speech.size_bytes
    with pytest.raises(MediaError, match="packets of"):
        speech.with_packets(EncodedSpeech("pcmu", 8000, (b"x",) * 10, np.zeros(1600, np.int16)))
