"""What calls stand on: sending requests with credentials, responding, telling news. Pure.

The stack collects outputs in their order; the user agent hands them out after each event.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from signaling.sip.digest import Account, DigestClient
from signaling.sip.errors import SipError
from signaling.sip.fields import MAGIC_COOKIE, NameAddr, Via
from signaling.sip.message import Request, Response
from signaling.sip.peer import Peer, TransportName, same_host
from signaling.sip.protocol import News, Output, Send
from signaling.sip.session_timer import INTERVAL_S
from signaling.sip.timers import Schedule, Timings
from signaling.sip.transaction.base import State, Transaction
from signaling.sip.transaction.client import ClientTransaction
from signaling.sip.transaction.server import ServerTransaction
from signaling.sip.transaction.table import MAX_TRANSACTIONS, TransactionTable
from signaling.sip.uri import Uri
from signaling.sip.validation import ALLOW, EXTENSIONS

__all__ = ["AgentSettings", "Exchange", "ExchangeUser", "Stack"]

MAX_ATTEMPTS = 4
"""Of one request: plain, for a proxy, for the server behind it, and once more for a stale nonce."""


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """How our user agent presents itself and what it allows."""

    contacts: dict[TransportName, tuple[str, int]]
    """Host and port that peers reach us at, by transport."""
    user: str = "agent"
    domain: str = ""
    """Of our From; "": the contact's host."""
    product: str = "Rejoinder"
    """In User-Agent and Server; "" sends neither."""
    account: Account | None = None
    """Answers challenges to our requests, of the proxy and of where a call was dialled."""
    proxy: Peer | None = None
    """First hop of requests outside a dialog."""
    session_interval_s: int = INTERVAL_S
    reliable_provisional: bool = True
    """Use 100rel where the peer has it."""
    allow_refer: bool = False
    """Let peers transfer us. Off: every incoming REFER is declined."""
    ringing_limit_s: float = 180.0
    """A call that nobody has answered by then is given up."""
    transfer_limit_s: float = 60.0
    """A transfer whose outcome the peer has not reported by then has failed."""
    redirects: int = 3
    """3xx contacts that one call tries."""
    max_calls: int = 500
    max_transactions: int = MAX_TRANSACTIONS
    timings: Timings = field(default_factory=Timings)


class ExchangeUser(Protocol):
    """Who made a request."""

    def on_answer(self, exchange: Exchange, response: Response, now: float) -> None:
        """A response. A timeout comes as 408 and a broken transport as 503, with `exchange.local` set."""


class Exchange:
    """One request of ours through all its challenges (RFC 3261 section 22.2). Made by `Stack.send`."""

    def __init__(
        self,
        stack: Stack,
        request: Request,
        peer: Peer,
        user: ExchangeUser,
        next_seq: Callable[[], int],
        *,
        proves: bool,
    ) -> None:
        self.request = request
        self.peer = peer
        self._proves = proves
        self.local = False
        """The response was made up here."""
        self.transaction: ClientTransaction | None = None
        self._stack = stack
        self._user = user
        self._next_seq = next_seq
        self._attempts = 0
        self._nonces: set[str] = set()

    def start(self, now: float) -> None:
        """Send it, or send it again with what was added."""
        self._attempts += 1
        self._stack.add_via(self.request, self.peer)
        self.transaction = self._stack.table.begin_client(self.request, self.peer, self, now)

    def on_response(self, transaction: Transaction, response: Response, now: float) -> None:
        if transaction is not self.transaction:
            return
        if response.status in (401, 407) and self._authorize(response):
            self.start(now)
            return
        self._user.on_answer(self, response, now)

    @property
    def proceeding(self) -> bool:
        """A provisional response came, and no final one yet."""
        return self.transaction is not None and self.transaction.state is State.PROCEEDING

    def give_up(self) -> None:
        """The next final response is the last: challenges are not met any more."""
        self._attempts = MAX_ATTEMPTS

    def abandon(self) -> None:
        """Nobody waits for a response any more."""
        if self.transaction is not None:
            self.transaction.abandon()

    def on_timeout(self, transaction: Transaction, now: float) -> None:
        self._fail(transaction, 408, now)

    def on_unreachable(self, transaction: Transaction, now: float) -> None:
        self._fail(transaction, 503, now)

    def _fail(self, transaction: Transaction, status: int, now: float) -> None:
        if transaction is self.transaction:
            self.local = True
            self._user.on_answer(self, Response.to_request(self.request, status), now)

    def _authorize(self, response: Response) -> bool:
        digest = self._stack.digest
        if digest is None or not self._proves or self._attempts >= MAX_ATTEMPTS:
            return False
        proxy = response.status == 407
        asked, answer = (
            ("Proxy-Authenticate", "Proxy-Authorization") if proxy else ("WWW-Authenticate", "Authorization")
        )
        try:
            challenge = digest.choose(response.headers.all(asked), asked)
        except SipError:
            return False
        if challenge is None or challenge.nonce in self._nonces:
            return False
        if answer in self.request.headers and not challenge.stale:
            # Our credentials were refused: asking again with the same ones only earns a ban.
            return False
        self._nonces.add(challenge.nonce)
        old = self.request
        again = Request(old.method, old.uri, old.headers.copy(), old.body)
        again.headers.remove("Via")
        again.headers.replace("CSeq", f"{self._next_seq()} {old.method}")
        again.headers.remove(answer)
        value = digest.authorize(challenge, old.method, str(old.uri), old.body)
        again.headers.add(answer, value)
        self.request = again
        return True


