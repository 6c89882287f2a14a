"""What incoming and outgoing calls share once there is a dialog: requests within it, and its end. Pure."""

from __future__ import annotations

from typing import Protocol

from signaling.limits import TokenBucket
from signaling.sip.call_state import CallState
from signaling.sip.dialog import Dialog, DialogKey
from signaling.sip.errors import SipError, WrongState
from signaling.sip.info import digit_of, info_request
from signaling.sip.message import Request, Response
from signaling.sip.modify import Modifier
from signaling.sip.multipart import find_body
from signaling.sip.negotiation import Agreement, Negotiation
from signaling.sip.peer import Peer
from signaling.sip.protocol import CallEnded, CallEstablished, DigitReceived, EndCause, MediaAgreed
from signaling.sip.routing import next_hop
from signaling.sip.session_timer import SessionTimer
from signaling.sip.stack import Exchange, ExchangeUser, Indifferent, Stack
from signaling.sip.timers import Deadlines
from signaling.sip.transaction.base import Transaction
from signaling.sip.transaction.server import ServerTransaction
from signaling.sip.transfer import TransferIn, TransferOut

__all__ = ["SDP", "Book", "Call"]

SDP = "application/sdp"
REQUESTS_PER_S = 5.0
REQUESTS_BURST = 100.0
"""Faster than anybody presses keys, and a quarter of a thousand transactions at most."""


class Book(Protocol):
    """Where calls are found."""

    def enter(self, key: DialogKey, call: Call) -> None:
        """A dialog of this call exists."""

    def leave(self, call: Call) -> None:
        """The call is over: forget all of it."""

    def find(self, call_id: str) -> Call | None:
        """The call with this id of ours."""


