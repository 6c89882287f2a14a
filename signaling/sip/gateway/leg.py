"""One telephone call between SIP and the agent: from the INVITE to the last BYE."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from agent.config import Settings
from agent.errors import CallRefused, MediaError, ProtocolError
from agent.events import CallEvent, TransferRequested
from agent.media.port import MediaPort
from agent.media.rtp_port import RtpPort
from agent.media.rtp_sockets import RtpSockets
from agent.media.ticker import Ticker
from agent.nlu.hook import Session
from signaling.sip.errors import WrongState
from signaling.sip.gateway.setup import limits_of, rtp_session
from signaling.sip.negotiation import Agreement
from signaling.sip.peer import Peer
from signaling.sip.protocol import CallEnded, Command, EndCause, HangUp, SendDigit, Transfer
from signaling.sip.uri import Uri

__all__ = ["Conversation", "Leg", "LegHost", "LegState", "Outcome"]

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
NO_STATUS = {EndCause.NO_ANSWER: 408}
"""Ends without a response that yet mean something."""
ON_HOLD = "on hold"
ANSWERED = 200
OUTCOMES = {
    408: "no_answer",
    480: "no_answer",
    487: "no_answer",
    486: "busy",
    600: "busy",
    403: "refused",
    603: "refused",
}
"""What statuses mean to people (RFC 3261 section 21)."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a call or a transfer that somebody waits for."""

    status: int
    """Of SIP; 0: there was none."""

    @property
    def code(self) -> str:
        """`answered`, `busy`, `no_answer`, `refused` or `failed`."""
        return "answered" if 200 <= self.status < 300 else OUTCOMES.get(self.status, "failed")


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

    def hangup(self, reason: str) -> None:
        """End it; idempotent."""

    def respond(self, data: Mapping[str, object] | None = None) -> None:
        """Have the hook speak; `data` says what has happened."""

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
        """To the user agent. Raises WrongState."""

    def destination(self, to: str, *, near: Peer | None = None) -> Uri:
        """Where a transfer goes; numbers are the peer's when the settings say no place for them.

        Raises ProtocolError.
        """
        ...

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
        subject: whose call it is.
    """

    def __init__(
        self,
        host: LegHost,
        name: str,
        session: Session,
        sockets: RtpSockets,
        source: Peer | None,
        place: ExitStack,
        *,
        subject: str,
    ) -> None:
        self.subject = subject
        self.outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        """Done once the call is up, or never will be."""
        self._transfer_to: str | None = None
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
        if self.port is not None:
            self.port.press(digit)

    def on_ended(self, news: CallEnded) -> None:
        """The SIP call is over."""
        self._decide(Outcome(news.status or NO_STATUS.get(news.cause, 0)))
        if self.conversation is not None:
            self.conversation.hangup(REASONS.get(news.cause, "not connected"))
        else:
            self._finish()

    # The agent's side

    def on_event(self, event: CallEvent) -> None:
        """The conversation's observer."""
        if isinstance(event, TransferRequested):
            self._transfer(event.to)

    def on_transfer(self, status: int, *, final: bool) -> None:
        """What the peer reports of our REFER. Only a final 2xx is success."""
        to, conversation = self._transfer_to, self.conversation
        if not final or to is None or conversation is None:
            return
        self._transfer_to = None
        outcome = Outcome(status)
        log.info("transfer %s", outcome.code, extra={"call_id": conversation.id, "status": status})
        if outcome.code == "answered":
            conversation.hangup("transferred")
            return
        # The caller is the agent's again.
        conversation.respond({"event": "transfer", "to": to, "outcome": outcome.code, "status": status})

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
        self._decide(Outcome(ANSWERED))
        self._hold(self.port.on_hold)

    def _transfer(self, to: str) -> None:
        self._transfer_to = to
        try:
            self._host.command(Transfer(self.name, self._host.destination(to, near=self._source)))
        except ProtocolError as exc:
            log.warning("a transfer is not possible: %s", exc)
            self.on_transfer(403 if exc.code == "403" else 404, final=True)
        except WrongState as exc:
            log.warning("a transfer is not possible: %s", exc)
            self.on_transfer(491, final=True)

    def _decide(self, outcome: Outcome) -> None:
        if not self.outcome.done():
            self.outcome.set_result(outcome)

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
