"""Server transactions: INVITE (RFC 3261 section 17.2.1, RFC 6026) and all others (section 17.2.2). Pure."""

from __future__ import annotations

import abc

from signaling.sip.message import Request, Response
from signaling.sip.peer import Peer
from signaling.sip.timers import Schedule, Timings
from signaling.sip.transaction.base import Key, ServerUser, State, Transaction, Wire

__all__ = ["InviteServer", "NonInviteServer", "ServerTransaction"]


class ServerTransaction(Transaction):
    """What both kinds share. `user` may be set later; until then nobody is told of a loss.

    Args:
        peer: where responses go (`routing.response_peer`).
        source: where the request came from.
    """

    user: ServerUser | None = None

    def __init__(
        self, key: Key, request: Request, peer: Peer, source: Peer, wire: Wire, schedule: Schedule, timings: Timings
    ) -> None:
        state = State.PROCEEDING if request.method == "INVITE" else State.TRYING
        super().__init__(key, request, peer, wire, schedule, timings, state)
        self.source = source
        self._last: Response | None = None

    @property
    def answered(self) -> bool:
        """A final response was given."""
        return self.state not in (State.TRYING, State.PROCEEDING)

    def retransmitted(self) -> None:
        """The request came again."""
        if self._last is not None and self.state in (State.PROCEEDING, State.COMPLETED):
            self._wire.transmit(self._last, self.peer, self)

    @abc.abstractmethod
    def respond(self, response: Response, now: float) -> None:
        """Send a response. One after the final one is dropped."""

    def unreachable(self, now: float) -> None:
        if not self.terminated:
            self._terminate()
            if self.user is not None:
                self.user.on_lost(self, now)


class InviteServer(ServerTransaction):
    """Timers G, H, I and L. A 2xx is retransmitted by the call, not here (RFC 3261 section 13.3.1.4)."""

    def respond(self, response: Response, now: float) -> None:
        if self.answered:
            return
        self._last = response
        self._wire.transmit(response, self.peer, self)
        if response.status < 200:
            return
        if response.status < 300:
            self.state = State.ACCEPTED
            self._deadlines.set("L", now + self._t.timeout)
            return
        self.state = State.COMPLETED
        if not self.reliable:
            self._deadlines.set("G", now + self._interval)
        self._deadlines.set("H", now + self._t.timeout)

    def acknowledged(self, now: float) -> None:
        """An ACK came for a refusal."""
        if self.state is State.COMPLETED:
            self._linger(State.CONFIRMED, "I", self._t.t4, now)

    def _expired(self, name: str, now: float) -> None:
        if name == "G" and self.state is State.COMPLETED and self._last is not None:
            self._wire.transmit(self._last, self.peer, self)
            self._interval = min(self._interval * 2, self._t.t2)
            self._deadlines.set("G", now + self._interval)
        elif name == "H" and self.state is State.COMPLETED:
            self._terminate()
            if self.user is not None:
                self.user.on_lost(self, now)
        elif name in ("I", "L"):
            self._terminate()


class NonInviteServer(ServerTransaction):
    """Timer J."""

    def respond(self, response: Response, now: float) -> None:
        if self.answered:
            return
        self._last = response
        self._wire.transmit(response, self.peer, self)
        if response.status < 200:
            self.state = State.PROCEEDING
        else:
            self._linger(State.COMPLETED, "J", self._t.timeout, now)

    def _expired(self, name: str, now: float) -> None:  # noqa: ARG002 - the base class has it
        if name == "J":
            self._terminate()