class Call:
    """One call.

    Args:
        name: its id towards the application.
    """

    def __init__(self, name: str, stack: Stack, book: Book, state: CallState) -> None:
        self.name = name
        self.stack = stack
        self.book = book
        self.state = state
        self.dialog: Dialog | None = None
        self.negotiation: Negotiation | None = None
        self.requests = TokenBucket(REQUESTS_PER_S, REQUESTS_BURST)
        """What the peer may still ask: its transactions stay for 32 s, in a table that all calls share."""
        self.deadlines = Deadlines(stack.schedule, self)
        self.modifier = Modifier(self)
        self.transfer_out = TransferOut(self)
        self.transfer_in = TransferIn(self)
        self.home = ""
        """The host that the application chose; "": the peer chose us."""
        self.owns_call_id = False
        """We made the Call-ID: our wait after a 491 is the longer one (RFC 3261 section 14.1)."""
        self._told_end = False
        self._unacked: tuple[int, Response, ServerTransaction] | None = None
        self._interval = 0.0
        self._bye_when_acked = False
        self._agreement: Agreement | None = None

    # Time

    def tick(self, now: float) -> None:
        for name in self.deadlines.take_due(now):
            if self.state is not CallState.OVER:
                self.expired(name, now)

    def expired(self, name: str, now: float) -> None:
        """A deadline has passed."""
        if name == "2xx" and self._unacked is not None:
            _, response, transaction = self._unacked
            self.stack.transmit(response, transaction.peer)
            self._interval = min(2 * self._interval, self.stack.settings.timings.t2)
            self.deadlines.set("2xx", now + self._interval)
        elif name == "ack":
            self._unacked = None
            self.deadlines.clear("2xx")
            self.bye(now, EndCause.NO_ACK)
        elif name == "refresh":
            self.modifier.refresh(now)
        elif name == "expire":
            self.bye(now, EndCause.EXPIRED)
        elif name == "glare":
            self.modifier.retry(now)
        elif name in ("unanswered", "uncancelled"):
            self.modifier.timed_out(name, now)
        elif name == "transfer":
            self.transfer_out.timed_out(now)
        elif name == "closing":
            self.over(now)

    # Sending

    def send(self, request: Request, user: ExchangeUser, now: float, *, contact: bool = False) -> Exchange:
        """Send a request of our dialog."""
        dialog = self.need_dialog()
        peer = self.hop(dialog)
        self.stack.dress(request, peer, contact=contact)
        return self.stack.send(request, peer, user, dialog.next_seq, now, home=self.home)

    def hop(self, dialog: Dialog) -> Peer:
        return next_hop(dialog.target, dialog.hops(), self.stack.settings.proxy, dialog.heard_from)

    def need_dialog(self) -> Dialog:
        """Raises WrongState when there is none yet."""
        if self.dialog is None:
            raise WrongState(f"call: no dialog while {self.state.name}")
        return self.dialog

    def need_up(self) -> Negotiation:
        """Raises WrongState unless the call is up."""
        if self.state is not CallState.UP or self.negotiation is None:
            raise WrongState(f"call: must be UP, is {self.state.name}")
        return self.negotiation

    def acknowledge(self, dialog: Dialog, seq: int) -> tuple[Request, Peer]:
        """Acknowledge a 2xx; returns what was sent, for when the 2xx comes again (RFC 3261 section 13.2.2.4)."""
        peer = self.hop(dialog)
        ack = dialog.request("ACK", seq=seq)
        self.stack.dress(ack, peer, contact=False)
        self.stack.add_via(ack, peer)
        self.stack.transmit(ack, peer)
        return ack, peer

    def accept(
        self, transaction: ServerTransaction, headers: list[tuple[str, str]], body: bytes, now: float, tag: str
    ) -> None:
        """Answer an INVITE with a 2xx, and again until the ACK comes (RFC 3261 section 13.3.1.4)."""
        response = self.success(transaction, headers, body, tag)
        transaction.respond(response, now)
        timings = self.stack.settings.timings
        self._unacked = (transaction.request.cseq.number, response, transaction)
        self._interval = timings.t1
        self.deadlines.set("2xx", now + timings.t1)
        self.deadlines.set("ack", now + timings.timeout)

    def success(
        self, transaction: ServerTransaction, headers: list[tuple[str, str]], body: bytes, tag: str
    ) -> Response:
        """A 200 that says what we are and can."""
        response = Response.to_request(transaction.request, 200, tag=tag)
        for value in transaction.request.headers.all("Record-Route"):
            response.headers.add("Record-Route", value)
        self.stack.dress(response, transaction.peer, contact=True)
        for name, value in headers:
            response.headers.add(name, value)
        if body:
            response.headers.add("Content-Type", SDP)
            response.body = body
        return response

    # Receiving

    def on_ack(self, request: Request, now: float) -> None:
        """The ACK to a 2xx of ours."""
        if self._unacked is None or request.cseq.number != self._unacked[0]:
            return
        self._unacked = None
        self.deadlines.clear("2xx", "ack")
        if self._bye_when_acked:
            self.bye(now, EndCause.HUNG_UP)
            return
        try:
            self.modifier.answer_in_ack(find_body(request, SDP))
        except SipError:
            self.bye(now, EndCause.MEDIA)
            return
        if self.state is CallState.ANSWERED:
            self.state = CallState.UP
            self.stack.tell(CallEstablished(self.name))
        self.tell_media()
        self.modifier.retry(now)

    def on_request(self, transaction: ServerTransaction, dialog: Dialog, source: Peer, now: float) -> None:
        """A request within a dialog of this call. Raises SipError with the status that refuses it."""
        request = transaction.request
        dialog.receive(request, source)
        method = request.method
        if method == "BYE":
            self.stack.respond(transaction, 200, now)
            self.peer_left(now)
        elif self.state in (CallState.CLOSING, CallState.OVER):
            raise SipError("call: is over", status=481)
        elif method == "INVITE":
            self.modifier.on_invite(transaction, now)
        elif method == "UPDATE":
            self.modifier.on_update(transaction, now)
        elif method == "INFO":
            self._on_info(transaction, now)
        elif method == "OPTIONS":
            transaction.respond(self.success(transaction, [("Accept", SDP)], b"", ""), now)
        elif method == "REFER":
            self.transfer_in.on_refer(transaction, now)
        elif method == "NOTIFY":
            self.transfer_out.on_notify(transaction, now)
        elif method == "PRACK":
            self.on_prack(transaction, now)
        else:
            raise SipError("method: not served within a call", status=405)

    def dialog_for(self, request: Request) -> Dialog:  # noqa: ARG002 - outgoing calls have several
        """The dialog of this call that a request is in."""
        return self.need_dialog()

    def on_prack(self, transaction: ServerTransaction, now: float) -> None:  # noqa: ARG002 - incoming calls need them
        """Only an incoming call that is not answered has something to acknowledge."""
        raise SipError("RAck: acknowledges nothing", status=481, field="RAck")

    def _on_info(self, transaction: ServerTransaction, now: float) -> None:
        found = digit_of(transaction.request)
        self.stack.respond(transaction, 200, now)
        if found is not None:
            digit, duration_ms = found
            self.stack.tell(DigitReceived(self.name, digit, duration_ms))

    def send_digit(self, digit: str, duration_ms: int, now: float) -> None:
        """Raises WrongState unless the call is up."""
        self.need_up()
        self.send(info_request(self.need_dialog(), digit, duration_ms), Indifferent(), now)

    # Session timer

    def arm(self, timer: SessionTimer, now: float) -> None:
        """A session interval begins."""
        self.modifier.timer = timer
        self.deadlines.clear("refresh", "expire")
        if timer.we_refresh:
            self.deadlines.set("refresh", now + timer.refresh_after_s)
        if timer.expires_after_s is not None:
            self.deadlines.set("expire", now + timer.expires_after_s)

    # News

    def tell_media(self) -> None:
        """Tell the application what was agreed, when it has changed."""
        agreement = self.negotiation.agreement if self.negotiation is not None else None
        if agreement != self._agreement and not self._told_end:
            self._agreement = agreement
            self.stack.tell(MediaAgreed(self.name, agreement))

    def tell_end(self, cause: EndCause, status: int = 0) -> None:
        """Tell the application that the call is over, once."""
        if not self._told_end:
            self._told_end = True
            self.stack.tell(CallEnded(self.name, cause, status))

    # Ends

    def hang_up(self, now: float) -> None:
        """End the call in whatever state it is. Idempotent."""
        if self.state is CallState.UP:
            self.bye(now, EndCause.HUNG_UP)
        elif self.state is CallState.ANSWERED:
            # No BYE before the ACK or its timeout (RFC 3261 section 15.1.1).
            self._bye_when_acked = True
            self.tell_end(EndCause.HUNG_UP)

    def bye(self, now: float, cause: EndCause, status: int = 0) -> None:
        """Leave a call that is up."""
        self.tell_end(cause, status)
        if self.state in (CallState.CLOSING, CallState.OVER):
            return
        self.state = CallState.CLOSING
        self.deadlines.clear()
        self._unacked = None
        self.deadlines.set("closing", now + self.stack.settings.timings.timeout + 1)
        dialog = self.need_dialog()
        self.send(dialog.request("BYE"), self, now)

    def on_answer(self, exchange: Exchange, response: Response, now: float) -> None:
        """The answer to our BYE: whatever it is, the call is over."""
        if response.status >= 200 and exchange.request.method == "BYE":
            self.over(now)

    def lost(self, status: int, now: float) -> None:
        """A request within the call found no peer (RFC 3261 section 12.2.1.2)."""
        self.bye(now, EndCause.LOST, status)

    def peer_left(self, now: float) -> None:
        """The peer's BYE came."""
        self.tell_end(EndCause.PEER_HUNG_UP)
        self.over(now)

    def on_lost(self, transaction: Transaction, now: float) -> None:
        """A response of ours could not be delivered: the timers of the call decide what that means."""

    def on_cancel(self, transaction: ServerTransaction, now: float) -> None:
        """A CANCEL for a request that was answered at once changes nothing (RFC 3261 section 9.2)."""

    def over(self, now: float) -> None:
        """Forget everything. Idempotent."""
        if self.state is not CallState.OVER:
            self.state = CallState.OVER
            self.deadlines.clear()
            self.transfer_out.abandon()
            self.transfer_in.abandon(now)
            self.modifier.abandon()
            self.tell_end(EndCause.LOST)
            self.book.leave(self)