class Stack:
    """Shared by all calls of a user agent.

    Args:
        new_token: makes tags, branches and Call-IDs; unguessable, 16 characters or more.
        random: uniform in [0, 1), for the waits of RFC 3261 section 14.1.
    """

    def __init__(self, settings: AgentSettings, *, new_token: Callable[[], str], random: Callable[[], float]) -> None:
        self.settings = settings
        self.new_token = new_token
        self.random = random
        self.schedule = Schedule()
        self.table = TransactionTable(self, self.schedule, settings.timings, limit=settings.max_transactions)
        self.digest = DigestClient(settings.account) if settings.account is not None else None
        self._outputs: list[Output] = []

    def take_outputs(self) -> list[Output]:
        """What has gathered since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def tell(self, news: News) -> None:
        """Tell the application."""
        self._outputs.append(news)

    def transmit(self, message: Request | Response, peer: Peer, owner: Transaction | None = None) -> None:
        """Hand a message to the transport."""
        self._outputs.append(Send(message, peer, owner))

    def local_uri(self, transport: TransportName, *, contact: bool) -> Uri:
        """Our address: as a Contact with its transport, or as a From."""
        settings = self.settings
        host, port = settings.contacts.get(transport) or next(iter(settings.contacts.values()))
        if not contact:
            return Uri.sip(settings.user, settings.domain or host, None if settings.domain else port)
        params = () if transport == "udp" else (("transport", transport),)
        return Uri.sip(settings.user, host, port, params)

    def add_via(self, request: Request, peer: Peer) -> None:
        """Put our Via on top: a new transaction."""
        host, port = self.settings.contacts.get(peer.transport) or next(iter(self.settings.contacts.values()))
        via = Via(peer.transport.upper(), host, port, (("branch", MAGIC_COOKIE + self.new_token()), ("rport", None)))
        request.headers.prepend("Via", str(via))

    def dress(self, message: Request | Response, peer: Peer, *, contact: bool) -> None:
        """Add what our messages say of us: Contact, Allow, Supported, product."""
        if contact:
            message.headers.add("Contact", str(NameAddr(self.local_uri(peer.transport, contact=True))))
            message.headers.add("Allow", ", ".join(ALLOW))
            message.headers.add("Supported", ", ".join(EXTENSIONS))
        if self.settings.product:
            kind = "User-Agent" if isinstance(message, Request) else "Server"
            message.headers.add(kind, self.settings.product)

    def send(
        self, request: Request, peer: Peer, user: ExchangeUser, next_seq: Callable[[], int], now: float, *, home: str
    ) -> Exchange:
        """Begin a request that has no Via yet.

        Args:
            home: the host the application chose for the call, which may ask who we are; "": it chose none.
        """
        exchange = Exchange(self, request, peer, user, next_seq, proves=self._may_ask(peer, home))
        exchange.start(now)
        return exchange

    def _may_ask(self, peer: Peer, home: str) -> bool:
        # A caller that challenges our BYE, or whom a redirect names, must not get an answer to guess our password by.
        settings = self.settings
        hosts = [home, *(settings.account.hosts if settings.account is not None else ())]
        if settings.proxy is not None:
            hosts.append(settings.proxy.host)
        return any(same_host(peer.host, host) for host in hosts if host)

    def cancel(self, exchange: Exchange, now: float) -> None:
        """Send the CANCEL of an INVITE that had a provisional response (RFC 3261 section 9.1)."""
        invite = exchange.request
        cancel = Request("CANCEL", invite.uri)
        cancel.headers.add("Via", str(invite.via))
        for route in invite.headers.all("Route"):
            cancel.headers.add("Route", route)
        cancel.headers.add("Max-Forwards", "70")
        for name in ("From", "To", "Call-ID"):
            cancel.headers.add(name, invite.need(name))
        cancel.headers.add("CSeq", f"{invite.cseq.number} CANCEL")
        self.table.begin_client(cancel, exchange.peer, Indifferent(), now)

    def respond(
        self,
        transaction: ServerTransaction,
        status: int,
        now: float,
        *,
        tag: str = "",
        headers: tuple[tuple[str, str], ...] = (),
    ) -> Response:
        """Answer with a response without a body. A tag is made up where there is none."""
        new_tag = "" if status == 100 else tag or self.new_token()
        response = Response.to_request(transaction.request, status, tag=new_tag)
        self.dress(response, transaction.peer, contact=False)
        for name, value in headers:
            response.headers.add(name, value)
        transaction.respond(response, now)
        return response


class Indifferent:
    """The user of a request whose fate changes nothing."""

    def on_response(self, transaction: Transaction, response: Response, now: float) -> None:
        """Nothing to do."""

    def on_timeout(self, transaction: Transaction, now: float) -> None:
        """Nothing to do."""

    def on_unreachable(self, transaction: Transaction, now: float) -> None:
        """Nothing to do."""

    def on_answer(self, exchange: Exchange, response: Response, now: float) -> None:
        """Nothing to do."""
