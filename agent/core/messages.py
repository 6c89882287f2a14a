"""What an edge (the process that holds calls) and a core (the process that holds engines) say to each other.

One set for every link. A message is a frozen value; `agent.core.codec` turns it into bytes and back, and no link looks
inside. Each names a `stream`: one turn of a caller or one clause of a reply, numbered by the edge; 0 is the link.
`generation` numbers the requests of a stream (readings, clauses), so that what was cancelled can be told from what is
wanted; `sequence` numbers its audio frames.

Not for: who may send what when (that is `agent.core.server` and `agent.core.remote`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum

from agent.asr.protocol import EngineInfo, Hypothesis, Word
from agent.core.fairqueue import Priority

__all__ = [
    "PROTOCOL_VERSION",
    "Ack",
    "Audio",
    "Cancel",
    "Close",
    "Evidence",
    "Fault",
    "FaultCode",
    "Final",
    "GoAway",
    "Hello",
    "Kind",
    "Message",
    "Model",
    "Open",
    "Partial",
    "Ping",
    "Pong",
    "Read",
    "SpeechOut",
    "Text",
    "Urge",
]

PROTOCOL_VERSION = 1
"""Grows with every change of a message. Both sides must have the same: they are one program, updated together."""


class Kind(IntEnum):
    """First byte of a message."""

    HELLO = 1
    OPEN = 2
    AUDIO = 3
    READ = 4
    PARTIAL = 5
    FINAL = 6
    TEXT = 7
    SPEECH_OUT = 8
    CANCEL = 9
    CLOSE = 10
    ACK = 11
    EVIDENCE = 12
    GO_AWAY = 13
    FAULT = 14
    PING = 15
    PONG = 16
    URGE = 17


class FaultCode(StrEnum):
    """Why something was not done."""

    VERSION = "version"
    """The two sides speak different protocols; the link ends."""
    BAD_MESSAGE = "bad_message"
    """The link ends."""
    UNKNOWN_SHARD = "unknown_shard"
    UNSUPPORTED_LANGUAGE = "unsupported_language"
    UNSUPPORTED_VOICE = "unsupported_voice"
    OVERLOADED = "overloaded"
    """Full for now; the same request may succeed later, or elsewhere at once."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Model:
    """A shard that a core serves (`asr:en`, `tts:heart`) and the engine behind it."""

    shard: str
    engine: EngineInfo
    streams: int
    """Streams that may be open at once."""


@dataclass(frozen=True, slots=True)
class Hello:
    """First message of both sides. An edge has no models.

    `version` is always decoded, whatever follows it, so that a mismatch can be told.
    """

    name: str
    models: tuple[Model, ...] = ()
    version: int = PROTOCOL_VERSION


@dataclass(frozen=True, slots=True)
class Open:
    """Edge: begin a stream on a shard. `language` and `hints` are for recognition."""

    stream: int
    shard: str
    language: str = ""
    hints: tuple[str, ...] = ()
    listen: bool = False
    """Send Evidence too: the detector's, computed beside the recogniser."""


@dataclass(frozen=True, slots=True)
class Audio:
    """Edge: caller's audio, little-endian int16 mono at the shard's rate. `sequence` counts from 1."""

    stream: int
    sequence: int
    pcm: bytes


@dataclass(frozen=True, slots=True)
class Read:
    """Edge: a final reading of everything sent so far."""

    stream: int
    generation: int


@dataclass(frozen=True, slots=True)
class Partial:
    """Core: a newer reading; `sequence` is the newest frame that had come when it was told."""

    stream: int
    sequence: int
    hypothesis: Hypothesis


@dataclass(frozen=True, slots=True)
class Final:
    """Core: the answer to a Read."""

    stream: int
    generation: int
    hypothesis: Hypothesis


@dataclass(frozen=True, slots=True)
class Text:
    """Edge: a clause to speak."""

    stream: int
    generation: int
    text: str
    voice: str = ""
    language: str = ""
    rate: float = 1.0
    instruction: str = ""
    priority: Priority = Priority.NORMAL


@dataclass(frozen=True, slots=True)
class SpeechOut:
    """Core: speech, little-endian int16 mono at the shard's rate; word times as in `agent.tts.protocol.Speech`.

    A piece longer than a message comes in parts, all but the last with `more`; words and source are in the last part.
    `last` ends the generation and may come without samples.
    """

    stream: int
    generation: int
    pcm: bytes
    words: tuple[Word, ...] = ()
    source: str = ""
    more: bool = False
    last: bool = False


@dataclass(frozen=True, slots=True)
class Cancel:
    """Edge: nothing of this generation and those before it is wanted any more."""

    stream: int
    generation: int


@dataclass(frozen=True, slots=True)
class Close:
    """Edge: the stream is over. Its number is never used again on this link."""

    stream: int


@dataclass(frozen=True, slots=True)
class Ack:
    """Core: frames up to `sequence` were taken in; `credits` more may be on the way."""

    stream: int
    sequence: int
    credits: int


@dataclass(frozen=True, slots=True)
class Evidence:
    """Core: what is heard beside the words, up to frame `sequence`."""

    stream: int
    sequence: int
    speech: float | None = None
    """Probability of speech in the newest window, by the voice-activity detector."""
    end_of_turn: float | None = None
    """Probability that the speaker is done, by sound alone."""


@dataclass(frozen=True, slots=True)
class GoAway:
    """Core: open nothing new here; what is open may go on for `grace_ms`."""

    reason: str
    grace_ms: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was not done: a stream's request, or with stream 0 everything on this link."""

    stream: int
    generation: int
    code: FaultCode
    text: str


@dataclass(frozen=True, slots=True)
class Ping:
    """Either side: are you there? Answered by the link itself."""

    number: int


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a Ping."""

    number: int


@dataclass(frozen=True, slots=True)
class Urge:
    """Edge: a clause being made has become more or less urgent."""

    stream: int
    generation: int
    priority: Priority


Message = (
    Hello
    | Open
    | Audio
    | Read
    | Partial
    | Final
    | Text
    | SpeechOut
    | Cancel
    | Close
    | Ack
    | Evidence
    | GoAway
    | Fault
    | Ping
    | Pong
    | Urge
)
