"""Bytes to messages (RFC 3261 section 7), with a limit on everything that a sender can make large. Pure.

What is taken here can be read; whether it can be served is judged by `validation`. A request that cannot be read is
told apart from noise: what could be read of it comes with the error, so that it can be refused with the right code.
"""

from __future__ import annotations

import re

from signaling.sip.errors import SipError
from signaling.sip.fields import CSeq, Via, check_date, parse_addresses, parse_delta, parse_name_addr
from signaling.sip.grammar import TOKEN, parse_number, split
from signaling.sip.headers import Headers
from signaling.sip.message import Message, Request, Response
from signaling.sip.uri import Uri, parse_uri

__all__ = ["MAX_HEAD_BYTES", "MAX_MESSAGE_BYTES", "UnreadableMessage", "content_length", "parse_head", "parse_message"]

MAX_MESSAGE_BYTES = 65_535
"""What a UDP datagram can hold at all."""
MAX_HEAD_BYTES = 32 * 1024
MAX_FIELDS = 256
MAX_FIELD_CHARS = 8 * 1024
MAX_ELEMENTS = 128
"""Vias, routes and contacts of one message, each."""
STATUS_LINE = re.compile(r"SIP/2\.0 ([0-9]{3})(?: (.*))?", re.IGNORECASE)
RESPONSE_LIKE = re.compile(r"SIP/[0-9.]+ ", re.IGNORECASE)
REQUEST_LINE = re.compile(r"(\S+) (.*) (SIP/[0-9]+\.[0-9]+)", re.IGNORECASE)
BARE_BREAK = re.compile(r"(?<!\r)\n|\r(?!\n)|\x00(?<!\\\x00)")
"""A line break that is none, or a NUL that is not escaped in a quoted string."""
CONTENT_LENGTH_LIMIT = 1 << 31


class UnreadableMessage(SipError):
    """A message that is refused.

    `partial` holds what can be copied into the refusal; None: a response, an ACK or noise, which nobody answers.
    """

    def __init__(self, cause: SipError, partial: Request | None) -> None:
        super().__init__(str(cause), status=cause.status, field=cause.field, headers=cause.headers)
        self.partial = partial


