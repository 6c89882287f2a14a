"""The user agent: fed events of the network and commands, it answers with messages to send and news of calls. Pure.

It finds the transaction and the call that a message belongs to, and refuses what belongs to none. `now` is monotonic,
in seconds; `next_at` says when the next Tick is wanted.
"""

from __future__ import annotations

import random
import secrets
from collections.abc import Callable

from signaling.sip.call import Call
from signaling.sip.call_state import CallState
from signaling.sip.defence import Door
from signaling.sip.dialog import DialogKey
from signaling.sip.errors import SipError, WrongState
from signaling.sip.fields import Replaces
from signaling.sip.incoming import IncomingCall
from signaling.sip.message import Request, Response
from signaling.sip.outgoing import OutgoingCall
from signaling.sip.peer import Peer
from signaling.sip.protocol import (
    AcceptTransfer,
    Answer,
    CallOffered,
    ChangeDirection,
    ChangeMedia,
    Command,
    Dial,
    Event,
    HangUp,
    Output,
    Received,
    RefuseTransfer,
    Reject,
    ReportTransfer,
    Ring,
    SendDigit,
    SendFailed,
    Tick,
    Transfer,
    Unreadable,
)
from signaling.sip.registration import Registration, RegistrationSettings, RegistrationState
from signaling.sip.routing import mark_received
from signaling.sip.stack import AgentSettings, Stack
from signaling.sip.transaction.server import InviteServer, ServerTransaction
from signaling.sip.validation import ALLOW, EXTENSIONS, check_extensions, check_request

__all__ = ["UserAgent"]

RETRY_AFTER_S = 5
"""Of a 503: long enough for a few calls to end, short enough for a trunk not to look elsewhere for good."""


