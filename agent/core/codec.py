"""Messages as bytes: a fixed little-endian layout, no pickle, no schema compiler. Pure.

Layout: kind u8, stream u32, number u32 (generation, sequence or ping), then what the kind holds. A text is u16 length
and UTF-8; a list is u16 count and its items; audio comes last and has no length of its own. A batch, which is what
links carry, is each message after its u32 length.

`struct` and not protobuf: a frame of audio is a header and bytes, which protobuf copies once more; the same bytes go
through shared memory, where no protobuf is needed; and every limit is checked in one place below.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from agent.asr.protocol import EngineInfo, Hypothesis, Word
from agent.core.fairqueue import Priority
from agent.core.messages import (
    PROTOCOL_VERSION,
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

__all__ = [
    "MAX_BATCH_BYTES",
    "MAX_MESSAGE_BYTES",
    "MAX_PCM_BYTES",
    "decode",
    "decode_batch",
    "encode",
    "join_batch",
]

MAX_PCM_BYTES = 32 * 1024
"""Audio in a message: 1 s at 16 kHz, 0.7 s at 24 kHz. Longer audio is sent in parts."""

MAX_TEXT_BYTES = 32 * 1024
"""A clause or a whole turn: 60 s of fast speech are about 1,500 characters."""

MAX_NAME_BYTES = 256
MAX_WORDS = 2000
MAX_HINTS = 256
MAX_MODELS = 64
MAX_NAMES = 1024
"""Voices or languages of one engine; espeak-ng has about 150."""

MAX_MESSAGE_BYTES = 192 * 1024
"""Above what the limits of a single message's fields allow in practice; the longest real one is below 40 KiB."""

MAX_BATCH_BYTES = 1024 * 1024
"""What is sent at once: 100 calls' frames are 65 KiB."""

MAGIC = b"RJCR"
_HEADER = struct.Struct("<BII")
_LENGTH = struct.Struct("<I")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_F64 = struct.Struct("<d")
_F64_PAIR = struct.Struct("<dd")
_VERSION = struct.Struct("<4sH")
_MORE, _LAST = 1, 2


def encode(message: Message) -> bytes:
    """A message as bytes.

    Raises:
        ProtocolError: a field is longer than what may be sent; `field` names it.
    """
    # The frames of all calls go through here: their kind first, and without the writer.
    if type(message) is Audio:
        if len(message.pcm) > MAX_PCM_BYTES:
            raise _too_long("audio.pcm", len(message.pcm), MAX_PCM_BYTES)
        return _HEADER.pack(Kind.AUDIO, message.stream, message.sequence) + message.pcm
    out = _Writer()
    try:
        _ENCODERS[type(message)](out, message)
        data = b"".join(out.parts)
    except (struct.error, OverflowError) as exc:
        raise ProtocolError(f"{type(message).__name__}: {exc}", code="bad_message") from exc
    if len(data) > MAX_MESSAGE_BYTES:
        raise _too_long(type(message).__name__.lower(), len(data), MAX_MESSAGE_BYTES)
    return data


def decode(data: bytes | memoryview) -> Message:
    """The message of `data`, which holds exactly one; nothing of `data` is kept.

    Raises:
        ProtocolError: it is no message; `field` names the part, `code` is "version" for another protocol's Hello.
    """
    if len(data) < _HEADER.size:
        raise _bad("header", f"{len(data)} bytes, expected at least {_HEADER.size}")
    kind, stream, number = _HEADER.unpack_from(data)
    if kind == Kind.AUDIO:
        return Audio(stream, number, _pcm(data[_HEADER.size :]))
    decoder = _DECODERS.get(kind)
    if decoder is None:
        raise _bad("kind", f"{kind} is no message of protocol {PROTOCOL_VERSION}")
    if len(data) > MAX_MESSAGE_BYTES:
        raise _bad("message", f"{len(data)} bytes, expected at most {MAX_MESSAGE_BYTES}")
    reader = _Reader(memoryview(data)[_HEADER.size :])
    message = decoder(stream, number, reader)
    reader.end()
    return message


def join_batch(messages: Iterable[bytes]) -> bytes:
    """Encoded messages as one batch."""
    parts: list[bytes] = []
    for data in messages:
        parts.append(_LENGTH.pack(len(data)))
        parts.append(data)
    return b"".join(parts)


