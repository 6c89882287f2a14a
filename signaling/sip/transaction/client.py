"""Client transactions: INVITE (RFC 3261 section 17.1.1, RFC 6026) and all others (section 17.1.2). Pure."""

from __future__ import annotations

import abc

from signaling.sip.message import Request, Response
from signaling.sip.peer import Peer
from signaling.sip.timers import Schedule, Timings
from signaling.sip.transaction.base import ClientUser, Key, State, Transaction, Wire

__all__ = ["ClientTransaction", "InviteClient", "NonInviteClient"]


class ClientTransaction(Transaction):
    """What both kinds share. Construct, then `start`."""

    def __init__(
        self,
        key: Key,
        request: Request,
        peer: Peer,
        wire: Wire,
        schedule: Schedule,
        timings: Timings,
        state: State,
        user: ClientUser,
    ) -> None:
        super().__init__(key, request, peer, wire, schedule, timings, state)
        self.user = user

    @abc.abstractmethod
    def start(self, now: float) -> None:
        """Send the request."""

    @abc.abstractmethod
    def receive(self, response: Response, now: float) -> None:
        """A response that belongs here."""

    def unreachable(self, now: float) -> None:
        if self.state in (State.CALLING, State.TRYING, State.PROCEEDING):
            self._terminate()
            self.user.on_unreachable(self, now)


class InviteClient(ClientTransaction):
    """Timers A, B, D and M."""

    def __init__(
        self,
        key: Key,
        request: Request,
        peer: Peer,
        wire: Wire,
        schedule: Schedule,
        timings: Timings,
        user: ClientUser,
    ) -> None:
        super().__init__(key, request, peer, wire, schedule, timings, State.CALLING, user)
        self._ack: Request | None = None

    def start(self, now: float) -> None:
        self._wire.transmit(self.request, self.peer, self)
        if not self.reliable:
            self._deadlines.set("A", now + self._interval)
        self._deadlines.set("B", now + self._t.timeout)

    def receive(self, response: Response, now: float) -> None:
        status = response.status
        if self.state in (State.CALLING, State.PROCEEDING):
            if status < 200:
                self.state = State.PROCEEDING
                self._deadlines.clear("A", "B")
            elif status < 300:
                self.state = State.ACCEPTED
                self._deadlines.clear()
                self._deadlines.set("M", now + self._t.timeout)
            else:
                self._ack = acknowledge(self.request, response)
                self._wire.transmit(self._ack, self.peer, self)
                self._linger(State.COMPLETED, "D", self._t.linger_d, now)
            self.user.on_response(self, response, now)
        elif self.state is State.COMPLETED:
            if status >= 300 and self._ack is not None:
                self._wire.transmit(self._ack, self.peer, self)
        elif self.state is State.ACCEPTED and 200 <= status < 300:
            self.user.on_response(self, response, now)

    def _expired(self, name: str, now: float) -> None:
        if name == "A" and self.state is State.CALLING:
            self._wire.transmit(self.request, self.peer, self)
            self._interval *= 2
            self._deadlines.set("A", now + self._interval)
        elif name == "B" and self.state is State.CALLING:
            self._terminate()
            self.user.on_timeout(self, now)
        elif name in ("D", "M"):
            self._terminate()


class NonInviteClient(ClientTransaction):
    """Timers E, F and K."""

    def __init__(
        self,
        key: Key,
        request: Request,
        peer: Peer,
        wire: Wire,
        schedule: Schedule,
        timings: Timings,
        user: ClientUser,
    ) -> None:
        super().__init__(key, request, peer, wire, schedule, timings, State.TRYING, user)

    def start(self, now: float) -> None:
        self._wire.transmit(self.request, self.peer, self)
        if not self.reliable:
            self._deadlines.set("E", now + self._interval)
        self._deadlines.set("F", now + self._t.timeout)

    def receive(self, response: Response, now: float) -> None:
        if self.state not in (State.TRYING, State.PROCEEDING):
            return
        if response.status < 200:
            self.state = State.PROCEEDING
        else:
            self._linger(State.COMPLETED, "K", self._t.t4, now)
        self.user.on_response(self, response, now)

    def _expired(self, name: str, now: float) -> None:
        if name == "E" and self.state in (State.TRYING, State.PROCEEDING):
            self._wire.transmit(self.request, self.peer, self)
            slow = self.state is State.PROCEEDING
            self._interval = self._t.t2 if slow else min(self._interval * 2, self._t.t2)
            self._deadlines.set("E", now + self._interval)
        elif name == "F" and self.state in (State.TRYING, State.PROCEEDING):
            self._terminate()
            self.user.on_timeout(self, now)
        elif name == "K":
            self._terminate()


def acknowledge(invite: Request, response: Response) -> Request:
    """The ACK to a refusal, part of the transaction (RFC 3261 section 17.1.1.3)."""
    ack = Request("ACK", invite.uri)
    ack.headers.add("Via", str(invite.via))
    for route in invite.headers.all("Route"):
        ack.headers.add("Route", route)
    ack.headers.add("Max-Forwards", "70")
    ack.headers.add("From", invite.need("From"))
    ack.headers.add("To", response.need("To"))
    ack.headers.add("Call-ID", invite.call_id)
    ack.headers.add("CSeq", f"{invite.cseq.number} ACK")
    return ack
