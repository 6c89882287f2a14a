"""Requests and responses: their parts, typed views of their header fields, and the writer (RFC 3261 section 7)."""

from __future__ import annotations

import abc
from collections.abc import Iterable

from signaling.sip.errors import SipError
from signaling.sip.fields import CSeq, NameAddr, Via, parse_addresses, parse_name_addr
from signaling.sip.headers import Headers
from signaling.sip.uri import Uri

__all__ = ["REASONS", "Message", "Request", "Response", "reason_of"]

REASONS = {
    100: "Trying",
    180: "Ringing",
    181: "Call Is Being Forwarded",
    182: "Queued",
    183: "Session Progress",
    200: "OK",
    202: "Accepted",
    300: "Multiple Choices",
    301: "Moved Permanently",
    302: "Moved Temporarily",
    305: "Use Proxy",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    406: "Not Acceptable",
    407: "Proxy Authentication Required",
    408: "Request Timeout",
    413: "Request Entity Too Large",
    415: "Unsupported Media Type",
    416: "Unsupported URI Scheme",
    420: "Bad Extension",
    421: "Extension Required",
    422: "Session Interval Too Small",
    423: "Interval Too Brief",
    480: "Temporarily Unavailable",
    481: "Call/Transaction Does Not Exist",
    482: "Loop Detected",
    483: "Too Many Hops",
    484: "Address Incomplete",
    486: "Busy Here",
    487: "Request Terminated",
    488: "Not Acceptable Here",
    489: "Bad Event",
    491: "Request Pending",
    493: "Undecipherable",
    500: "Server Internal Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    504: "Server Time-out",
    505: "Version Not Supported",
    513: "Message Too Large",
    600: "Busy Everywhere",
    603: "Decline",
    604: "Does Not Exist Anywhere",
    606: "Not Acceptable",
}
"""RFC 3261 section 21 and the extensions we speak."""


def reason_of(status: int) -> str:
    """The usual phrase, or that of its class (RFC 3261 section 8.1.3.2)."""
    return REASONS.get(status) or REASONS.get(status // 100 * 100) or "Unknown"


class Message(abc.ABC):
    """What requests and responses share. Typed views raise SipError when a field is absent or malformed."""

    __slots__ = ("body", "headers")

    def __init__(self, headers: Headers | Iterable[tuple[str, str]] = (), body: bytes = b"") -> None:
        self.headers = headers if isinstance(headers, Headers) else Headers(headers)
        self.body = body

    @property
    @abc.abstractmethod
    def start_line(self) -> str:
        """The first line, without its end."""

    def need(self, name: str) -> str:
        """The first value of a field that must be there."""
        value = self.headers.get(name)
        if value is None:
            raise SipError(f"{name}: missing", field=name)
        return value

    @property
    def via(self) -> Via:
        """The topmost."""
        values = self.headers.values("Via")
        if not values:
            raise SipError("Via: missing", field="Via")
        return Via.parse(values[0])

    @property
    def cseq(self) -> CSeq:
        return CSeq.parse(self.need("CSeq"))

    @property
    def call_id(self) -> str:
        return self.need("Call-ID").strip()

    @property
    def sender(self) -> NameAddr:
        """From."""
        return parse_name_addr(self.need("From"), "From")

    @property
    def recipient(self) -> NameAddr:
        """To."""
        return parse_name_addr(self.need("To"), "To")

    @property
    def contacts(self) -> list[NameAddr]:
        """Without `*`, which only REGISTER has."""
        return parse_addresses([value for value in self.headers.all("Contact") if value.strip() != "*"], "Contact")

    @property
    def record_route(self) -> list[NameAddr]:
        return parse_addresses(self.headers.all("Record-Route"), "Record-Route")

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters; "" when there is none."""
        return (self.headers.get("Content-Type") or "").partition(";")[0].strip().lower()

    def to_bytes(self) -> bytes:
        """As sent. Content-Length is always ours."""
        lines = [self.start_line]
        lines += [f"{name}: {value}" for name, value in self.headers if name != "Content-Length"]
        lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + self.body


class Request(Message):
    """A request."""

    __slots__ = ("method", "uri")

    def __init__(
        self, method: str, uri: Uri, headers: Headers | Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> None:
        super().__init__(headers, body)
        self.method = method
        self.uri = uri

    @property
    def start_line(self) -> str:
        return f"{self.method} {self.uri} SIP/2.0"

    def __repr__(self) -> str:
        return f"Request({self.method})"


class Response(Message):
    """A response."""

    __slots__ = ("reason", "status")

    def __init__(
        self, status: int, reason: str = "", headers: Headers | Iterable[tuple[str, str]] = (), body: bytes = b""
    ) -> None:
        super().__init__(headers, body)
        self.status = status
        self.reason = reason

    @classmethod
    def to_request(cls, request: Request, status: int, *, tag: str = "", reason: str = "") -> Response:
        """A response to a request, which may lack fields: what it has is copied (RFC 3261 section 8.2.6.2).

        Args:
            tag: for To, when the request has none there; "" adds none, as in 100.
        """
        response = cls(status, reason or reason_of(status))
        for name in ("Via", "From", "To", "Call-ID", "CSeq"):
            for value in request.headers.all(name):
                response.headers.add(name, value)
        if status == 100:
            for value in request.headers.all("Timestamp"):
                response.headers.add("Timestamp", value)
        if tag and "To" in response.headers:
            try:
                recipient = request.recipient
            except SipError:
                return response
            if recipient.tag is None:
                # Appended to what the sender wrote: it may compare the text.
                written = response.headers.get("To") or ""
                response.headers.replace_first("To", f"{written};tag={tag}")
        return response

    @property
    def start_line(self) -> str:
        return f"SIP/2.0 {self.status} {self.reason}"

    def __repr__(self) -> str:
        return f"Response({self.status})"
