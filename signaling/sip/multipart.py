"""Bodies of several parts (RFC 2046 section 5.1, RFC 5621): finding the one we want. Pure.

The standard library's email parser is not used: it takes any input for some message and rewrites line ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from signaling.sip.errors import SipError
from signaling.sip.grammar import get_param, parse_params, unquote
from signaling.sip.headers import Headers
from signaling.sip.message import Message

__all__ = ["Part", "find_body", "parts_of"]

MAX_PARTS = 16
MAX_DEPTH = 3
MAX_BOUNDARY_CHARS = 70


@dataclass(frozen=True, slots=True)
class Part:
    """One body: its media type in lower case, its Content-Disposition, and its bytes."""

    content_type: str
    disposition: str
    optional: bool
    """`handling=optional`: a receiver that does not know it ignores it (RFC 3204)."""
    body: bytes


def parts_of(message: Message) -> list[Part]:
    """All bodies of a message, those of nested multiparts too. Raises SipError on a malformed multipart."""
    if not message.body:
        return []
    return _parts(message.headers, message.body, 0)


def find_body(message: Message, content_type: str) -> bytes | None:
    """The first body of that type. None: the message has no body at all.

    Raises SipError 415 when it has others only and one of them must be understood (RFC 3261 section 8.2.3).
    """
    parts = parts_of(message)
    for part in parts:
        if part.content_type == content_type:
            return part.body
    if any(not part.optional for part in parts):
        accept = (("Accept", content_type),)
        raise SipError(f"body: {content_type} was expected", status=415, field="Content-Type", headers=accept)
    return None


def _parts(headers: Headers, body: bytes, depth: int) -> list[Part]:
    value = headers.get("Content-Type") or ("text/plain" if depth else "")
    kind, _, rest = value.partition(";")
    kind = kind.strip().lower()
    encoding = (headers.get("Content-Encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise SipError("Content-Encoding: none is supported", status=415, headers=(("Accept-Encoding", "identity"),))
    disposition, _, how = (headers.get("Content-Disposition") or "").partition(";")
    optional = (get_param(parse_params(how, "Content-Disposition"), "handling") or "").lower() == "optional"
    if not kind.startswith("multipart/"):
        return [Part(kind, disposition.strip().lower(), optional, body)]
    if depth >= MAX_DEPTH:
        raise SipError("body: multiparts too deep", status=413)
    boundary = unquote(get_param(parse_params(rest, "Content-Type"), "boundary") or "")
    if not 1 <= len(boundary) <= MAX_BOUNDARY_CHARS or "\r" in boundary or "\n" in boundary:
        raise SipError("Content-Type: a boundary of 1 to 70 characters was expected", field="Content-Type")
    mark = b"\r\n--" + boundary.encode("utf-8", "surrogateescape")
    chunks = (b"\r\n" + body).split(mark)
    if len(chunks) > MAX_PARTS + 2:
        raise SipError(f"body: over {MAX_PARTS} parts", status=413)
    found: list[Part] = []
    for chunk in chunks[1:]:
        if chunk.startswith(b"--"):
            return found
        _, line_end, content = chunk.partition(b"\r\n")
        if not line_end:
            break
        if content.startswith(b"\r\n"):
            own, inner = Headers(), content[2:]
        else:
            head, _, inner = content.partition(b"\r\n\r\n")
            own = _part_headers(head)
        found += _parts(own, inner, depth + 1)
    raise SipError("body: the closing boundary is missing", field="Content-Type")


def _part_headers(head: bytes) -> Headers:
    headers = Headers()
    text = head.decode("utf-8", "surrogateescape").replace("\r\n ", " ").replace("\r\n\t", " ")
    for line in text.split("\r\n"):
        name, colon, value = line.partition(":")
        try:
            if not colon:
                raise ValueError(line)
            headers.add(name.strip(), value.strip())
        except ValueError as exc:
            raise SipError("body: a header line of a part is not `name: value`", field="Content-Type") from exc
    return headers
