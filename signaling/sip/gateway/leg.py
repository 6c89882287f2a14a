"""One telephone call between SIP and the agent: from the INVITE to the last BYE."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from enum import Enum, auto
from typing import Protocol

from agent.config import Settings
from agent.errors import CallRefused, MediaError, ProtocolError
from agent.events import CallEvent
from agent.media.port import MediaPort
from agent.media.rtp_port import RtpPort
from agent.media.rtp_sockets import RtpSockets
from agent.media.ticker import Ticker
from agent.nlu.hook import Session
from signaling.sip.errors import WrongState
from signaling.sip.gateway.setup import limits_of, rtp_session
from signaling.sip.negotiation import Agreement
from signaling.sip.peer import Peer
from signaling.sip.protocol import CallEnded, Command, EndCause, HangUp, SendDigit

__all__ = ["Conversation", "Leg", "LegHost", "LegState"]

log = logging.getLogger(__name__)

REASONS = {
    EndCause.PEER_HUNG_UP: "caller hung up",
    EndCause.CANCELLED: "caller hung up",
    EndCause.HUNG_UP: "completed",
    EndCause.REPLACED: "completed",
    EndCause.LOST: "peer vanished",
    EndCause.EXPIRED: "peer vanished",
    EndCause.NO_ACK: "not connected",
}
"""Ends of SIP calls as reasons of `Call.hangup`, which the metrics know."""
ON_HOLD = "on hold"


class LegState(Enum):
    """How far a call has come."""

    CONNECTING = auto()
    """Rings, or waits for the other side's description or acknowledgement."""
    TALKING = auto()
    OVER = auto()


class Conversation(Protocol):
    """The agent's side of the call."""

    @property
    def id(self) -> str: ...

    def press(self, digit: str) -> None:
        """A key press of the caller."""

    def hangup(self, reason: str) -> None:
        """End it; idempotent."""

    def on_suspended(self, reason: str, unheard_s: float) -> None:
        """Stand still."""

    def on_reconnected(self) -> None:
        """Go on."""

    async def wait_ended(self) -> str:
        """Returns the reason, once all of it is gone."""
        ...


class LegHost(Protocol):
    """The gateway's side."""

    @property
    def settings(self) -> Settings: ...
    @property
    def ticker(self) -> Ticker: ...

    def command(self, command: Command) -> None:
        """To the user agent."""

    def begin(self, leg: Leg, port: MediaPort, session: Session) -> Conversation:
        """Start the conversation. Raises CallRefused and ProtocolError."""
        ...

    def on_over(self, leg: Leg) -> None:
        """The leg is done with."""


class Leg:
    """A call.

    Args:
        name: of the SIP call.
        session: who is calling, for the hook.
        sockets: of its RTP; the leg's from here on.
        source: where its signalling comes from, if that is known.
        place: what is held for it until it is over (a line of the admission).
    """

    def __init__(
        self, host: LegHost, name: str, session: Session, sockets: RtpSockets, source: Peer | None, place: ExitStack
    ) -> None:
        self.name = name
        self.session = session
        self.state = LegState.CONNECTING
        self.port: RtpPort | None = None
        self.conversation: Conversation | None = None
        self._host = host
        self._sockets = sockets
        self._source = source
        self._place = place
        self._established = False
        self._held = False
        self._keys_by_info: bool | None = None
        """How this peer sends key presses, by its first one: some send each both ways."""

    # News of the SIP call

    def on_media(self, agreement: Agreement | None) -> None:
        """What was agreed on; None: the stream is switched off."""
        if agreement is None:
            self._hold(True)
            return
        session = rtp_session(agreement, self._source)
        if self.port is not None:
            self.port.agree(session)
            self._hold(self.port.on_hold)
            return
        settings = self._host.settings
        self.port = RtpPort(
            session,
            self._sockets,
            settings=settings.media,
            ticker=self._host.ticker,
            limits=limits_of(settings.sip),
            send_key=self._send_key,
        )
        self._start()

    def on_established(self) -> None:
        """Both sides know that the call is up."""
        self._established = True
        self._start()

    def on_digit(self, digit: str) -> None:
        """A key press by INFO."""
        if self.conversation is not None and self._keys_by_info is not False:
            self._keys_by_info = True
            self.conversation.press(digit)

    def on_ended(self, news: CallEnded) -> None:
        """The SIP call is over."""
        if self.conversation is not None:
            self.conversation.hangup(REASONS.get(news.cause, "not connected"))
        else:
            self._finish()

    # The agent's side

    def on_event(self, event: CallEvent) -> None:
        """The conversation's observer."""

    async def run(self) -> None:
        """Wait for the end of the conversation, which closes the port, and hang up."""
        assert self.conversation is not None
        try:
            await self.conversation.wait_ended()
        finally:
            self._host.command(HangUp(self.name))
            self._finish()

    async def abandon(self) -> None:
        """Free what no conversation has taken over."""
        if self.port is not None:
            await self.port.close()
        self._sockets.close()

    # Inside

    def _start(self) -> None:
        if not self._established or self.port is None or self.state is not LegState.CONNECTING:
            return
        try:
            self.conversation = self._host.begin(self, self.port, self.session)
        except (CallRefused, ProtocolError) as exc:
            log.warning("a call that was answered could not begin: %s", exc)
            self._host.command(HangUp(self.name))
            return
        # The agent counts it from here on.
        self._place.close()
        self.state = LegState.TALKING
        self._hold(self.port.on_hold)

    def _hold(self, held: bool) -> None:
        if self.conversation is None or held == self._held:
            return
        self._held = held
        log.info("call on hold" if held else "call off hold", extra={"call_id": self.conversation.id})
        if held:
            self.conversation.on_suspended(ON_HOLD, 0.0)
        else:
            self.conversation.on_reconnected()

    def _send_key(self, digit: str) -> None:
        try:
            self._host.command(SendDigit(self.name, digit))
        except WrongState as exc:
            raise MediaError(f"no key press can be sent: {exc}") from exc

    def _finish(self) -> None:
        if self.state is not LegState.OVER:
            self.state = LegState.OVER
            self._place.close()
            self._host.on_over(self)
