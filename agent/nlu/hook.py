"""The hook: how dialogue logic meets a call.

A hook is one async generator over one immutable `Turn`. It yields text pieces, spoken clause by clause while it is
still writing, and actions, which keep their place among the text. Yielding nothing means staying silent.
Cancellation is `aclose()`; `finally:` is the clean-up.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

__all__ = [
    "Action",
    "Channel",
    "Dtmf",
    "Expect",
    "Hangup",
    "HistoryItem",
    "Interrupted",
    "Listen",
    "Nlu",
    "Play",
    "Private",
    "Reply",
    "Send",
    "Session",
    "SwitchLanguage",
    "SwitchVoice",
    "Transfer",
    "Turn",
    "TurnKind",
    "Uninterruptible",
]

Channel = Literal["browser", "widget", "sip", "websocket", "console"]
TurnKind = Literal["greeting", "speech", "dtmf", "silence", "event"]
Expect = Literal["free", "digits", "yes_no", "name"]


@dataclass(frozen=True, slots=True)
class Session:
    """Who is calling. Everything but `state` is fixed for the call."""

    id: str
    channel: Channel
    language: str = "en"
    """BCP 47 tag, for example `en` or `zh`."""
    caller: str | None = None
    """Telephone number, user id or whatever the channel knows; None when anonymous."""
    state: MutableMapping[str, Any] = field(default_factory=dict)
    """The hook's own memory of this call, kept as long as the call. Only what an HTTP hook is sent must be JSON."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """What the channel was told beside the audio, by the names that the settings allow: header fields of an INVITE
    (`sip.session_headers`), parameters of a bridge (`bridges.parameters`)."""
    called: str | None = None
    """Number or name that was dialled (channel `sip`)."""
    direction: Literal["in", "out"] = "in"
    """`out`: the agent has called; `caller` is then who was called."""


@dataclass(frozen=True, slots=True)
class HistoryItem:
    """One finished contribution, already cut to what was heard."""

    role: Literal["user", "agent"]
    text: str
    """What was said (user) or what the caller heard (agent)."""
    unheard: str = ""
    """The rest of an interrupted agent reply that never left the playout."""
    interrupted: bool = False
    at_s: float = 0.0
    """When it began, in seconds since the call began. Time that the caller was away does not count."""
    end_s: float = 0.0
    """When it ended."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The last reply, when the caller cut it short."""

    heard: str
    unheard: str


@dataclass(frozen=True, slots=True)
class Turn:
    """One thing the caller did, and all a hook may know about it."""

    session: Session
    kind: TurnKind
    text: str = ""
    """The transcript, typed text, or collected digits. Empty for greeting and silence."""
    confidence: float = 1.0
    """0 to 1, the recogniser's own estimate for `text`."""
    language: str = "en"
    history: tuple[HistoryItem, ...] = ()
    """Earlier contributions, oldest first; this turn's text is not in it."""
    interrupted: Interrupted | None = None
    speculative: bool = False
    """True while the turn may still go on; actions are held and the reply may be dropped without trace."""
    data: Mapping[str, Any] = field(default_factory=dict)
    """Payload of an `event` turn."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Hand the caller to a person: a SIP URI, telephone number or queue name. Ends the agent's part.

    On the channel `sip` it ends the call only once it is known to have worked; else an `event` turn follows whose
    `data` is `{"event": "transfer", "to": ..., "outcome": "busy" | "no_answer" | "refused" | "failed", "status": ...}`.
    """

    to: str


@dataclass(frozen=True, slots=True)
class Hangup:
    """End the call, by default once everything before it has been heard."""

    after_playout: bool = True


@dataclass(frozen=True, slots=True)
class Dtmf:
    """Send digits (0-9 * # A-D) to the peer."""

    digits: str


@dataclass(frozen=True, slots=True)
class SwitchLanguage:
    """Recognise and speak this BCP 47 language from here on."""

    tag: str


@dataclass(frozen=True, slots=True)
class SwitchVoice:
    """Speak with another voice from here on."""

    voice: str
    style: str | None = None


@dataclass(frozen=True, slots=True)
class Play:
    """Play a configured clip by name."""

    clip: str


@dataclass(frozen=True, slots=True)
class Send:
    """Send a JSON-serialisable object to the client (data channel or WebSocket)."""

    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Listen:
    """What the next caller turn is expected to be; steers endpointing. `min_digits` applies to `digits`."""

    expect: Expect = "free"
    min_digits: int | None = None
    dtmf_barge_in: bool = True
    """False: a key does not stop what is being said; it is collected all the same."""
    max_digits: int | None = None
    """Keys: an entry is over at this many. None takes `min_digits` for `digits`, and has no bound otherwise."""
    digit_gap_s: float | None = None
    """Keys further apart than this are separate entries; None is 1.5 s."""


@dataclass(frozen=True, slots=True)
class Uninterruptible:
    """From here to its end this reply is heard in full: speech, keys and a client's cancel do not stop it."""


@dataclass(frozen=True, slots=True)
class Private:
    """From here to its end, what this reply says is kept in memory at most: not on disk, not in Redis, not learned."""


Action = Transfer | Hangup | Dtmf | SwitchLanguage | SwitchVoice | Play | Send | Listen | Uninterruptible | Private
Reply = AsyncIterator[str | Action]


@runtime_checkable
class Nlu(Protocol):
    """Dialogue logic. `reply` is called once a turn and must return an async iterator (an async generator is best).

    A hook may also define `expect(turn) -> Sequence[str]`: openings that are likely next, and `async close()`; and
    `speculate = False`, if it cannot be asked about a turn that may yet go on and then be asked again.
    """

    def reply(self, turn: Turn) -> Reply: ...


class Expecting(Protocol):
    """Optional side of a hook: openings that are likely next. Feeds the voice cache."""

    def expect(self, turn: Turn) -> Sequence[str]: ...
