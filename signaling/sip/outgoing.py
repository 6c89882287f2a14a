"""A call of ours until it is up: forks, reliable provisional responses, redirects, CANCEL (RFC 3261 section 13.2)."""

from __future__ import annotations

import copy
from dataclasses import dataclass

from signaling.sip.call import SDP, Book, Call
from signaling.sip.call_state import CallState
from signaling.sip.dialog import Dialog
from signaling.sip.errors import SipError
from signaling.sip.fields import NameAddr, parse_delta
from signaling.sip.grammar import get_param
from signaling.sip.message import Request, Response
from signaling.sip.multipart import find_body
from signaling.sip.negotiation import Negotiation
from signaling.sip.peer import Peer
from signaling.sip.protocol import CallEstablished, CallProgressed, Dial, EndCause, MediaAgreed
from signaling.sip.routing import next_hop
from signaling.sip.session_timer import MIN_SE_S, SessionTimer, interval_from_422
from signaling.sip.stack import Exchange, Indifferent, Stack
from signaling.sip.transaction.server import ServerTransaction
from signaling.sip.uri import Uri

__all__ = ["OutgoingCall"]

MAX_FORKS = 12
"""Early dialogs of one call: each costs us state at the callee's side's will."""

MAX_RAISES = 3
"""Longer session intervals that one call is asked again with: each proxy on the way may want its own."""


@dataclass(slots=True)
class Fork:
    """One branch that has answered."""

    dialog: Dialog
    negotiation: Negotiation
    heard: int | None = None
    """The RSeq of its last reliable response."""
    sure: bool = False
    """Its answer came reliably: it will not come again (RFC 3262 section 5)."""