def parse_message(data: bytes) -> Request | Response:
    """Read one datagram. Bytes after Content-Length are cut off (RFC 3261 section 18.3).

    Raises UnreadableMessage.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise UnreadableMessage(SipError(f"message: over {MAX_MESSAGE_BYTES} bytes", status=513), None)
    head, blank, body = data.lstrip(b"\r\n").partition(b"\r\n\r\n")
    if not blank:
        raise UnreadableMessage(SipError("message: no empty line after the header"), None)
    message = parse_head(head)
    try:
        length = content_length(message.headers)
        if length is not None and length > len(body):
            raise SipError("Content-Length: more than the datagram holds", field="Content-Length")
    except SipError as exc:
        raise UnreadableMessage(exc, _answerable(message)) from exc
    message.body = body if length is None else body[:length]
    return message


def parse_head(head: bytes) -> Request | Response:
    """Read start line and header fields, which end before the empty line. Raises UnreadableMessage."""
    if len(head) > MAX_HEAD_BYTES:
        raise UnreadableMessage(SipError(f"header: over {MAX_HEAD_BYTES} bytes", status=513), None)
    text = head.decode("utf-8", "surrogateescape")
    start, _, rest = text.partition("\r\n")
    headers = Headers()
    try:
        faults = _read_fields(rest, headers)
        message = _start_line(start, headers)
        if faults is not None:
            raise faults
        _check_fields(message)
    except SipError as exc:
        method, _, _ = start.partition(" ")
        request = not RESPONSE_LIKE.match(start) and TOKEN.fullmatch(method) is not None
        partial = Request(method, Uri("sip", "invalid.invalid"), headers) if request else None
        raise UnreadableMessage(exc, _answerable(partial)) from exc
    return message


def content_length(headers: Headers) -> int | None:
    """The length of the body; None when it is absent or given twice with different values.

    Raises SipError on a value that is no number.
    """
    lengths = {parse_number(v.strip(), "Content-Length", below=CONTENT_LENGTH_LIMIT) for v in headers.all("l")}
    return lengths.pop() if len(lengths) == 1 else None


def _answerable(message: Message | None) -> Request | None:
    """Its Via may be the malformed part: such a refusal goes to where the request came from."""
    usable = isinstance(message, Request) and message.method != "ACK" and "Via" in message.headers
    return message if usable and isinstance(message, Request) else None


def _read_fields(text: str, headers: Headers) -> SipError | None:
    """Add every field that can be read; the first fault is returned, so that a refusal can still copy the others."""
    fault: SipError | None = None
    if BARE_BREAK.search(text):
        fault = SipError("header: a bare CR, LF or NUL")
        text = BARE_BREAK.sub(" ", text)
    lines: list[str] = []
    for line in text.split("\r\n"):
        if line[:1] in (" ", "\t") and lines:
            lines[-1] += " " + line.strip(" \t")
        elif line:
            lines.append(line)
    if len(lines) > MAX_FIELDS:
        fault = fault or SipError(f"header: over {MAX_FIELDS} fields", status=513)
    for line in lines[:MAX_FIELDS]:
        name, colon, value = line.partition(":")
        name = name.rstrip(" \t")
        if not colon or not TOKEN.fullmatch(name):
            fault = fault or SipError("header: a line is not `name: value`")
        elif len(value) > MAX_FIELD_CHARS:
            fault = fault or SipError(f"header: a field over {MAX_FIELD_CHARS} characters", status=513)
        else:
            headers.add(name, value.strip(" \t"))
    return fault


def _start_line(line: str, headers: Headers) -> Request | Response:
    if RESPONSE_LIKE.match(line):
        found = STATUS_LINE.fullmatch(line)
        if found is None or not 100 <= int(found.group(1)) <= 699:
            raise SipError("status line: `SIP/2.0 code reason` with a code of 100 to 699 was expected")
        return Response(int(found.group(1)), found.group(2) or "", headers)
    found = REQUEST_LINE.fullmatch(line)
    if found is None or not TOKEN.fullmatch(found.group(1)):
        raise SipError("request line: `method URI SIP/2.0` was expected")
    if found.group(3).upper() != "SIP/2.0":
        raise SipError("request line: SIP/2.0 was expected", status=505)
    uri = parse_uri(found.group(2), "request URI")
    if uri.headers:
        raise SipError("request URI: a header part is not allowed there")
    return Request(found.group(1), uri, headers)


def _check_fields(message: Request | Response) -> None:
    headers = message.headers
    content_length(headers)
    for name in ("From", "To", "Refer-To", "Referred-By"):
        for value in headers.all(name):
            parse_name_addr(value, name)
    for name in ("Contact", "Route", "Record-Route"):
        values = [value for value in headers.all(name) if not (name == "Contact" and value.strip() == "*")]
        if len(parse_addresses(values, name)) > MAX_ELEMENTS:
            raise SipError(f"{name}: over {MAX_ELEMENTS} elements", field=name, status=513)
    vias = [element for value in headers.all("Via") for element in split(value, ",")]
    if len(vias) > MAX_ELEMENTS:
        raise SipError(f"Via: over {MAX_ELEMENTS} elements", field="Via", status=513)
    for via in vias:
        Via.parse(via)
    for value in headers.all("CSeq"):
        cseq = CSeq.parse(value)
        if isinstance(message, Request) and cseq.method != message.method:
            raise SipError("CSeq: its method is not that of the request", field="CSeq")
    for value in headers.all("Max-Forwards"):
        parse_number(value.strip(), "Max-Forwards", below=1 << 16)
    for name in ("Expires", "Session-Expires", "Min-SE", "RSeq"):
        for value in headers.all(name):
            parse_delta(value, name)
    for value in headers.all("Date"):
        check_date(value)
    for value in headers.all("Call-ID"):
        if not value or any(char.isspace() for char in value):
            raise SipError("Call-ID: a word was expected", field="Call-ID")