class UserAgent:
    """One SIP endpoint with all its calls.

    Args:
        door: judges strangers.
        new_token: makes tags, branches and Call-IDs; unguessable.
        uniform: in [0, 1).
    """

    def __init__(
        self,
        settings: AgentSettings,
        door: Door,
        *,
        new_token: Callable[[], str] = lambda: secrets.token_hex(10),
        uniform: Callable[[], float] = random.random,
    ) -> None:
        self.settings = settings
        self.door = door
        self.draining = False
        """No new calls: they get 503, those that run go on."""
        self._stack = Stack(settings, new_token=new_token, random=uniform)
        self._calls: dict[str, Call] = {}
        self._dialogs: dict[DialogKey, Call] = {}
        self._keys: dict[str, list[DialogKey]] = {}
        self._initial: dict[tuple[str, str, int], str] = {}
        self._supported = frozenset(EXTENSIONS)
        self._registrations: list[Registration] = []

    @property
    def next_at(self) -> float | None:
        """When a Tick is wanted; None: not before another event."""
        return self._stack.schedule.next_at

    @property
    def calls(self) -> int:
        """Calls that are not over, those included that the peer does not know of yet."""
        return len(self._calls)

    @property
    def busy(self) -> bool:
        """Something still wants Ticks before the end: a call, or the farewell to a registrar."""
        return bool(self._calls) or any(item.state is RegistrationState.LEAVING for item in self._registrations)

    @property
    def transactions(self) -> int:
        """Transactions kept, those included that have ended and are not swept out yet."""
        return len(self._stack.table)

    def handle(self, event: Event, now: float) -> list[Output]:
        """Take one event. Raises WrongState on a command that does not fit the call's state.

        A command for a call that is over does nothing: its end and the command may cross.
        """
        match event:
            case Received(message, peer):
                if isinstance(message, Request):
                    self._on_request(message, peer, now)
                else:
                    self._on_response(message, now)
            case Unreadable(fault, peer):
                if fault.partial is not None and self.door.hears(peer, now) and not self.door.refuses_quietly(peer):
                    self._refuse_statelessly(fault.partial, fault, peer)
            case SendFailed(send):
                if send.owner is not None:
                    send.owner.unreachable(now)
            case Tick():
                self._stack.schedule.run(now)
            case Dial():
                self._dial(event, now)
            case _:
                call = self._calls.get(event.call)
                if call is not None:
                    self._command(call, event, now)
        return self._stack.take_outputs()

    # The book of calls

    def enter(self, key: DialogKey, call: Call) -> None:
        """A dialog of this call exists."""
        if key not in self._dialogs:
            self._keys.setdefault(call.name, []).append(key)
        self._dialogs[key] = call

    def leave(self, call: Call) -> None:
        """The call is over: forget all of it."""
        self._calls.pop(call.name, None)
        for key in self._keys.pop(call.name, ()):
            self._dialogs.pop(key, None)
        if isinstance(call, IncomingCall):
            self._initial.pop(_merge_key(call.transaction.request), None)

    def find(self, call_id: str) -> Call | None:
        """The call with this id of ours."""
        return self._calls.get(call_id)

    # Responses

    def _on_response(self, response: Response, now: float) -> None:
        try:
            # More than one Via: it was not meant for us (RFC 3261 section 18.1.2).
            alone = len(response.headers.values("Via")) == 1
            _ = response.recipient, response.sender, response.call_id
        except SipError:
            return
        transaction = self._stack.table.client_of(response) if alone else None
        if transaction is not None:
            transaction.receive(response, now)

    # Requests

    def _on_request(self, request: Request, peer: Peer, now: float) -> None:
        try:
            check_request(request)
            mark_received(request, peer)
            known = self._stack.table.server_of(request)
            call = self._call_of(request)
        except SipError as fault:
            if self.door.hears(peer, now) and not self.door.refuses_quietly(peer) and request.method != "ACK":
                self._refuse_statelessly(request, fault, peer)
            return
        if known is not None:
            if request.method != "ACK":
                known.retransmitted()
                return
            if isinstance(known, InviteServer) and call is None:
                known.acknowledged(now)
                return
        if request.method == "ACK":
            if isinstance(known, InviteServer):
                known.acknowledged(now)
            if call is not None:
                call.on_ack(request, now)
            return
        invite = self._stack.table.invite_of(request) if request.method == "CANCEL" else None
        if call is None and invite is None and not self.door.hears(peer, now):
            return
        # The end of a call is always taken: it frees more than it costs.
        leaves = call is not None and request.method == "BYE"
        if not leaves and (self._stack.table.full or (call is not None and call.requests.take(now) > 0.0)):
            self._overloaded(request, peer)
            return
        if invite is not None:
            transaction = self._stack.table.begin_server(request, peer)
            self._stack.respond(transaction, 200, now)
            if isinstance(invite.user, Call):
                invite.user.on_cancel(invite, now)
            return
        if call is None:
            self._outside(request, peer, now)
            return
        transaction = self._stack.table.begin_server(request, peer)
        try:
            check_extensions(request, self._supported)
            dialog = call.dialog_for(request)
            call.on_request(transaction, dialog, peer, now)
        except SipError as fault:
            self._refuse(transaction, fault, now)

    def _call_of(self, request: Request) -> Call | None:
        tag = request.recipient.tag
        if tag is None:
            return None
        return self._dialogs.get((request.call_id, tag, request.sender.tag or ""))

    def _outside(self, request: Request, peer: Peer, now: float) -> None:
        """A request of no call that we know."""
        verdict = self.door.judge(request, peer, now)
        if verdict.status is None:
            return
        if verdict.status:
            # Without a transaction: strangers shall not make us remember them.
            self._respond_statelessly(request, verdict.status, verdict.headers, peer)
            return
        if (self.draining or len(self._calls) >= self.settings.max_calls) and request.method == "INVITE":
            self._overloaded(request, peer)
            return
        # Without a transaction too: one response a request, wherever it goes, and none sent again for 32 s.
        try:
            if request.recipient.tag is not None or request.method == "CANCEL":
                raise SipError("call: no such one", status=481)
            check_extensions(request, self._supported)
            if request.method == "INVITE":
                self._offered(request, peer, verdict.user, now)
            elif request.method == "OPTIONS":
                headers = (("Allow", ", ".join(ALLOW)), ("Accept", "application/sdp"))
                supported = (("Supported", ", ".join(EXTENSIONS)),)
                # As an INVITE would be met now (RFC 3261 section 11.2).
                self._respond_statelessly(request, 503 if self.draining else 200, headers + supported, peer)
            elif request.method == "REFER":
                raise SipError("REFER: only within a call", status=603)
            else:
                raise SipError("call: no such one", status=481)
        except SipError as fault:
            self._refuse_statelessly(request, fault, peer)

    def _offered(self, request: Request, peer: Peer, user: str, now: float) -> None:
        merged = _merge_key(request)
        if merged in self._initial:
            raise SipError("INVITE: came on two ways", status=482)
        replaced = self._replaced(request)
        name = secrets.token_hex(8)
        transaction = self._stack.table.begin_server(request, peer)
        try:
            call = IncomingCall(name, self._stack, self, transaction, peer, replaced)
        except SipError:
            transaction.abandon()
            raise
        self._calls[name] = call
        self._initial[merged] = name
        call.begin(now)
        other = replaced.name if replaced is not None else None
        self._stack.tell(CallOffered(name, request.sender, request.uri, request, peer, user, other))

    def _replaced(self, request: Request) -> Call | None:
        """The call that a Replaces field means. Raises SipError (RFC 3891 section 3)."""
        values = request.headers.all("Replaces")
        if not values:
            return None
        if len(values) > 1:
            raise SipError("Replaces: given more than once", field="Replaces")
        wanted = Replaces.parse(values[0])
        from_tag = "" if wanted.from_tag == "0" else wanted.from_tag
        call = self._dialogs.get((wanted.call_id, wanted.to_tag, from_tag))
        if call is None or call.state not in (CallState.UP, CallState.ANSWERED):
            raise SipError("Replaces: no such call", status=481, field="Replaces")
        if wanted.early_only:
            raise SipError("Replaces: the call is answered", status=486, field="Replaces")
        return call

    # Refusals

    def _refuse(self, transaction: ServerTransaction, fault: SipError, now: float) -> None:
        self._stack.respond(transaction, fault.status, now, headers=fault.headers)

    def _refuse_statelessly(self, request: Request, fault: SipError, peer: Peer) -> None:
        self._respond_statelessly(request, fault.status, fault.headers, peer)

    def _overloaded(self, request: Request, peer: Peer) -> None:
        self._respond_statelessly(request, 503, (("Retry-After", str(RETRY_AFTER_S)),), peer)

    def _respond_statelessly(
        self, request: Request, status: int, headers: tuple[tuple[str, str], ...], peer: Peer
    ) -> None:
        """Answer where the request came from and remember nothing (RFC 3261 section 8.2.7)."""
        response = Response.to_request(request, status, tag=self._stack.new_token())
        self._stack.dress(response, peer, contact=False)
        for name, value in headers:
            response.headers.add(name, value)
        self._stack.transmit(response, peer)

    # Commands

    def _dial(self, dial: Dial, now: float) -> None:
        if dial.call in self._calls:
            raise WrongState("dial: this id is taken")
        if self.draining or len(self._calls) >= self.settings.max_calls:
            raise WrongState("dial: no more calls are taken")
        if not dial.target.is_sip and dial.peer is None and self.settings.proxy is None:
            raise WrongState("dial: a target that is no SIP URI needs a proxy")
        call = OutgoingCall(dial, self._stack, self)
        self._calls[dial.call] = call
        call.begin(now)

    def _command(self, call: Call, command: Command, now: float) -> None:
        match command:
            case HangUp():
                call.hang_up(now)
            case Ring(media=media):
                _incoming(call).ring(media, now)
            case Answer(media=given):
                _incoming(call).answer(given, now)
            case Reject(status=status, contact=contact):
                _incoming(call).reject(status, contact, now)
            case ChangeDirection(direction=direction):
                call.modifier.change(now, direction=direction)
            case ChangeMedia(media=moved):
                call.modifier.change(now, media=moved)
            case Transfer(target=target, to_call=to_call):
                other = self._calls.get(to_call) if to_call is not None else None
                if to_call is not None and other is None:
                    raise WrongState("transfer: the other call is over")
                call.transfer_out.begin(target, other, now)
            case AcceptTransfer():
                call.transfer_in.accept(now)
            case RefuseTransfer(status=status):
                call.transfer_in.refuse(status, now)
            case ReportTransfer(status=status):
                call.transfer_in.report(status, now)
            case SendDigit(digit=digit, duration_ms=duration_ms):
                call.send_digit(digit, duration_ms, now)

    def register(self, settings: RegistrationSettings, now: float) -> list[Output]:
        """Keep an address registered until `drain` or `close`."""
        registration = Registration(self._stack, settings)
        self._registrations.append(registration)
        registration.begin(now)
        return self._stack.take_outputs()

    def drain(self, now: float) -> list[Output]:
        """Take no new calls from now on, refuse those that ring, and unregister."""
        self.draining = True
        for registration in self._registrations:
            registration.leave(now)
        for call in tuple(self._calls.values()):
            if call.state is CallState.OFFERED:
                call.hang_up(now)
        return self._stack.take_outputs()

    def close(self, now: float) -> list[Output]:
        """Hang up every call; their BYEs still want Ticks until `calls` is 0 or the caller's deadline passes."""
        self.draining = True
        for registration in self._registrations:
            registration.leave(now)
        for call in tuple(self._calls.values()):
            call.hang_up(now)
        return self._stack.take_outputs()


def _incoming(call: Call) -> IncomingCall:
    if not isinstance(call, IncomingCall):
        raise WrongState("call: not an incoming one")
    return call


def _merge_key(request: Request) -> tuple[str, str, int]:
    return (request.call_id, request.sender.tag or "", request.cseq.number)