def decode_batch(data: bytes | memoryview) -> list[Message]:
    """All messages of a batch.

    Raises:
        ProtocolError: the batch or one of its messages is malformed; none of it counts then.
    """
    view = memoryview(data)
    if len(view) > MAX_BATCH_BYTES + _LENGTH.size:
        raise _bad("batch", f"{len(view)} bytes, expected at most {MAX_BATCH_BYTES}")
    messages: list[Message] = []
    at = 0
    while at < len(view):
        if at + _LENGTH.size > len(view):
            raise _bad("batch", "it ends within a length")
        (length,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if at + length > len(view):
            raise _bad("batch", f"a message of {length} bytes, but {len(view) - at} are left")
        end = at + length
        if length >= _HEADER.size and view[at] == Kind.AUDIO:
            # As `decode` does, without a view of the message: most are frames.
            _, stream, number = _HEADER.unpack_from(view, at)
            messages.append(Audio(stream, number, _pcm(view[at + _HEADER.size : end])))
        else:
            messages.append(decode(view[at:end]))
        at = end
    return messages


def _bad(field: str, text: str) -> ProtocolError:
    return ProtocolError(f"{field}: {text}", field=field, code="bad_message")


def _too_long(field: str, length: int, limit: int) -> ProtocolError:
    return _bad(field, f"{length} long, expected at most {limit}")


def _pcm(view: bytes | memoryview) -> bytes:
    if len(view) > MAX_PCM_BYTES or len(view) % 2:
        raise _bad("pcm", f"{len(view)} bytes, expected whole int16 samples, at most {MAX_PCM_BYTES} bytes")
    return bytes(view)


class _Writer:
    """Collects the parts of one message."""

    __slots__ = ("parts",)

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def header(self, kind: Kind, stream: int, number: int) -> None:
        self.parts.append(_HEADER.pack(kind, stream, number))

    def u16(self, value: int) -> None:
        self.parts.append(_U16.pack(value))

    def u32(self, value: int) -> None:
        self.parts.append(_U32.pack(value))

    def number(self, value: float | None) -> None:
        self.parts.append(_F64.pack(math.nan if value is None else value))

    def text(self, value: str, field: str, limit: int = MAX_TEXT_BYTES) -> None:
        # A lone surrogate cannot be spelled in UTF-8, and must not end a call.
        data = value.encode("utf-8", "replace")
        if len(data) > limit:
            raise _too_long(field, len(data), limit)
        self.parts += (_U16.pack(len(data)), data)

    def texts(self, values: Sequence[str], field: str, limit: int) -> None:
        if len(values) > limit:
            raise _too_long(field, len(values), limit)
        self.u16(len(values))
        for value in values:
            self.text(value, field, MAX_NAME_BYTES)

    def words(self, words: Sequence[Word]) -> None:
        if len(words) > MAX_WORDS:
            raise _too_long("words", len(words), MAX_WORDS)
        self.u16(len(words))
        for word in words:
            self.parts.append(_F64_PAIR.pack(word.start_s, word.end_s))
            self.text(word.text, "words.text", MAX_NAME_BYTES)

    def hypothesis(self, read: Hypothesis) -> None:
        self.text(read.text, "hypothesis.text")
        self.text(read.stable, "hypothesis.stable")
        self.words(read.words)
        self.number(read.confidence)
        self.number(read.end_of_turn)
        self.u32(read.revision)
        self.number(read.sound)


class _Reader:
    """Takes the parts of one message off its bytes, and trusts none of them."""

    __slots__ = ("_at", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view = view
        self._at = 0

    def take(self, size: int, field: str) -> memoryview:
        at = self._at
        if at + size > len(self._view):
            raise _bad(field, f"{size} bytes expected, {len(self._view) - at} are left")
        self._at = at + size
        return self._view[at : at + size]

    def rest(self) -> memoryview:
        return self.take(len(self._view) - self._at, "rest")

    def end(self) -> None:
        if self._at != len(self._view):
            raise _bad("message", f"{len(self._view) - self._at} bytes too many")

    def u8(self, field: str) -> int:
        return self.take(1, field)[0]

    def u16(self, field: str) -> int:
        value: int = _U16.unpack(self.take(2, field))[0]
        return value

    def u32(self, field: str) -> int:
        value: int = _U32.unpack(self.take(4, field))[0]
        return value

    def finite(self, field: str) -> float:
        value = self.optional(field)
        if value is None:
            raise _bad(field, "expected a number")
        return value

    def optional(self, field: str) -> float | None:
        value: float = _F64.unpack(self.take(8, field))[0]
        if math.isinf(value):
            raise _bad(field, "expected a finite number")
        return None if math.isnan(value) else value

    def text(self, field: str, limit: int = MAX_TEXT_BYTES) -> str:
        length = self.u16(field)
        if length > limit:
            raise _too_long(field, length, limit)
        try:
            return str(self.take(length, field), "utf-8")
        except UnicodeDecodeError as exc:
            raise _bad(field, "not UTF-8") from exc

    def texts(self, field: str, limit: int) -> tuple[str, ...]:
        return tuple(self.text(field, MAX_NAME_BYTES) for _ in range(self._count(field, limit)))

    def words(self) -> tuple[Word, ...]:
        return tuple(self._word() for _ in range(self._count("words", MAX_WORDS)))

    def hypothesis(self) -> Hypothesis:
        return Hypothesis(
            text=self.text("hypothesis.text"),
            stable=self.text("hypothesis.stable"),
            words=self.words(),
            confidence=self.finite("hypothesis.confidence"),
            end_of_turn=self.optional("hypothesis.end_of_turn"),
            revision=self.u32("hypothesis.revision"),
            sound=self.optional("hypothesis.sound"),
        )

    def priority(self) -> Priority:
        value = self.u8("priority")
        try:
            return Priority(value)
        except ValueError:
            raise _bad("priority", f"{value} is none") from None

    def _count(self, field: str, limit: int) -> int:
        count = self.u16(field)
        if count > limit:
            raise _too_long(field, count, limit)
        return count

    def _word(self) -> Word:
        start_s, end_s = self.finite("words.start_s"), self.finite("words.end_s")
        return Word(self.text("words.text", MAX_NAME_BYTES), start_s, end_s)


def _hello(out: _Writer, m: Hello) -> None:
    if len(m.models) > MAX_MODELS:
        raise _too_long("hello.models", len(m.models), MAX_MODELS)
    out.header(Kind.HELLO, 0, 0)
    out.parts.append(_VERSION.pack(MAGIC, m.version))
    out.text(m.name, "hello.name", MAX_NAME_BYTES)
    out.u16(len(m.models))
    for model in m.models:
        info = model.engine
        out.text(model.shard, "hello.shard", MAX_NAME_BYTES)
        out.text(info.name, "hello.engine", MAX_NAME_BYTES)
        out.text(info.version, "hello.engine_version", MAX_NAME_BYTES)
        out.u32(info.sample_rate_hz)
        out.u16(info.streams)
        out.texts(info.languages, "hello.languages", MAX_NAMES)
        out.texts(info.voices, "hello.voices", MAX_NAMES)
        out.u32(model.streams)


def _read_hello(_stream: int, _number: int, r: _Reader) -> Hello:
    magic, version = _VERSION.unpack(r.take(_VERSION.size, "hello.version"))
    if magic != MAGIC:
        raise _bad("hello.magic", "not a Rejoinder core or edge")
    if version != PROTOCOL_VERSION:
        raise ProtocolError(
            f"the other side speaks core protocol {version}, this side {PROTOCOL_VERSION}: "
            "run the same version of Rejoinder on both",
            field="hello.version",
            code=FaultCode.VERSION.value,
        )
    name = r.text("hello.name", MAX_NAME_BYTES)
    count = r.u16("hello.models")
    if count > MAX_MODELS:
        raise _too_long("hello.models", count, MAX_MODELS)
    return Hello(name, tuple(_read_model(r) for _ in range(count)))


def _read_model(r: _Reader) -> Model:
    shard = r.text("hello.shard", MAX_NAME_BYTES)
    name = r.text("hello.engine", MAX_NAME_BYTES)
    version = r.text("hello.engine_version", MAX_NAME_BYTES)
    rate_hz = r.u32("hello.sample_rate_hz")
    if not 8000 <= rate_hz <= 48_000:
        raise _bad("hello.sample_rate_hz", f"{rate_hz}, expected 8000 to 48000")
    streams = bool(r.u16("hello.streams"))
    languages = r.texts("hello.languages", MAX_NAMES)
    voices = r.texts("hello.voices", MAX_NAMES)
    return Model(shard, EngineInfo(name, version, rate_hz, languages, streams, voices), r.u32("hello.capacity"))


def _open(out: _Writer, m: Open) -> None:
    out.header(Kind.OPEN, m.stream, int(m.listen))
    out.text(m.shard, "open.shard", MAX_NAME_BYTES)
    out.text(m.language, "open.language", MAX_NAME_BYTES)
    out.texts(m.hints, "open.hints", MAX_HINTS)


def _read_open(stream: int, number: int, r: _Reader) -> Open:
    shard, language = r.text("open.shard", MAX_NAME_BYTES), r.text("open.language", MAX_NAME_BYTES)
    return Open(stream, shard, language, r.texts("open.hints", MAX_HINTS), bool(number))


def _partial(out: _Writer, m: Partial) -> None:
    out.header(Kind.PARTIAL, m.stream, m.sequence)
    out.hypothesis(m.hypothesis)


def _final(out: _Writer, m: Final) -> None:
    out.header(Kind.FINAL, m.stream, m.generation)
    out.hypothesis(m.hypothesis)


def _text(out: _Writer, m: Text) -> None:
    out.header(Kind.TEXT, m.stream, m.generation)
    out.parts.append(bytes((m.priority,)))
    out.number(m.rate)
    out.text(m.text, "text.text")
    out.text(m.voice, "text.voice", MAX_NAME_BYTES)
    out.text(m.language, "text.language", MAX_NAME_BYTES)
    out.text(m.instruction, "text.instruction")


def _read_text(stream: int, number: int, r: _Reader) -> Text:
    priority, rate = r.priority(), r.finite("text.rate")
    text = r.text("text.text")
    voice, language = r.text("text.voice", MAX_NAME_BYTES), r.text("text.language", MAX_NAME_BYTES)
    return Text(stream, number, text, voice, language, rate, r.text("text.instruction"), priority)


def _speech_out(out: _Writer, m: SpeechOut) -> None:
    if len(m.pcm) > MAX_PCM_BYTES:
        raise _too_long("speech_out.pcm", len(m.pcm), MAX_PCM_BYTES)
    out.header(Kind.SPEECH_OUT, m.stream, m.generation)
    out.parts.append(bytes(((_MORE if m.more else 0) | (_LAST if m.last else 0),)))
    out.text(m.source, "speech_out.source", MAX_NAME_BYTES)
    out.words(m.words)
    out.parts.append(m.pcm)


def _read_speech_out(stream: int, number: int, r: _Reader) -> SpeechOut:
    flags = r.u8("speech_out.flags")
    source, words = r.text("speech_out.source", MAX_NAME_BYTES), r.words()
    return SpeechOut(stream, number, _pcm(r.rest()), words, source, bool(flags & _MORE), bool(flags & _LAST))


def _ack(out: _Writer, m: Ack) -> None:
    out.header(Kind.ACK, m.stream, m.sequence)
    out.u16(m.credits)


def _evidence(out: _Writer, m: Evidence) -> None:
    out.header(Kind.EVIDENCE, m.stream, m.sequence)
    out.number(m.speech)
    out.number(m.end_of_turn)


def _go_away(out: _Writer, m: GoAway) -> None:
    out.header(Kind.GO_AWAY, 0, m.grace_ms)
    out.text(m.reason, "go_away.reason")


def _fault(out: _Writer, m: Fault) -> None:
    out.header(Kind.FAULT, m.stream, m.generation)
    out.text(m.code, "fault.code", MAX_NAME_BYTES)
    # Engines put a foreign library's words into theirs; a long one must not hide that something failed.
    out.text(m.text[:2000], "fault.text")


def _read_fault(stream: int, number: int, r: _Reader) -> Fault:
    code = r.text("fault.code", MAX_NAME_BYTES)
    try:
        known = FaultCode(code)
    except ValueError:
        raise _bad("fault.code", f"{code!r} is none") from None
    return Fault(stream, number, known, r.text("fault.text"))


def _urge(out: _Writer, m: Urge) -> None:
    out.header(Kind.URGE, m.stream, m.generation)
    out.parts.append(bytes((m.priority,)))


_ENCODERS: dict[type, Callable[[_Writer, Any], None]] = {
    Hello: _hello,
    Open: _open,
    Read: lambda out, m: out.header(Kind.READ, m.stream, m.generation),
    Partial: _partial,
    Final: _final,
    Text: _text,
    SpeechOut: _speech_out,
    Cancel: lambda out, m: out.header(Kind.CANCEL, m.stream, m.generation),
    Close: lambda out, m: out.header(Kind.CLOSE, m.stream, 0),
    Ack: _ack,
    Evidence: _evidence,
    GoAway: _go_away,
    Fault: _fault,
    Ping: lambda out, m: out.header(Kind.PING, 0, m.number),
    Pong: lambda out, m: out.header(Kind.PONG, 0, m.number),
    Urge: _urge,
}

_DECODERS: dict[int, Callable[[int, int, _Reader], Message]] = {
    Kind.HELLO: _read_hello,
    Kind.OPEN: _read_open,
    Kind.READ: lambda stream, number, _: Read(stream, number),
    Kind.PARTIAL: lambda stream, number, r: Partial(stream, number, r.hypothesis()),
    Kind.FINAL: lambda stream, number, r: Final(stream, number, r.hypothesis()),
    Kind.TEXT: _read_text,
    Kind.SPEECH_OUT: _read_speech_out,
    Kind.CANCEL: lambda stream, number, _: Cancel(stream, number),
    Kind.CLOSE: lambda stream, _number, _: Close(stream),
    Kind.ACK: lambda stream, number, r: Ack(stream, number, r.u16("ack.credits")),
    Kind.EVIDENCE: lambda stream, number, r: Evidence(
        stream, number, r.optional("evidence.speech"), r.optional("evidence.end_of_turn")
    ),
    Kind.GO_AWAY: lambda _stream, number, r: GoAway(r.text("go_away.reason"), number),
    Kind.FAULT: _read_fault,
    Kind.PING: lambda _stream, number, _: Ping(number),
    Kind.PONG: lambda _stream, number, _: Pong(number),
    Kind.URGE: lambda stream, number, r: Urge(stream, number, r.priority()),
}
