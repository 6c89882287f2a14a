"""Header values in their parts: addresses, Via, CSeq, RAck, Replaces, dates (RFC 3261 section 20)."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from signaling.sip.errors import SipError
from signaling.sip.grammar import (
    QUOTED,
    TOKEN,
    Params,
    format_params,
    get_param,
    parse_number,
    parse_params,
    quote,
    split,
    unquote,
)
from signaling.sip.uri import Uri, parse_host_port, parse_uri

__all__ = [
    "MAGIC_COOKIE",
    "CSeq",
    "NameAddr",
    "RAck",
    "Replaces",
    "Via",
    "check_date",
    "parse_addresses",
    "parse_delta",
    "parse_name_addr",
]

MAGIC_COOKIE = "z9hG4bK"
"""Starts every branch that is unique in space and time (RFC 3261 section 8.1.1.7)."""
CSEQ_LIMIT = 1 << 31
RSEQ_LIMIT = 1 << 32
DATE = re.compile(
    r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d{2} (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} \d\d:\d\d:\d\d GMT"
)
SENT_PROTOCOL = re.compile(r"SIP\s*/\s*2\.0\s*/\s*([A-Za-z0-9\-.!%*_+`'~]+)\s+(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class NameAddr:
    """Value of From, To, Contact, Route, Record-Route, Refer-To: `"name" <uri>;params`."""

    uri: Uri
    display: str = ""
    params: Params = ()

    @property
    def tag(self) -> str | None:
        return get_param(self.params, "tag") or None

    def with_tag(self, tag: str) -> NameAddr:
        return replace(self, params=(*(p for p in self.params if p[0].lower() != "tag"), ("tag", tag)))

    def __str__(self) -> str:
        name = f"{quote(self.display)} " if self.display else ""
        return f"{name}<{self.uri}>{format_params(self.params)}"


def parse_name_addr(value: str, field: str) -> NameAddr:
    """Read a name-addr or a bare addr-spec, whose parameters are the field's (RFC 3261 section 20.10)."""
    text = value.strip()
    display = ""
    if text.startswith('"'):
        found = QUOTED.match(text)
        if found is None:
            raise SipError(f"{field}: no closing quote", field=field)
        display, text = unquote(found.group()), text[found.end() :].lstrip()
        if not text.startswith("<"):
            raise SipError(f"{field}: `<` was expected after the display name", field=field)
    elif "<" in text:
        display, text = text[: text.index("<")].strip(), text[text.index("<") :]
        if any(char in ',;:"@>' for char in display):
            raise SipError(f"{field}: a display name with separators must be quoted", field=field)
    if text.startswith("<"):
        inner, closed, rest = text[1:].partition(">")
        rest = rest.strip()
        if not closed or (rest and not rest.startswith(";")):
            raise SipError(f"{field}: `>` and parameters were expected after the URI", field=field)
        return NameAddr(parse_uri(inner, field), display, parse_params(rest[1:], field) if rest else ())
    bare, semicolon, rest = text.partition(";")
    uri = parse_uri(bare.rstrip(), field)
    if "?" in bare or "," in bare:
        raise SipError(f"{field}: a URI with `?` or `,` must be in angle brackets", field=field)
    return NameAddr(uri, "", parse_params(rest, field) if semicolon else ())


def parse_addresses(values: list[str], field: str) -> list[NameAddr]:
    """One for each element of a list field."""
    return [parse_name_addr(element, field) for value in values for element in split(value, ",")]


@dataclass(frozen=True, slots=True)
class Via:
    """One hop (RFC 3261 section 20.42, RFC 3581 for rport)."""

    transport: str
    """In upper case."""
    host: str
    port: int | None = None
    params: Params = ()

    @classmethod
    def parse(cls, value: str) -> Via:
        """Raises SipError."""
        found = SENT_PROTOCOL.fullmatch(value.strip())
        if found is None:
            raise SipError("Via: `SIP/2.0/transport host` was expected", field="Via")
        address, semicolon, rest = found.group(2).partition(";")
        host, port = parse_host_port(address.strip(), "Via")
        return cls(found.group(1).upper(), host, port, parse_params(rest, "Via") if semicolon else ())

    def param(self, name: str) -> str | None:
        return get_param(self.params, name)

    @property
    def branch(self) -> str:
        return self.param("branch") or ""

    @property
    def has_cookie(self) -> bool:
        """The branch names the transaction: it has the cookie and something after it (RFC 4475 section 3.1.2.17)."""
        return self.branch.lower().startswith(MAGIC_COOKIE.lower()) and len(self.branch) > len(MAGIC_COOKIE)

    @property
    def sent_by(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host.lower()
        return host if self.port is None else f"{host}:{self.port}"

    def with_param(self, name: str, value: str) -> Via:
        kept = tuple(p for p in self.params if p[0].lower() != name)
        return replace(self, params=(*kept, (name, value)))

    def __str__(self) -> str:
        return f"SIP/2.0/{self.transport} {self.sent_by}{format_params(self.params)}"


@dataclass(frozen=True, slots=True)
class CSeq:
    """Number and method (RFC 3261 section 20.16)."""

    number: int
    method: str

    @classmethod
    def parse(cls, value: str) -> CSeq:
        """Raises SipError."""
        words = value.split()
        if len(words) != 2 or not TOKEN.fullmatch(words[1]):
            raise SipError("CSeq: `number method` was expected", field="CSeq")
        return cls(parse_number(words[0], "CSeq", below=CSEQ_LIMIT), words[1])

    def __str__(self) -> str:
        return f"{self.number} {self.method}"


@dataclass(frozen=True, slots=True)
class RAck:
    """What a PRACK acknowledges (RFC 3262 section 7.2)."""

    response: int
    cseq: CSeq

    @classmethod
    def parse(cls, value: str) -> RAck:
        """Raises SipError."""
        number, _, rest = value.strip().partition(" ")
        return cls(parse_number(number, "RAck", below=RSEQ_LIMIT), CSeq.parse(rest))

    def __str__(self) -> str:
        return f"{self.response} {self.cseq}"


@dataclass(frozen=True, slots=True)
class Replaces:
    """The dialog that a new call takes the place of (RFC 3891). Tags are as the receiver of the field has them."""

    call_id: str
    to_tag: str
    from_tag: str
    early_only: bool = False

    @classmethod
    def parse(cls, value: str) -> Replaces:
        """Raises SipError."""
        call_id, _, rest = value.strip().partition(";")
        params = parse_params(rest, "Replaces")
        to_tag, from_tag = get_param(params, "to-tag"), get_param(params, "from-tag")
        if not call_id.strip() or not to_tag or not from_tag:
            raise SipError("Replaces: a Call-ID with to-tag and from-tag was expected", field="Replaces")
        return cls(call_id.strip(), to_tag, from_tag, get_param(params, "early-only") is not None)

    def __str__(self) -> str:
        early = ";early-only" if self.early_only else ""
        return f"{self.call_id};to-tag={self.to_tag};from-tag={self.from_tag}{early}"


def parse_delta(value: str, field: str) -> int:
    """Seconds at the start of a value, before parameters or a comment, as in Expires, Session-Expires, Retry-After."""
    number = re.split(r"[;( \t]", value.strip(), maxsplit=1)[0]
    return parse_number(number, field, below=1 << 32)


def check_date(value: str) -> None:
    """Raises SipError unless it is an RFC 1123 date in GMT (RFC 3261 section 20.17)."""
    if not DATE.fullmatch(value.strip()):
        raise SipError("Date: an RFC 1123 date in GMT was expected", field="Date")