class OutgoingCall(Call):
    """A call we place."""

    def __init__(self, dial: Dial, stack: Stack, book: Book) -> None:
        super().__init__(dial.call, stack, book, CallState.DIALING)
        self.owns_call_id = True
        self._dial = dial
        self._tag = stack.new_token()
        self._call_id = stack.new_token()
        self._seq = 0
        self._first = Negotiation(dial.media)
        self._offer = self._first.offer()
        self._interval_s = stack.settings.session_interval_s
        self._least_s = MIN_SE_S
        self._raised = 0
        self._exchange: Exchange | None = None
        self._cancelled = False
        self._forks: dict[str, Fork] = {}
        self._acks: dict[str, tuple[Request, Peer]] = {}
        self._targets: list[Uri] = []
        self._tried: list[Uri] = [dial.target.without_headers()]

    def begin(self, now: float) -> None:
        """Send the INVITE."""
        self.deadlines.set("ring", now + self.stack.settings.ringing_limit_s)
        self._invite(self._tried[0], self._dial.peer, now)

    def hang_up(self, now: float) -> None:
        if self.state is CallState.DIALING:
            self._give_up(EndCause.HUNG_UP, now)
        else:
            super().hang_up(now)

    def expired(self, name: str, now: float) -> None:
        if name == "ring":
            self._give_up(EndCause.NO_ANSWER, now)
        elif name == "cancelled":
            self.over(now)
        else:
            super().expired(name, now)

    def on_answer(self, exchange: Exchange, response: Response, now: float) -> None:
        if exchange.request.method != "INVITE":
            super().on_answer(exchange, response, now)
        elif exchange is not self._exchange:
            return
        elif response.status < 200:
            self._progressed(exchange, response, now)
        elif response.status < 300:
            self._answered(exchange, response, now)
        else:
            self._refused(exchange, response, now)

    def over(self, now: float) -> None:
        if self._exchange is not None:
            self._exchange.abandon()
        super().over(now)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq

    def _invite(self, target: Uri, peer: Peer | None, now: float) -> None:
        hop = peer or next_hop(target, [], self.stack.settings.proxy, None)
        self.home = self.home or hop.host
        caller = self._dial.caller or NameAddr(self.stack.local_uri(hop.transport, contact=False))
        request = Request("INVITE", target)
        request.headers.add("Max-Forwards", "70")
        request.headers.add("From", str(caller.with_tag(self._tag)))
        request.headers.add("To", str(NameAddr(self._dial.target.without_headers())))
        request.headers.add("Call-ID", self._call_id)
        request.headers.add("CSeq", f"{self._next_seq()} INVITE")
        self.stack.dress(request, hop, contact=True)
        request.headers.add("Session-Expires", str(max(self._interval_s, self._least_s)))
        request.headers.add("Min-SE", str(self._least_s))
        if self._dial.replaces is not None:
            request.headers.add("Replaces", self._dial.replaces)
            request.headers.add("Require", "replaces")
        for name, value in self._dial.headers:
            request.headers.add(name, value)
        request.headers.add("Content-Type", SDP)
        request.body = self._offer
        self._forks.clear()
        self._exchange = self.stack.send(request, hop, self, self._next_seq, now, home=self.home)

    def dialog_for(self, request: Request) -> Dialog:
        """Before the answer each branch has its own."""
        fork = self._forks.get(request.sender.tag or "")
        return fork.dialog if fork is not None else self.need_dialog()

    def on_request(self, transaction: ServerTransaction, dialog: Dialog, source: Peer, now: float) -> None:
        """Once a branch has won, the others may only leave."""
        won = self.state not in (CallState.DIALING, CallState.CANCELLING)
        if not won or dialog is self.dialog:
            super().on_request(transaction, dialog, source, now)
        elif transaction.request.method == "BYE":
            self.stack.respond(transaction, 200, now)
        else:
            raise SipError("call: another branch has it", status=481)

    # Provisional

    def _progressed(self, exchange: Exchange, response: Response, now: float) -> None:
        if self.state is CallState.CANCELLING:
            self._cancel(now)
            return
        if response.status == 100 or self.state is not CallState.DIALING:
            return
        fork = self._fork(exchange, response)
        if fork is not None and not self._confirm(fork, exchange, response, now):
            return
        self.stack.tell(CallProgressed(self.name, response.status))
        if fork is not None and response.body and fork.negotiation.agreement is None:
            try:
                body = find_body(response, SDP)
                if body is not None:
                    agreement = fork.negotiation.answered(body)
                    fork.sure = "RSeq" in response.headers
                    self._agreement = agreement
                    self.stack.tell(MediaAgreed(self.name, agreement))
            except SipError:
                # Early sound is a courtesy: the answer in the 2xx decides.
                fork.negotiation = copy.copy(self._first)

    def _fork(self, exchange: Exchange, response: Response) -> Fork | None:
        """The early dialog a response belongs to; None: it makes none."""
        tag = response.recipient.tag
        if tag is None:
            return None
        fork = self._forks.get(tag)
        if fork is None:
            if len(self._forks) >= MAX_FORKS:
                return None
            dialog = Dialog.as_client(exchange.request, response, exchange.peer)
            # Numbers go on from the INVITE's, of which there may come more.
            fork = self._forks[tag] = Fork(dialog, copy.copy(self._first))
            if self.state is not CallState.OVER:
                # A branch may answer after the call has come and gone: nobody would take it out of the book again.
                self.book.enter(dialog.key, self)
            self.dialog = self.dialog or dialog
        else:
            fork.dialog.learn(response)
        return fork

    def _confirm(self, fork: Fork, exchange: Exchange, response: Response, now: float) -> bool:
        """Acknowledge a reliable response; False: it is one we had, or it came out of order (RFC 3262 section 4)."""
        rseq = response.headers.get("RSeq")
        if rseq is None or "100rel" not in response.headers.tokens("Require"):
            return True
        number = parse_delta(rseq, "RSeq")
        if fork.heard is not None and number != fork.heard + 1:
            return False
        fork.heard = number
        request = fork.dialog.request("PRACK")
        request.headers.add("RAck", f"{number} {exchange.request.cseq}")
        peer = self.hop(fork.dialog)
        self.stack.dress(request, peer, contact=False)
        self.stack.send(request, peer, Indifferent(), fork.dialog.next_seq, now, home=self.home)
        return True

    # Final

    def _answered(self, exchange: Exchange, response: Response, now: float) -> None:
        tag = response.recipient.tag or ""
        if tag in self._acks:
            self.stack.transmit(*self._acks[tag])
            return
        if len(self._acks) > MAX_FORKS:
            return
        fork = self._fork(exchange, response)
        if fork is None:
            fork = Fork(Dialog.as_client(exchange.request, response, exchange.peer), copy.copy(self._first))
        dialog = fork.dialog
        dialog.confirm(response)
        self._acks[tag] = self.acknowledge(dialog, exchange.request.cseq.number)
        if self.state is CallState.DIALING:
            self._established(fork, response, now)
        elif self.state is CallState.CANCELLING:
            # The answer overtook our CANCEL.
            self.dialog = dialog
            self.book.enter(dialog.key, self)
            self.bye(now, EndCause.HUNG_UP)
        elif dialog is not self.dialog:
            self._leave(dialog, now)

    def _established(self, fork: Fork, response: Response, now: float) -> None:
        self.deadlines.clear()
        self.dialog, self.state, self.negotiation = fork.dialog, CallState.UP, fork.negotiation
        self.book.enter(fork.dialog.key, self)
        try:
            if not fork.sure:
                body = find_body(response, SDP)
                if body is not None:
                    self.negotiation = copy.copy(self._first)
                    self.negotiation.answered(body)
                elif fork.negotiation.agreement is None:
                    raise SipError("SDP answer: missing", status=488)
            timer = SessionTimer.as_client(response, interval_s=max(self._interval_s, self._least_s))
        except SipError as exc:
            self.bye(now, EndCause.MEDIA, exc.status)
            return
        self.arm(timer, now)
        self.stack.tell(CallEstablished(self.name))
        self.tell_media()

    def _leave(self, dialog: Dialog, now: float) -> None:
        """Another branch answered too: one call is enough."""
        request, peer = dialog.request("BYE"), self.hop(dialog)
        self.stack.dress(request, peer, contact=False)
        self.stack.send(request, peer, Indifferent(), dialog.next_seq, now, home=self.home)

    def _refused(self, exchange: Exchange, response: Response, now: float) -> None:
        status = response.status
        if self.state is CallState.CANCELLING:
            self.over(now)
            return
        if self.state is not CallState.DIALING:
            return
        asked = interval_from_422(response) if status == 422 and self._raised < MAX_RAISES else None
        if asked is not None and asked > self._least_s:
            self._least_s, self._raised = asked, self._raised + 1
            self._invite(exchange.request.uri, exchange.peer, now)
            return
        if 300 <= status < 400:
            self._remember(response)
        if self._targets and (status < 600):
            target = self._targets.pop(0)
            self._tried.append(target)
            self._invite(target, self.stack.settings.proxy, now)
            return
        cause = EndCause.NO_ANSWER if exchange.local and status == 408 else EndCause.REFUSED
        self.tell_end(cause, status)
        self.over(now)

    def _remember(self, response: Response) -> None:
        """The contacts of a redirect, best first, none twice (RFC 3261 section 8.1.3.4)."""
        try:
            contacts = response.contacts
        except SipError:
            return
        contacts.sort(key=lambda contact: -_quality(contact))
        for contact in contacts:
            uri = contact.uri.without_headers()
            known = [*self._tried, *self._targets]
            room = len(known) <= self.stack.settings.redirects
            if room and uri.is_sip and not any(uri.same_as(other) for other in known):
                self._targets.append(uri)

    # Giving up

    def _give_up(self, cause: EndCause, now: float) -> None:
        self.tell_end(cause)
        self.state = CallState.CANCELLING
        self.deadlines.clear()
        if self._exchange is not None:
            self._exchange.give_up()
            if self._exchange.proceeding:
                self._cancel(now)

    def _cancel(self, now: float) -> None:
        """Only after a provisional response may a CANCEL be sent (section 9.1)."""
        if not self._cancelled and self._exchange is not None:
            self._cancelled = True
            self.stack.cancel(self._exchange, now)
            self.deadlines.set("cancelled", now + self.stack.settings.timings.timeout)

    def peer_left(self, now: float) -> None:
        """A BYE on an early dialog is no end of the others; the final response will tell."""
        if self.state not in (CallState.DIALING, CallState.CANCELLING):
            super().peer_left(now)


def _quality(contact: NameAddr) -> float:
    try:
        return min(1.0, max(0.0, float(get_param(contact.params, "q") or 1.0)))
    except ValueError:
        return 0.0
