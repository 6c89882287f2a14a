"""What the four transaction machines share. Pure."""

from __future__ import annotations

import abc
from enum import Enum, auto
from typing import Protocol

from signaling.sip.message import Request, Response
from signaling.sip.peer import Peer
from signaling.sip.timers import Deadlines, Schedule, Timings

__all__ = ["ClientUser", "Key", "ServerUser", "State", "Transaction", "Wire"]

Key = tuple[str, ...]


class State(Enum):
    """States of RFC 3261 figures 5 to 8, and Accepted of RFC 6026."""

    CALLING = auto()
    TRYING = auto()
    PROCEEDING = auto()
    COMPLETED = auto()
    CONFIRMED = auto()
    ACCEPTED = auto()
    TERMINATED = auto()


class Wire(Protocol):
    """Takes what is to be sent."""

    def transmit(self, message: Request | Response, peer: Peer, owner: Transaction | None = None) -> None:
        """Send a message; `owner` is told should the transport fail."""


class ClientUser(Protocol):
    """Who sent a request: it hears of its fate."""

    def on_response(self, transaction: Transaction, response: Response, now: float) -> None:
        """A response for the first time; a 2xx to INVITE each time it comes (RFC 6026 section 7.2)."""

    def on_timeout(self, transaction: Transaction, now: float) -> None:
        """No final response came in 64*T1: to be taken as 408 (RFC 3261 section 8.1.3.1)."""

    def on_unreachable(self, transaction: Transaction, now: float) -> None:
        """The transport failed: to be taken as 503."""


class ServerUser(Protocol):
    """Who answers requests."""

    def on_lost(self, transaction: Transaction, now: float) -> None:
        """Our final response to an INVITE was never acknowledged, or could not be sent."""


class Transaction(abc.ABC):
    """One request and its responses.

    Args:
        key: its name in the table of transactions.
        request: as sent or received.
        peer: where its messages go.
    """

    def __init__(
        self, key: Key, request: Request, peer: Peer, wire: Wire, schedule: Schedule, timings: Timings, state: State
    ) -> None:
        self.key = key
        self.request = request
        self.peer = peer
        self.state = state
        self._wire = wire
        self._t = timings
        self._deadlines = Deadlines(schedule, self)
        self._interval = timings.t1

    @property
    def terminated(self) -> bool:
        return self.state is State.TERMINATED

    @property
    def reliable(self) -> bool:
        return self.peer.reliable

    def tick(self, now: float) -> None:
        for name in self._deadlines.take_due(now):
            if not self.terminated:
                self._expired(name, now)

    @abc.abstractmethod
    def _expired(self, name: str, now: float) -> None:
        """A deadline has passed."""

    def _terminate(self) -> None:
        self.state = State.TERMINATED
        self._deadlines.clear()

    def _linger(self, state: State, timer: str, seconds: float, now: float) -> None:
        """Stay to absorb retransmissions; over a reliable transport there are none."""
        self.state = state
        self._deadlines.clear()
        if self.reliable:
            self._terminate()
        else:
            self._deadlines.set(timer, now + seconds)

    def abandon(self) -> None:
        """Nobody waits for its end: free it where only the peer could end it."""
        if self.state in (State.CALLING, State.PROCEEDING):
            self._terminate()

    @abc.abstractmethod
    def unreachable(self, now: float) -> None:
        """The transport could not send."""
