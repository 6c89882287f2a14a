"""What signaling needs of the agent, a call and the media layer, as structural types.

The real `Agent` and `Call` satisfy these without knowing them; tests satisfy them with doubles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from agent.config import MediaSettings, Settings
from agent.events import Observer
from agent.media.port import MediaPort, ResumablePort
from agent.media.ticker import Ticker
from agent.nlu.hook import Session
from agent.observe.metrics import Metrics

__all__ = [
    "CALLER_HUNG_UP",
    "NOT_CONNECTED",
    "PEER_CLOSED",
    "SERVER_STOPPED",
    "AgentLike",
    "AnswerOffer",
    "CallLike",
    "Drains",
    "Ends",
    "MakePcmPort",
    "PcmPortLike",
    "WebRtcPortLike",
]

CALLER_HUNG_UP = "caller hung up"
PEER_CLOSED = "peer closed"
NOT_CONNECTED = "not connected"
SERVER_STOPPED = "server stopped"
"""Reasons of `Call.hangup`, as the call's metrics know them."""


class Ends(Protocol):
    """A call as far as ending it goes."""

    @property
    def id(self) -> str: ...

    def hangup(self, reason: str) -> None:
        """Begin to end the call; idempotent."""

    def forbid_resume(self, reason: str) -> None:
        """A lost connection ends the call from here on; one whose caller is away now ends for `reason`."""

    async def wait_ended(self) -> str:
        """Returns the reason once the call is over, its tasks ended and its port closed."""
        ...


class Drains(Protocol):
    """Whatever holds calls that are to end before the server does."""

    draining: bool
    """Set by the server when it begins to stop; no call may start from then on."""

    @property
    def calls(self) -> Mapping[str, Ends]:
        """Live calls by id."""
        ...


class CallLike(Ends, Protocol):
    """One conversation."""

    @property
    def session(self) -> Session: ...
    @property
    def voice(self) -> str: ...
    @property
    def language(self) -> str: ...

    def type_text(self, text: str) -> None:
        """A typed turn of the caller."""

    def press(self, digit: str) -> None:
        """A key press of the caller: 0-9 * # A-D."""

    def cancel_reply(self) -> None:
        """Stop what the agent is saying; raises NotInterruptible."""

    def respond(self, data: Mapping[str, object] | None = None) -> None:
        """Ask the hook again. `data`: what has happened, for its `event` turn."""

    def configure(
        self, *, voice: str | None = None, language: str | None = None, silence_ms: int | None = None
    ) -> None:
        """Change the call from here on; raises ProtocolError naming the field."""

    def allow_resume(self) -> float:
        """Let the call outlive its connection; for how many seconds, 0.0 when it may not."""
        ...

    def on_suspended(self, reason: str, unheard_s: float) -> None:
        """Stand still, as while the peer holds the call."""

    def on_reconnected(self) -> None:
        """Go on after `on_suspended`."""

    def attach_port(self, port: ResumablePort) -> None:
        """Go on over another port, which the call owns from here on; raises CallGone or MediaError."""


class AgentLike(Protocol):
    """What takes calls."""

    draining: bool
    """Set by the server when it begins to stop; no call may start from then on."""

    @property
    def settings(self) -> Settings: ...
    @property
    def metrics(self) -> Metrics: ...
    @property
    def ticker(self) -> Ticker: ...
    @property
    def ready(self) -> bool: ...
    @property
    def not_ready_reason(self) -> str: ...
    @property
    def calls(self) -> Mapping[str, CallLike]:
        """Live calls by id."""
        ...

    def start_call(self, *, port: MediaPort, session: Session, observer: Observer, record: bool = False) -> CallLike:
        """Start a conversation on `port`, which the call owns from here on.

        `record`: the client asks for a recording. Raises CallRefused, and ProtocolError when there is no recording.
        """
        ...


class WebRtcPortLike(ResumablePort, Protocol):
    """A media port that was negotiated by SDP and has a data channel."""

    @property
    def answer_sdp(self) -> str: ...

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_mline_index: int | None) -> None:
        """A trickled candidate, None or empty for the last; raises NegotiationError."""

    def send_message(self, text: str) -> None:
        """Queue for the data channel; never blocks."""


class AnswerOffer(Protocol):
    """`WebRtcPort.answer`: an SDP offer in, a port with its answer out; raises NegotiationError.

    Cancelling it must free whatever it had opened.
    """

    async def __call__(
        self, sdp: str, *, settings: MediaSettings, ticker: Ticker, on_message: Callable[[str], None]
    ) -> WebRtcPortLike: ...


class PcmPortLike(MediaPort, Protocol):
    """A media port that is fed plain PCM."""

    def feed(self, data: bytes) -> None:
        """Mono little-endian int16 from the caller; raises ProtocolError on an odd length or more than 200 ms."""

    async def ready(self) -> None:
        """Returns when less than a second of fed audio is waiting to be heard."""


class MakePcmPort(Protocol):
    """The constructor of `PcmPort`; `send` is called with each frame to play and must not block."""

    def __call__(
        self, rate_hz: int, *, ticker: Ticker, send: Callable[[bytes], None], silence_s: float | None = None
    ) -> PcmPortLike: ...
