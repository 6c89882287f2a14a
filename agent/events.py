"""What a call tells the outside while it happens. Frozen facts; the signaling side translates them for its clients."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = [
    "AgentText",
    "CacheUse",
    "CallEnded",
    "CallEvent",
    "CallFault",
    "CallResumed",
    "CallSuspended",
    "ClientData",
    "DtmfPressed",
    "DtmfSent",
    "Floor",
    "FloorChanged",
    "MediaResumed",
    "MediaStalled",
    "Observer",
    "OutputCleared",
    "OutputPaused",
    "OutputResumed",
    "PlayoutStarted",
    "PlayoutStopped",
    "ReplyFinished",
    "ReplyStarted",
    "ReplyStatus",
    "SpeechStarted",
    "SpeechStopped",
    "TransferRequested",
    "TurnTimings",
    "UserTranscript",
]

Floor = Literal["caller", "agent", "thinking", "nobody"]
ReplyStatus = Literal["completed", "cancelled", "failed"]
CacheUse = Literal["hit", "predicted", "miss"]


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The caller began to speak. `audio_ms` counts from the start of the call, by samples received."""

    item_id: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    item_id: str
    audio_ms: int


@dataclass(frozen=True, slots=True)
class UserTranscript:
    """What the caller said. Partials carry the whole stable text so far.

    `final` comes once an item, and again, with more text, if the caller went on before the answer was audible.
    """

    item_id: str
    text: str
    final: bool


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The hook was asked and a reply has begun."""

    response_id: str
    item_id: str


@dataclass(frozen=True, slots=True)
class AgentText:
    """A clause of the reply was handed to playout."""

    response_id: str
    item_id: str
    text: str


@dataclass(frozen=True, slots=True)
class PlayoutStarted:
    """The first sample of a reply has left."""

    response_id: str


@dataclass(frozen=True, slots=True)
class PlayoutStopped:
    """Nothing of the reply is left to play."""

    response_id: str


@dataclass(frozen=True, slots=True)
class ReplyFinished:
    """The reply is over. `heard` is what left the playout; for a cut reply `unheard` is the rest."""

    response_id: str
    item_id: str
    status: ReplyStatus
    heard: str
    unheard: str = ""


@dataclass(frozen=True, slots=True)
class OutputPaused:
    """The agent fell silent because the caller spoke over it; what that was is not decided yet.

    A client that buffers must drop what it has not played: the reply goes on from here, or is cleared.
    """

    response_id: str


@dataclass(frozen=True, slots=True)
class OutputResumed:
    """What the caller said over the agent meant nothing: the reply goes on where it paused."""

    response_id: str


@dataclass(frozen=True, slots=True)
class OutputCleared:
    """Audio already sent to the client but not yet played there must be dropped (barge-in)."""

    response_id: str


@dataclass(frozen=True, slots=True)
class FloorChanged:
    """Who has the floor."""

    floor: Floor


@dataclass(frozen=True, slots=True)
class TurnTimings:
    """Where the time of one answer went, in milliseconds; None where a part did not take place.

    `response_ms` runs from the last sample the caller spoke to the first audible sample that left.
    """

    response_id: str
    endpoint_ms: float | None
    asr_final_ms: float | None
    nlu_first_ms: float | None
    tts_first_ms: float | None
    playout_ms: float | None
    response_ms: float | None
    cache: CacheUse = "miss"
    """Whether the first clause was in memory when it was asked for, and whether it was made ahead of this first use."""


@dataclass(frozen=True, slots=True)
class DtmfPressed:
    digit: str


@dataclass(frozen=True, slots=True)
class DtmfSent:
    """The hook's `Dtmf`, sent by the media path where that has a way; elsewhere this event is the way."""

    digits: str


@dataclass(frozen=True, slots=True)
class ClientData:
    """The hook's `Send`."""

    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class TransferRequested:
    """The hook's `Transfer`; the channel carries it out (SIP REFER) or tells the client where to go."""

    to: str


@dataclass(frozen=True, slots=True)
class MediaStalled:
    """Nothing has come from the caller's microphone for `silence_s` (media.rtp_silence_s). Once a silence."""

    silence_s: float


@dataclass(frozen=True, slots=True)
class MediaResumed:
    """The caller's audio is back, after `silence_s` without any."""

    silence_s: float


@dataclass(frozen=True, slots=True)
class CallFault:
    """Something failed and the call lives on. `part` is asr, nlu, tts, media or recording.

    `at` is where a hook's own code failed (`file:line function`), else empty; it is not told to clients.
    """

    part: str
    message: str
    at: str = ""


@dataclass(frozen=True, slots=True)
class CallSuspended:
    """The connection is gone and the call waits `resume_s` seconds for the caller to come back."""

    reason: str
    resume_s: float


@dataclass(frozen=True, slots=True)
class CallResumed:
    """The caller is back over another connection, after `away_s` seconds."""

    away_s: float


@dataclass(frozen=True, slots=True)
class CallEnded:
    reason: str


CallEvent = (
    SpeechStarted
    | SpeechStopped
    | UserTranscript
    | ReplyStarted
    | AgentText
    | PlayoutStarted
    | PlayoutStopped
    | ReplyFinished
    | OutputPaused
    | OutputResumed
    | OutputCleared
    | FloorChanged
    | TurnTimings
    | DtmfPressed
    | DtmfSent
    | ClientData
    | TransferRequested
    | MediaStalled
    | MediaResumed
    | CallFault
    | CallSuspended
    | CallResumed
    | CallEnded
)

Observer = Callable[[CallEvent], None]
"""Called on the event loop, in order; must return at once and must not raise."""
