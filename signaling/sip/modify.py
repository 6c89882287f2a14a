"""Changing a call that is up: re-INVITE and UPDATE both ways, glare, session refresh (RFC 3261 section 14). Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from signaling.sip.call_state import CallState
from signaling.sip.errors import SipError
from signaling.sip.message import Request, Response
from signaling.sip.multipart import find_body
from signaling.sip.negotiation import LocalMedia, Negotiation, OfferState
from signaling.sip.peer import Peer
from signaling.sip.protocol import ChangeRefused, EndCause
from signaling.sip.sdp import Direction
from signaling.sip.session_timer import SessionTimer, interval_from_422
from signaling.sip.stack import Exchange
from signaling.sip.transaction.server import ServerTransaction

if TYPE_CHECKING:
    from signaling.sip.call import Call

__all__ = ["Modifier"]

SDP = "application/sdp"
GLARE_OWNER_S = (2.1, 4.0)
GLARE_OTHER_S = (0.0, 2.0)
"""Waits after a 491, by who made the Call-ID (section 14.1)."""
ENDS_DIALOG = frozenset({404, 408, 410, 416, 481, 482, 483, 484, 485, 502, 604})
"""Refusals of a request within a dialog that end it (RFC 5057 table 1)."""
ANSWER_S = 40.0
"""A re-INVITE is answered by a machine: one that has no final response by then is cancelled."""
RETRY_S = 5.0
"""Between tries of a refresh that was refused but not for good."""


class Modifier:
    """The offers after the first, of one call."""

    def __init__(self, call: Call) -> None:
        self.timer: SessionTimer | None = None
        self._call = call
        self._pending: Exchange | None = None
        self._wanted = False
        self._offered = False
        self._acks: dict[int, tuple[Request, Peer]] = {}
        self._refreshing = False

    @property
    def busy(self) -> bool:
        """A re-INVITE or UPDATE of ours waits for its final response."""
        return self._pending is not None

    # Ours

    def change(self, now: float, *, direction: Direction | None = None, media: LocalMedia | None = None) -> None:
        """Offer what we want now, at once or when the offers of before are settled. Raises WrongState."""
        negotiation = self._call.need_up()
        if direction is not None:
            negotiation.set_direction(direction)
        if media is not None:
            negotiation.local = media
        self._wanted = True
        self.retry(now)

    def retry(self, now: float) -> None:
        """Offer if an offer is wanted and may be made."""
        negotiation = self._call.negotiation
        if not self._wanted or negotiation is None or self._call.state is not CallState.UP:
            return
        if self._pending is None and negotiation.state is OfferState.STABLE and "ack" not in self._call.deadlines:
            self._wanted = False
            self._send("INVITE", negotiation.offer(), now)

    def refresh(self, now: float) -> None:
        """The session interval wants a sign of life (RFC 4028 section 10)."""
        negotiation = self._call.negotiation
        if self._pending is not None or negotiation is None or negotiation.state is not OfferState.STABLE:
            self._call.deadlines.set("refresh", now + RETRY_S)
            return
        self._refreshing = True
        if "update" in self._call.need_dialog().remote_allow:
            self._send("UPDATE", b"", now)
        else:
            self._send("INVITE", negotiation.offer(), now)

    def _send(self, method: str, body: bytes, now: float) -> None:
        request = self._call.need_dialog().request(method)
        if self.timer is not None:
            for name, value in self.timer.headers_as_client():
                request.headers.add(name, value)
        if body:
            request.headers.add("Content-Type", SDP)
            request.body = body
        self._offered = bool(body)
        self._pending = self._call.send(request, self, now, contact=True)
        self._call.deadlines.set("unanswered", now + ANSWER_S)

    def timed_out(self, name: str, now: float) -> None:
        """Our re-INVITE rings and rings: cancel it; if that is not answered either, nobody is there."""
        if self._pending is None:
            return
        if name == "unanswered" and self._pending.request.method == "INVITE":
            self._call.stack.cancel(self._pending, now)
            self._call.deadlines.set("uncancelled", now + self._call.stack.settings.timings.timeout)
        else:
            self._call.lost(408, now)

    def abandon(self) -> None:
        """The call is over."""
        if self._pending is not None:
            self._pending.abandon()
            self._pending = None

    def on_answer(self, exchange: Exchange, response: Response, now: float) -> None:
        """What came of our re-INVITE or UPDATE."""
        call, status = self._call, response.status
        if status < 200:
            return
        invite = exchange.request.method == "INVITE"
        if 200 <= status < 300 and invite:
            seq = exchange.request.cseq.number
            if seq in self._acks:
                call.stack.transmit(*self._acks[seq])
                return
            dialog = call.need_dialog()
            dialog.refresh_target(response)
            self._acks = {seq: call.acknowledge(dialog, seq)}
        if exchange is not self._pending:
            return
        self._pending, refreshing, self._refreshing = None, self._refreshing, False
        call.deadlines.clear("unanswered", "uncancelled")
        if call.state not in (CallState.UP, CallState.ANSWERED):
            return
        if status < 300:
            self._succeeded(response, invite, now)
        elif status in ENDS_DIALOG or exchange.local:
            call.lost(status, now)
        else:
            self._refused(response, refreshing, now)

    def _succeeded(self, response: Response, invite: bool, now: float) -> None:
        call = self._call
        negotiation = call.negotiation
        if not invite:
            call.need_dialog().refresh_target(response)
        try:
            if self._offered and negotiation is not None:
                body = find_body(response, SDP)
                if body is None:
                    raise SipError("SDP answer: missing", status=488)
                negotiation.answered(body)
            interval = self.timer.interval_s if self.timer is not None else call.stack.settings.session_interval_s
            call.arm(SessionTimer.as_client(response, interval_s=interval), now)
        except SipError:
            call.bye(now, EndCause.MEDIA)
            return
        call.tell_media()
        self.retry(now)

    def _refused(self, response: Response, refreshing: bool, now: float) -> None:
        call, status = self._call, response.status
        if self._offered and call.negotiation is not None:
            call.negotiation.withdraw()
        if status == 491:
            low, high = GLARE_OWNER_S if call.owns_call_id else GLARE_OTHER_S
            # In units of 10 ms, as the RFC has it.
            wait = round(low + (high - low) * call.stack.random(), 2)
            self._wanted = self._wanted or (self._offered and not refreshing)
            call.deadlines.set("refresh" if refreshing and not self._wanted else "glare", now + wait)
            return
        if refreshing:
            smallest = interval_from_422(response) if status == 422 else None
            if smallest is not None and self.timer is not None and smallest > self.timer.interval_s:
                self.timer = SessionTimer(smallest, True, True)
                # Not at once: the next answer may ask for still more.
                call.deadlines.set("refresh", now + RETRY_S)
            else:
                # The peer is alive and answers: that is all a refresh must prove.
                timer = self.timer or SessionTimer(call.stack.settings.session_interval_s, True, False)
                call.arm(SessionTimer(timer.interval_s, True, False), now)
            return
        call.stack.tell(ChangeRefused(call.name, status))
        self.retry(now)

    # The peer's

    def on_invite(self, transaction: ServerTransaction, now: float) -> None:
        """A re-INVITE. Raises SipError with the status that refuses it."""
        call = self._call
        if call.state not in (CallState.UP, CallState.ANSWERED):
            raise SipError("re-INVITE: the first INVITE is not answered", status=500, headers=(("Retry-After", "3"),))
        if self._pending is not None and self._pending.request.method == "INVITE":
            raise SipError("re-INVITE: ours is open", status=491)
        body, timer = self._take(transaction)
        call.arm(timer, now)
        transaction.user = call
        call.accept(transaction, timer.headers_as_server(), body, now, "")
        call.tell_media()

    def on_update(self, transaction: ServerTransaction, now: float) -> None:
        """An UPDATE, with or without an offer (RFC 3311). Raises SipError with the status that refuses it."""
        call = self._call
        if call.state not in (CallState.UP, CallState.ANSWERED):
            if transaction.request.body:
                raise SipError("UPDATE: offers before the answer are not taken", status=504)
            call.need_dialog().refresh_target(transaction.request)
            transaction.respond(call.success(transaction, [], b"", ""), now)
            return
        offered = find_body(transaction.request, SDP) is not None
        if offered:
            body, timer = self._take(transaction)
        else:
            body, timer = b"", self._timer_of(transaction.request)
        call.need_dialog().refresh_target(transaction.request)
        call.arm(timer, now)
        transaction.respond(call.success(transaction, timer.headers_as_server(), body, ""), now)
        call.tell_media()

    def _take(self, transaction: ServerTransaction) -> tuple[bytes, SessionTimer]:
        request = transaction.request
        negotiation = self._negotiation()
        timer = self._timer_of(request)
        offer = find_body(request, SDP)
        if offer is None:
            # Our offer goes into the 2xx, the peer's answer into its ACK.
            if negotiation.state is not OfferState.STABLE:
                raise SipError("re-INVITE: an offer is open", status=491)
            body = negotiation.offer()
        else:
            negotiation.offered(offer)
            body = negotiation.answer()
        self._call.need_dialog().refresh_target(request)
        return body, timer

    def _timer_of(self, request: Request) -> SessionTimer:
        interval = self._call.stack.settings.session_interval_s
        return SessionTimer.as_server(request, interval_s=interval)

    def answer_in_ack(self, body: bytes | None) -> None:
        """The ACK came; it holds the answer when our 2xx held an offer. Raises SipError 488 when it does not."""
        negotiation = self._negotiation()
        if self._pending is None and negotiation.state is OfferState.OFFERED:
            if body is None:
                negotiation.withdraw()
                raise SipError("ACK: the answer is missing", status=488)
            negotiation.answered(body)

    def _negotiation(self) -> Negotiation:
        assert self._call.negotiation is not None
        return self._call.negotiation
