"""What goes into the user agent and what comes out: events of the network, commands of the application, news of calls.

A call is known by an id of ours, a short text that never appears on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from signaling.sip.fields import NameAddr
from signaling.sip.message import Request, Response
from signaling.sip.negotiation import Agreement, LocalMedia
from signaling.sip.parser import UnreadableMessage
from signaling.sip.peer import Peer
from signaling.sip.sdp import Direction
from signaling.sip.transaction.base import Transaction
from signaling.sip.uri import Uri

__all__ = [
    "AcceptTransfer",
    "Answer",
    "CallEnded",
    "CallEstablished",
    "CallOffered",
    "CallProgressed",
    "ChangeDirection",
    "ChangeMedia",
    "ChangeRefused",
    "Command",
    "Dial",
    "DigitReceived",
    "EndCause",
    "Event",
    "HangUp",
    "MediaAgreed",
    "NetworkEvent",
    "News",
    "Output",
    "Received",
    "RefuseTransfer",
    "RegistrationChanged",
    "Reject",
    "ReportTransfer",
    "Ring",
    "Send",
    "SendDigit",
    "SendFailed",
    "Tick",
    "Transfer",
    "TransferAsked",
    "TransferProgressed",
    "Unreadable",
]


class EndCause(Enum):
    """Why a call is over."""

    HUNG_UP = "hung_up"
    """We ended it."""
    PEER_HUNG_UP = "peer_hung_up"
    CANCELLED = "cancelled"
    """The caller gave up before the answer."""
    REFUSED = "refused"
    """The callee's final response was not a 2xx; `status` has it."""
    REJECTED = "rejected"
    """We refused it."""
    NO_ANSWER = "no_answer"
    """Nobody answered within the limit, or the far end never responded."""
    NO_ACK = "no_ack"
    """The caller never acknowledged our answer."""
    LOST = "lost"
    """A request within the call found no peer: timeout, unreachable, or it knows of no such call."""
    EXPIRED = "expired"
    """The session timer ran out (RFC 4028)."""
    REPLACED = "replaced"
    """Another call took its place (RFC 3891)."""
    MEDIA = "media"
    """The descriptions did not fit."""


# From the network


@dataclass(frozen=True, slots=True)
class Received:
    message: Request | Response
    peer: Peer


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A message that the parser refused."""

    fault: UnreadableMessage
    peer: Peer


@dataclass(frozen=True, slots=True)
class Send:
    """Output: a message for the transport."""

    message: Request | Response
    peer: Peer
    owner: Transaction | None = None
    """To be told of a failure, through SendFailed."""


@dataclass(frozen=True, slots=True)
class SendFailed:
    """The transport could not deliver: no route, refused connection, name unknown, ICMP error."""

    send: Send


@dataclass(frozen=True, slots=True)
class Tick:
    """Time has passed; wanted at `UserAgent.next_at`."""


# Commands


@dataclass(frozen=True, slots=True)
class Dial:
    """Place a call. `call` is a new id."""

    call: str
    target: Uri
    media: LocalMedia
    caller: NameAddr | None = None
    """From; None: our own address."""
    headers: tuple[tuple[str, str], ...] = ()
    peer: Peer | None = None
    """Where to send it; None: the outbound proxy, or by the target."""
    replaces: str | None = None
    """Value of a Replaces header (attended transfer to us)."""


@dataclass(frozen=True, slots=True)
class Ring:
    """Tell the caller that it rings: 180, or 183 with early media when `media` is given."""

    call: str
    media: LocalMedia | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    call: str
    media: LocalMedia


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuse an incoming call with a status of 300 to 699."""

    call: str
    status: int = 603
    contact: Uri | None = None
    """Of a 3xx: where to try instead."""


@dataclass(frozen=True, slots=True)
class HangUp:
    """End a call in whatever state it is."""

    call: str


@dataclass(frozen=True, slots=True)
class ChangeDirection:
    """Hold (`sendonly`, `inactive`) or resume (`sendrecv`)."""

    call: str
    direction: Direction


@dataclass(frozen=True, slots=True)
class ChangeMedia:
    """Our address or port has changed."""

    call: str
    media: LocalMedia


@dataclass(frozen=True, slots=True)
class Transfer:
    """Have the peer call somebody else: blind, or attended when `to_call` is the id of our call with the target."""

    call: str
    target: Uri | None = None
    to_call: str | None = None


@dataclass(frozen=True, slots=True)
class AcceptTransfer:
    """Take the peer's REFER; report what comes of it with ReportTransfer."""

    call: str


@dataclass(frozen=True, slots=True)
class RefuseTransfer:
    call: str
    status: int = 603


@dataclass(frozen=True, slots=True)
class ReportTransfer:
    """Status of the call that the peer asked for; 200 and above is the last report."""

    call: str
    status: int


@dataclass(frozen=True, slots=True)
class SendDigit:
    """One key press as INFO (application/dtmf-relay), for peers without telephone-event."""

    call: str
    digit: str
    duration_ms: int = 160


# News of calls


@dataclass(frozen=True, slots=True)
class CallOffered:
    """Somebody calls. To be met with Ring, Answer, Reject or HangUp."""

    call: str
    caller: NameAddr
    called: Uri
    """The request URI."""
    request: Request
    peer: Peer
    user: str = ""
    """Whose digest credentials it came with; "": by its address."""
    replaces: str | None = None
    """The call it takes the place of when answered."""


@dataclass(frozen=True, slots=True)
class CallProgressed:
    """A provisional response to our call: 180 it rings, 183 early media."""

    call: str
    status: int


@dataclass(frozen=True, slots=True)
class MediaAgreed:
    """Sound may flow so from now on; None: the stream was switched off."""

    call: str
    agreement: Agreement | None


@dataclass(frozen=True, slots=True)
class CallEstablished:
    """Answered: our call by the callee, an incoming one by us and acknowledged."""

    call: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """The last news of a call."""

    call: str
    cause: EndCause
    status: int = 0
    """Of the response that ended it, or 0."""


@dataclass(frozen=True, slots=True)
class ChangeRefused:
    """Our re-INVITE was refused; what was agreed before stays."""

    call: str
    status: int


@dataclass(frozen=True, slots=True)
class DigitReceived:
    """A key press that came by INFO."""

    call: str
    digit: str
    duration_ms: int


@dataclass(frozen=True, slots=True)
class TransferAsked:
    """The peer wants us to call somebody else. Comes only where incoming REFER is allowed."""

    call: str
    target: Uri
    replaces: str | None
    """Value for Dial.replaces."""


@dataclass(frozen=True, slots=True)
class TransferProgressed:
    """What the peer reports of our Transfer. Only a final 2xx is success."""

    call: str
    status: int
    final: bool


@dataclass(frozen=True, slots=True)
class RegistrationChanged:
    """We are in the registrar's book, or not any more."""

    registered: bool
    status: int
    """Of the response that says so; 408 where none came."""


NetworkEvent = Received | Unreadable | SendFailed | Tick
Command = (
    Dial
    | Ring
    | Answer
    | Reject
    | HangUp
    | ChangeDirection
    | ChangeMedia
    | Transfer
    | AcceptTransfer
    | RefuseTransfer
    | ReportTransfer
    | SendDigit
)
Event = NetworkEvent | Command
News = (
    CallOffered
    | CallProgressed
    | MediaAgreed
    | CallEstablished
    | CallEnded
    | ChangeRefused
    | DigitReceived
    | TransferAsked
    | TransferProgressed
    | RegistrationChanged
)
Output = Send | News
