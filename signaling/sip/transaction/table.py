"""The table of transactions: which one a message belongs to (RFC 3261 sections 17.1.3 and 17.2.3). Pure, bounded."""

from __future__ import annotations

from signaling.sip.errors import SipError
from signaling.sip.fields import Via
from signaling.sip.message import Request, Response
from signaling.sip.peer import Peer
from signaling.sip.routing import response_peer
from signaling.sip.timers import Schedule, Timings
from signaling.sip.transaction.base import ClientUser, Key, Wire
from signaling.sip.transaction.client import ClientTransaction, InviteClient, NonInviteClient
from signaling.sip.transaction.server import InviteServer, NonInviteServer, ServerTransaction

__all__ = ["TransactionTable"]

MAX_TRANSACTIONS = 20_000
"""About 100 MB of messages at worst; 600 new ones a second, each kept for 32 s."""


class TransactionTable:
    """Every live transaction, by its key.

    Args:
        wire: takes what they send.
        schedule: where they set their deadlines.
        limit: transactions kept, of both sides together.
    """

    def __init__(self, wire: Wire, schedule: Schedule, timings: Timings, *, limit: int = MAX_TRANSACTIONS) -> None:
        self._wire = wire
        self._schedule = schedule
        self._timings = timings
        self._limit = limit
        self._clients: dict[Key, ClientTransaction] = {}
        self._servers: dict[Key, ServerTransaction] = {}
        self._swept = 0

    def __len__(self) -> int:
        return len(self._clients) + len(self._servers)

    @property
    def full(self) -> bool:
        """No more may be begun; those that have ended are swept out first."""
        if len(self) >= self._limit:
            self._sweep()
        return len(self) >= self._limit

    def begin_client(self, request: Request, peer: Peer, user: ClientUser, now: float) -> ClientTransaction:
        """Send a request whose topmost Via is ours."""
        self._grown()
        key = _client_key(request.via, request.method)
        kind = InviteClient if request.method == "INVITE" else NonInviteClient
        transaction = kind(key, request, peer, self._wire, self._schedule, self._timings, user)
        self._clients[key] = transaction
        transaction.start(now)
        return transaction

    def begin_server(self, request: Request, source: Peer) -> ServerTransaction:
        """Take a request that belongs to no transaction yet; not an ACK."""
        self._grown()
        key = server_key(request, request.method)
        peer = response_peer(request.via, source)
        kind = InviteServer if request.method == "INVITE" else NonInviteServer
        transaction = kind(key, request, peer, source, self._wire, self._schedule, self._timings)
        self._servers[key] = transaction
        return transaction

    def server_of(self, request: Request) -> ServerTransaction | None:
        """The transaction that a retransmission, or the ACK to a refusal, belongs to."""
        method = "INVITE" if request.method == "ACK" else request.method
        return self._live(self._servers.get(server_key(request, method)))

    def invite_of(self, cancel: Request) -> ServerTransaction | None:
        """The INVITE that a CANCEL means (RFC 3261 section 9.2)."""
        return self._live(self._servers.get(server_key(cancel, "INVITE")))

    def client_of(self, response: Response) -> ClientTransaction | None:
        """The transaction that a response belongs to."""
        try:
            found = self._clients.get(_client_key(response.via, response.cseq.method))
        except SipError:
            return None
        return found if found is not None and not found.terminated else None

    def _live(self, found: ServerTransaction | None) -> ServerTransaction | None:
        return found if found is not None and not found.terminated else None

    def _grown(self) -> None:
        # Swept each time the table has doubled since: cheap on average, and nothing ended stays for long.
        if len(self) > 2 * self._swept + 64:
            self._sweep()

    def _sweep(self) -> None:
        self._clients = {key: found for key, found in self._clients.items() if not found.terminated}
        self._servers = {key: found for key, found in self._servers.items() if not found.terminated}
        self._swept = len(self)


def _client_key(via: Via, method: str) -> Key:
    return (via.branch, method)


def server_key(request: Request, method: str) -> Key:
    """By branch and sent-by; by the identifying fields where the branch is no name (RFC 2543 peers)."""
    via = request.via
    if via.has_cookie:
        return (via.branch, via.sent_by, method)
    top = f"{via.transport} {via.sent_by} {via.branch}"
    return (str(request.uri), request.sender.tag or "", request.call_id, str(request.cseq.number), top, method)
