"""Cached speech as bytes, for disk, Redis and export. Pure.

    magic "RJVC" | version u16 | flags u16 = 0 | length of the body u32 | blake2b-16 of the body | body

The body, all little-endian; a text is u16 length + UTF-8:

    key 20 bytes | text, voice, language, source | sample rate u32
    words u16, each: text, start f64, end f64 (seconds)
    samples u32, int16 each
    codings u8, each: coder's key | rate u32 | own samples u32 (0: those above), int16 each
                      packets u32, length u16 each | all their bytes

Nothing in it is ever executed or looked up by name. Unknown versions and anything that does not fit are refused.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

import numpy as np

from agent.asr.protocol import Word
from agent.errors import MediaError
from agent.media.encoded import EncodedSpeech
from agent.media.frames import Pcm
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import KEY_BYTES, SpeechKey

__all__ = ["HEADER_BYTES", "MAX_ENTRY_BYTES", "VERSION", "Unreadable", "body_size", "dump", "load"]

VERSION = 1
MAGIC = b"RJVC"
_HEADER = struct.Struct("<4sHHI16s")
HEADER_BYTES = _HEADER.size
MAX_ENTRY_BYTES = 8 * 1024 * 1024
"""Two minutes of 24 kHz with packets: far above any clause."""

MAX_WORDS = 4096
MAX_CODINGS = 16
MAX_RATE_HZ = 192_000


class Unreadable(ValueError):
    """The bytes are not a whole entry: damaged, cut short, or of another version."""


def dump(speech: CachedSpeech) -> bytes:
    """Bytes of an entry. Raises ValueError if it is larger than the format allows."""
    out = bytearray(speech.key.digest)
    for text in (speech.text, speech.voice, speech.language, speech.source):
        _put_text(out, text)
    out += struct.pack("<I", speech.sample_rate_hz)
    if len(speech.words) > MAX_WORDS or len(speech.packets) > MAX_CODINGS:
        raise ValueError(f"cached speech: at most {MAX_WORDS} words and {MAX_CODINGS} codings")
    out += struct.pack("<H", len(speech.words))
    for word in speech.words:
        _put_text(out, word.text)
        out += struct.pack("<dd", word.start_s, word.end_s)
    _put_pcm(out, speech.pcm)
    out += struct.pack("<B", len(speech.packets))
    for coded in speech.packets.values():
        _put_text(out, coded.key)
        out += struct.pack("<I", coded.sample_rate_hz)
        same = coded.sample_rate_hz == speech.sample_rate_hz and np.array_equal(coded.pcm, speech.pcm)
        _put_pcm(out, coded.pcm[:0] if same else coded.pcm)
        out += struct.pack("<I", len(coded.payloads))
        out += np.array([len(payload) for payload in coded.payloads], "<u2").tobytes()
        for payload in coded.payloads:
            out += payload
    if len(out) > MAX_ENTRY_BYTES:
        raise ValueError(f"cached speech: {len(out)} bytes, at most {MAX_ENTRY_BYTES} expected")
    return _HEADER.pack(MAGIC, VERSION, 0, len(out), _digest(out)) + bytes(out)


def body_size(header: bytes) -> int:
    """Length of the body that follows this header. Raises Unreadable."""
    if len(header) < HEADER_BYTES:
        raise Unreadable("shorter than a header")
    magic, version, flags, size, _ = _HEADER.unpack_from(header)
    if magic != MAGIC:
        raise Unreadable("not cached speech")
    if version != VERSION or flags:
        raise Unreadable(f"format {version}.{flags}, {VERSION}.0 expected")
    if size > MAX_ENTRY_BYTES:
        raise Unreadable(f"{size} bytes announced")
    return int(size)


def load(data: bytes, key: SpeechKey | None = None) -> CachedSpeech:
    """An entry from its bytes, which it keeps: samples are not copied.

    Args:
        key: what it must be; None takes any.

    Raises Unreadable.
    """
    size = body_size(data)
    if len(data) != HEADER_BYTES + size:
        raise Unreadable(f"{len(data) - HEADER_BYTES} bytes of {size}")
    if _digest(memoryview(data)[HEADER_BYTES:]) != _HEADER.unpack_from(data)[4]:
        raise Unreadable("checksum does not match")
    try:
        speech = _Reader(data).entry()
    except (struct.error, UnicodeDecodeError, MediaError, ValueError) as exc:
        raise Unreadable(f"checksum matches, contents do not: {exc}") from exc
    if key is not None and speech.key != key:
        raise Unreadable("another key's speech")
    return speech


class _Reader:
    """Reads on from a position; every length is checked against what is there."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = HEADER_BYTES

    def entry(self) -> CachedSpeech:
        key = SpeechKey(self._take(KEY_BYTES))
        text, voice, language, source = (self._text() for _ in range(4))
        rate_hz = self._rate()
        words = tuple(self._words(self._number("<H")))
        pcm = self._pcm()
        packets: dict[str, EncodedSpeech] = {}
        for _ in range(self._number("<B")):
            coded = self._coding(pcm, rate_hz)
            packets[coded.key] = coded
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many")
        return CachedSpeech(key, text, voice, language, source, rate_hz, pcm, words, packets=packets)

    def _coding(self, pcm: Pcm, rate_hz: int) -> EncodedSpeech:
        name = self._text()
        own_hz = self._rate()
        own = self._pcm()
        if not len(own):
            if own_hz != rate_hz:
                raise ValueError("no samples at the coder's rate")
            own = pcm
        count = self._number("<I")
        lengths = np.frombuffer(self._take(2 * count), "<u2")
        return EncodedSpeech(name, own_hz, tuple(self._take(int(length)) for length in lengths), own)

    def _words(self, count: int) -> Iterator[Word]:
        for _ in range(count):
            text = self._text()
            start_s, end_s = struct.unpack("<dd", self._take(16))
            if not 0 <= start_s <= end_s < 3600:
                raise ValueError("word times out of order")
            yield Word(text, start_s, end_s)

    def _pcm(self) -> Pcm:
        count = self._number("<I")
        return np.frombuffer(self._take(2 * count), "<i2").astype(np.int16, copy=False)

    def _rate(self) -> int:
        rate_hz = self._number("<I")
        if not 4_000 <= rate_hz <= MAX_RATE_HZ:
            raise ValueError(f"a rate of {rate_hz} Hz")
        return rate_hz

    def _text(self) -> str:
        return self._take(self._number("<H")).decode()

    def _number(self, layout: str) -> int:
        (value,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return int(value)

    def _take(self, size: int) -> bytes:
        end = self._at + size
        if end > len(self._data):
            raise ValueError(f"{size} bytes wanted at {self._at}, {len(self._data) - self._at} left")
        part = self._data[self._at : end]
        self._at = end
        return part


def _digest(body: bytes | bytearray | memoryview) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def _put_text(out: bytearray, text: str) -> None:
    data = text.encode()
    if len(data) > 0xFFFF:
        raise ValueError("cached speech: a text longer than 65,535 bytes")
    out += struct.pack("<H", len(data)) + data


def _put_pcm(out: bytearray, pcm: Pcm) -> None:
    out += struct.pack("<I", len(pcm))
    out += pcm.astype("<i2", copy=False).tobytes()
