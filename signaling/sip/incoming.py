"""An incoming call until it is up: ringing, reliable provisional responses, answer, CANCEL (RFC 3261 13.3, 3262)."""

from __future__ import annotations

from signaling.sip.call import SDP, Book, Call
from signaling.sip.call_state import CallState
from signaling.sip.dialog import Dialog
from signaling.sip.errors import SipError, WrongState
from signaling.sip.fields import NameAddr, RAck
from signaling.sip.message import Response
from signaling.sip.multipart import find_body
from signaling.sip.negotiation import LocalMedia, Negotiation
from signaling.sip.peer import Peer
from signaling.sip.protocol import EndCause
from signaling.sip.sdp import parse_sdp
from signaling.sip.session_timer import SessionTimer
from signaling.sip.stack import Stack
from signaling.sip.transaction.base import Transaction
from signaling.sip.transaction.server import ServerTransaction
from signaling.sip.uri import Uri

__all__ = ["IncomingCall"]

AGAIN_S = 60.0
"""A provisional response each minute keeps proxies from giving up (section 13.3.1.1)."""


class IncomingCall(Call):
    """A call to us.

    Raises SipError, with the status that refuses it, when its INVITE cannot be served.
    """

    def __init__(
        self, name: str, stack: Stack, book: Book, transaction: ServerTransaction, source: Peer, replaces: Call | None
    ) -> None:
        super().__init__(name, stack, book, CallState.OFFERED)
        request = transaction.request
        self.transaction = transaction
        self._tag = stack.new_token()
        self._replaces = replaces
        self._offer = find_body(request, SDP)
        if self._offer is not None:
            parse_sdp(self._offer)
        self._timer = SessionTimer.as_server(request, interval_s=stack.settings.session_interval_s)
        self.dialog = Dialog.as_server(request, self._tag, source)
        wants = request.headers.tokens("Supported") | request.headers.tokens("Require")
        must = "100rel" in request.headers.tokens("Require")
        self._reliable = must or (stack.settings.reliable_provisional and "100rel" in wants)
        self._rseq = int(stack.random() * (1 << 30)) + 1
        self._unconfirmed: Response | None = None
        self._described = b""
        self._described_surely = False
        self._waiting: LocalMedia | None = None
        self._ringing: tuple[int, bytes] | None = None

    def begin(self, now: float) -> None:
        """Take the INVITE: the caller's retransmissions stop."""
        self.transaction.user = self
        self.book.enter(self.need_dialog().key, self)
        self.stack.respond(self.transaction, 100, now)
        self.deadlines.set("ring", now + self.stack.settings.ringing_limit_s)

    def ring(self, media: LocalMedia | None, now: float) -> None:
        """180; with `media` 183 and early sound, where the caller has made an offer. Raises WrongState."""
        self._need_offered()
        body = b""
        if media is not None and self._offer is not None:
            body = self._describe(media, now)
            if self.state is not CallState.OFFERED:
                return
        self._ringing = (183 if body else 180, body)
        if self._unconfirmed is None:
            self._provide(*self._ringing, now)

    def answer(self, media: LocalMedia, now: float) -> None:
        """200. Waits for an open PRACK (RFC 3262 section 3). Raises WrongState."""
        self._need_offered()
        if self._unconfirmed is not None:
            self._waiting = media
            return
        body = self._describe(media, now)
        if self.state is not CallState.OFFERED:
            return
        self.state = CallState.ANSWERED
        self.deadlines.clear()
        dialog = self.need_dialog()
        dialog.confirm()
        headers = self._timer.headers_as_server()
        self.accept(self.transaction, headers, b"" if self._described_surely else body, now, self._tag)
        self.arm(self._timer, now)
        self.tell_media()
        if self._replaces is not None and self._replaces.state is CallState.UP:
            self._replaces.bye(now, EndCause.REPLACED)

    def reject(self, status: int, contact: Uri | None, now: float) -> None:
        """Refuse with 300 to 699. Raises WrongState."""
        self._need_offered()
        headers = (("Contact", str(NameAddr(contact))),) if contact is not None else ()
        self._refuse(status, EndCause.REJECTED, now, headers)

    def hang_up(self, now: float) -> None:
        if self.state is CallState.OFFERED:
            self._refuse(480, EndCause.HUNG_UP, now)
        else:
            super().hang_up(now)

    def on_cancel(self, transaction: ServerTransaction, now: float) -> None:
        """The caller gave up; too late once we have answered (section 9.2)."""
        if self.state is CallState.OFFERED and transaction is self.transaction:
            self._refuse(487, EndCause.CANCELLED, now)

    def peer_left(self, now: float) -> None:
        """A BYE for the early dialog too ends the INVITE (section 15.1.2)."""
        if self.state is CallState.OFFERED:
            self._refuse(487, EndCause.CANCELLED, now)
        else:
            super().peer_left(now)

    def on_lost(self, transaction: Transaction, now: float) -> None:
        """Our response did not get through; of a 2xx the ACK's deadline decides."""
        if transaction is self.transaction and self.state is CallState.OFFERED:
            self.tell_end(EndCause.LOST)
            self.over(now)

    def on_prack(self, transaction: ServerTransaction, now: float) -> None:
        """Raises SipError 481 when it acknowledges nothing of ours (RFC 3262 section 3)."""
        rack = RAck.parse(transaction.request.need("RAck"))
        sent = self._unconfirmed
        if sent is None or sent.need("RSeq") != str(rack.response) or rack.cseq != self.transaction.request.cseq:
            super().on_prack(transaction, now)
            return
        offer = find_body(transaction.request, SDP)
        body = b""
        if offer is not None and self.negotiation is not None:
            self.negotiation.offered(offer)
            body = self.negotiation.answer()
            self.tell_media()
        self._unconfirmed = None
        self.deadlines.clear("reliable", "unconfirmed")
        self._described_surely = self._described_surely or bool(sent.body)
        transaction.respond(self.success(transaction, [], body, ""), now)
        if self._waiting is not None:
            media, self._waiting = self._waiting, None
            self.answer(media, now)
        elif self._ringing is not None and self._ringing[0] != sent.status:
            self._provide(*self._ringing, now)

    def expired(self, name: str, now: float) -> None:
        if name == "ring":
            self._refuse(480, EndCause.NO_ANSWER, now)
        elif name == "again" and self._ringing is not None and self._unconfirmed is None:
            self._provide(*self._ringing, now)
        elif name == "reliable" and self._unconfirmed is not None:
            self.transaction.respond(self._unconfirmed, now)
            self._interval *= 2
            self.deadlines.set("reliable", now + self._interval)
        elif name == "unconfirmed":
            self._refuse(504, EndCause.LOST, now)
        else:
            super().expired(name, now)

    def _need_offered(self) -> None:
        if self.state is not CallState.OFFERED:
            raise WrongState(f"call: must be OFFERED, is {self.state.name}")

    def _describe(self, media: LocalMedia, now: float) -> bytes:
        """Our description; when the two do not fit, the call is refused."""
        if self._described:
            return self._described
        try:
            self.negotiation = Negotiation(media)
            if self._offer is None:
                self._described = self.negotiation.offer()
            else:
                self.negotiation.offered(self._offer)
                self._described = self.negotiation.answer()
        except SipError as exc:
            self._refuse(exc.status, EndCause.MEDIA, now)
            return b""
        return self._described

    def _provide(self, status: int, body: bytes, now: float) -> None:
        request = self.transaction.request
        response = Response.to_request(request, status, tag=self._tag)
        for value in request.headers.all("Record-Route"):
            response.headers.add("Record-Route", value)
        self.stack.dress(response, self.transaction.peer, contact=True)
        if body:
            response.headers.add("Content-Type", SDP)
            response.body = body
        if self._reliable:
            self._rseq += 1
            response.headers.add("Require", "100rel")
            response.headers.add("RSeq", str(self._rseq))
            self._unconfirmed = response
            timings = self.stack.settings.timings
            self._interval = timings.t1
            self.deadlines.set("reliable", now + self._interval)
            self.deadlines.set("unconfirmed", now + timings.timeout)
        self.transaction.respond(response, now)
        self.deadlines.set("again", now + AGAIN_S)
        if body:
            self.tell_media()

    def _refuse(self, status: int, cause: EndCause, now: float, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.stack.respond(self.transaction, status, now, tag=self._tag, headers=headers)
        self.tell_end(cause, status)
        self.over(now)
