"""Dialogs: what two user agents keep in common between requests (RFC 3261 section 12). Pure."""

from __future__ import annotations

from dataclasses import replace

from signaling.sip.errors import SipError
from signaling.sip.fields import NameAddr
from signaling.sip.message import Message, Request, Response
from signaling.sip.peer import Peer
from signaling.sip.uri import Uri

__all__ = ["Dialog", "DialogKey"]

DialogKey = tuple[str, str, str]
"""Call-ID, our tag, the peer's tag ("" for a peer of RFC 2543)."""


class Dialog:
    """One dialog, from its first provisional response on."""

    def __init__(
        self,
        call_id: str,
        local: NameAddr,
        remote: NameAddr,
        route: list[NameAddr],
        target: Uri,
        *,
        local_seq: int,
        remote_seq: int | None,
        early: bool,
        heard_from: Peer,
    ) -> None:
        self.call_id = call_id
        self.local = local
        self.remote = remote
        self.route = route
        self.target = target
        """The peer's Contact: where its requests go."""
        self.local_seq = local_seq
        self.remote_seq = remote_seq
        self.early = early
        self.heard_from = heard_from
        self.remote_allow: frozenset[str] = frozenset()
        """Methods the peer takes, as it last said, in lower case."""
        self.remote_supported: frozenset[str] = frozenset()

    @classmethod
    def as_server(cls, request: Request, local_tag: str, source: Peer) -> Dialog:
        """Of a request that we answer (section 12.1.1). Raises SipError when it has no usable Contact."""
        contacts = request.contacts
        if len(contacts) != 1 or not contacts[0].uri.is_sip:
            raise SipError("Contact: one sip or sips URI was expected", field="Contact")
        dialog = cls(
            request.call_id,
            request.recipient.with_tag(local_tag),
            request.sender,
            request.record_route,
            contacts[0].uri.without_headers(),
            local_seq=0,
            remote_seq=request.cseq.number,
            early=True,
            heard_from=source,
        )
        dialog.learn(request)
        return dialog

    @classmethod
    def as_client(cls, request: Request, response: Response, source: Peer) -> Dialog:
        """Of a response to our request (section 12.1.2)."""
        contacts = response.contacts
        target = contacts[0].uri.without_headers() if contacts and contacts[0].uri.is_sip else request.uri
        dialog = cls(
            request.call_id,
            request.sender,
            response.recipient,
            response.record_route[::-1],
            target,
            local_seq=request.cseq.number,
            remote_seq=None,
            early=response.status < 200,
            heard_from=source,
        )
        dialog.learn(response)
        return dialog

    @property
    def key(self) -> DialogKey:
        return (self.call_id, self.local.tag or "", self.remote.tag or "")

    def next_seq(self) -> int:
        """The number of our next request."""
        self.local_seq += 1
        return self.local_seq

    def request(self, method: str, *, seq: int | None = None) -> Request:
        """A request within the dialog, without Via and Contact (section 12.2.1.1).

        Args:
            seq: of an ACK, the number of its INVITE; None: the next one.
        """
        uri, routes = self.target, list(self.route)
        if routes and routes[0].uri.param("lr") is None:
            # A strict router wants to be the request URI and the target last.
            uri, routes = routes[0].uri.without_headers(), [*routes[1:], NameAddr(self.target)]
        request = Request(method, uri)
        for route in routes:
            request.headers.add("Route", str(route))
        request.headers.add("Max-Forwards", "70")
        request.headers.add("From", str(self.local))
        request.headers.add("To", str(self.remote))
        request.headers.add("Call-ID", self.call_id)
        request.headers.add("CSeq", f"{self.next_seq() if seq is None else seq} {method}")
        return request

    def hops(self) -> list[Uri]:
        """The route set's URIs, next hop first."""
        return [route.uri for route in self.route]

    def receive(self, request: Request, source: Peer) -> None:
        """Take a request's number (section 12.2.2). Raises SipError 500 when it is older than one we had."""
        number = request.cseq.number
        if self.remote_seq is not None and number <= self.remote_seq and request.method != "ACK":
            raise SipError("CSeq: older than one before", status=500, field="CSeq")
        if request.method != "ACK":
            self.remote_seq = number
        self.heard_from = source

    def learn(self, message: Message) -> None:
        """Take what a message says of the peer's abilities."""
        if "Allow" in message.headers:
            self.remote_allow = message.headers.tokens("Allow")
        if "Supported" in message.headers:
            self.remote_supported = message.headers.tokens("Supported")

    def refresh_target(self, message: Message) -> None:
        """A re-INVITE or UPDATE, or a 2xx to one, may move the peer (sections 12.2.1.2 and 12.2.2)."""
        contacts = message.contacts
        if len(contacts) == 1 and contacts[0].uri.is_sip:
            self.target = contacts[0].uri.without_headers()
        self.learn(message)

    def confirm(self, response: Response | None = None) -> None:
        """A 2xx was sent, or came: its route set counts, those before were provisional (section 13.2.2.4)."""
        self.early = False
        if response is not None:
            self.route = response.record_route[::-1]
            self.remote = replace(self.remote, params=response.recipient.params)
            self.refresh_target(response)
