"""What goes into the turn machine and what comes out: states, events and commands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from agent.nlu.hook import Listen, TurnKind

__all__ = [
    "AgentSays",
    "Ask",
    "CallStarted",
    "ClientCancelled",
    "Command",
    "DigitPressed",
    "DropSpeculation",
    "EndCall",
    "Event",
    "FinalFailed",
    "FinalHeard",
    "Listened",
    "PartialHeard",
    "PauseReply",
    "ReplyAudible",
    "ReplyCloses",
    "ReplyEnded",
    "ReplyGuarded",
    "RequestFinal",
    "ResetEar",
    "RespondAgain",
    "ResumeCause",
    "ResumeReply",
    "Say",
    "SoundJudged",
    "Speculate",
    "State",
    "StopCause",
    "StopReply",
    "Tick",
    "Typed",
    "VoiceBegan",
    "VoiceEnded",
]


class State(Enum):
    """The one state of a call."""

    LISTENING = "listening"
    """Nobody speaks."""
    HEARING = "hearing"
    """The caller speaks, the agent is silent."""
    DECIDING = "deciding"
    """The caller paused; is the turn over?"""
    THINKING = "thinking"
    """The hook was asked; nothing is audible yet."""
    SPEAKING = "speaking"
    """The agent is audible."""
    PAUSED = "paused"
    """The caller made a sound over the reply, audible or not; it waits until it is clear what that was."""
    CLOSING = "closing"
    """The last words play; then the call ends."""
    ENDED = "ended"


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The call is up; the agent may greet."""


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; sent every frame."""


@dataclass(frozen=True, slots=True)
class VoiceBegan:
    """Speech was detected; it began `ago_ms` before now."""

    ago_ms: float


@dataclass(frozen=True, slots=True)
class VoiceEnded:
    """The open segment closed; its last speech was `ago_ms` before now and held `speech_ms` of speech."""

    ago_ms: float
    speech_ms: int


@dataclass(frozen=True, slots=True)
class PartialHeard:
    """A newer reading of the running turn."""

    text: str
    stable: str = ""


@dataclass(frozen=True, slots=True)
class FinalHeard:
    """The recogniser's answer to `RequestFinal(final_id)`."""

    final_id: int
    text: str
    confidence: float = 1.0
    end_of_turn: float | None = None


@dataclass(frozen=True, slots=True)
class FinalFailed:
    """The recogniser failed on `RequestFinal(final_id)`."""

    final_id: int


@dataclass(frozen=True, slots=True)
class SoundJudged:
    """A model's probability, from the sound alone, that the pause of `RequestFinal(final_id)` ends the turn."""

    final_id: int
    probability: float


@dataclass(frozen=True, slots=True)
class Typed:
    """The caller typed a message."""

    text: str


@dataclass(frozen=True, slots=True)
class DigitPressed:
    digit: str


@dataclass(frozen=True, slots=True)
class ReplyAudible:
    """The first sample of the reply has left."""

    revision: int


@dataclass(frozen=True, slots=True)
class ReplyEnded:
    """The reply's hook is done and all of it was played, or it failed. `hang_up` asks for the end of the call."""

    revision: int
    hang_up: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyGuarded:
    """From here to its end the reply is not interrupted by speech, keys or the client's cancel."""

    revision: int


@dataclass(frozen=True, slots=True)
class AgentSays:
    """A clause of the reply went to playout. What comes back as echo reads like it."""

    revision: int
    text: str


@dataclass(frozen=True, slots=True)
class ReplyCloses:
    """The reply asked to hang up after it: what plays now are the last words. No speech, key or cancel stops them; only
    a typed message or a new request of the client does."""

    revision: int
    reason: str


@dataclass(frozen=True, slots=True)
class Listened:
    """The hook said what it expects next."""

    listen: Listen


@dataclass(frozen=True, slots=True)
class ClientCancelled:
    """The client asked for silence."""


@dataclass(frozen=True, slots=True)
class RespondAgain:
    """A reply is wanted though the caller said nothing new: the client asks for it, or something has happened."""

    data: Mapping[str, object] = field(default_factory=dict)
    """What has happened, for the hook."""


Event = (
    CallStarted
    | Tick
    | VoiceBegan
    | VoiceEnded
    | PartialHeard
    | FinalHeard
    | FinalFailed
    | SoundJudged
    | Typed
    | DigitPressed
    | ReplyAudible
    | ReplyEnded
    | ReplyGuarded
    | AgentSays
    | ReplyCloses
    | Listened
    | ClientCancelled
    | RespondAgain
)


# -- commands ----------------------------------------------------------------------------------------------------------


StopCause = Literal["barge_in", "typed", "dtmf", "client", "limit"]
"""limit: the call's time is up."""

ResumeCause = Literal["noise", "backchannel", "echo", "guarded", "ended"]
"""What the sound over the reply was. guarded: the reply is not to be interrupted any more; ended: it was over already,
and the playout is free for the next one."""


@dataclass(frozen=True, slots=True)
class RequestFinal:
    """Read everything heard in this turn so far and answer with FinalHeard or FinalFailed of the same id."""

    final_id: int


@dataclass(frozen=True, slots=True)
class ResetEar:
    """What was heard is used up or was noise; the next speech starts a fresh reading."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask the hook and speak its reply, as `revision`."""

    revision: int
    kind: TurnKind
    text: str = ""
    confidence: float = 1.0
    last_speech_at: float | None = None
    """When the caller's last sample was spoken, on the machine's clock."""
    again: bool = False
    """This turn, or the beginning of it, was asked before; that reply was given up before anything was audible, or so
    soon after that the caller cannot have meant it."""
    speculated: bool = False
    """A `Speculate` of the same revision and an equivalent text is out: adopt its reply if it is still there and the
    session's state did not change, else ask as usual. `text` is the turn's final wording."""
    data: Mapping[str, object] = field(default_factory=dict)
    """Of an `event` turn."""


@dataclass(frozen=True, slots=True)
class Speculate:
    """The turn is likely to end: begin the reply to `text` as `revision`, but let nothing of it be heard or done.

    It becomes the reply by an `Ask` of the same revision with `speculated`, or is dropped. At most one is out at a
    time. Whoever carries it out may decline (load): then the `Ask` is asked as usual.
    """

    revision: int
    text: str
    confidence: float = 1.0


@dataclass(frozen=True, slots=True)
class DropSpeculation:
    """The turn went on or became another one: close the speculative reply without trace."""

    revision: int


@dataclass(frozen=True, slots=True)
class Say:
    """Speak a stored phrase, as `revision`."""

    revision: int
    phrase: str
    hang_up: str | None = None
    """These are the last words: the call ends after them, for this reason, unless they are answered."""


@dataclass(frozen=True, slots=True)
class PauseReply:
    """Fall silent at the next frame but forget nothing."""


@dataclass(frozen=True, slots=True)
class ResumeReply:
    """Go on where PauseReply stopped."""

    cause: ResumeCause = "noise"


@dataclass(frozen=True, slots=True)
class StopReply:
    """Give the current reply up; history keeps what was heard."""

    revision: int
    cause: StopCause


@dataclass(frozen=True, slots=True)
class EndCall:
    reason: str


Command = (
    RequestFinal | ResetEar | Ask | Speculate | DropSpeculation | Say | PauseReply | ResumeReply | StopReply | EndCall
)
