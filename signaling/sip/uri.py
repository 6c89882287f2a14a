"""SIP, SIPS and other URIs (RFC 3261 section 19.1, RFC 3966 for tel)."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass, replace
from urllib.parse import quote as percent_quote
from urllib.parse import unquote as percent_unquote

from signaling.sip.errors import SipError
from signaling.sip.grammar import Params, parse_number

__all__ = ["Uri", "parse_host_port", "parse_uri"]

SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*")
USER = re.compile(r"(?:[A-Za-z0-9\-_.!~*'()&=+$,;?/#]|%[0-9A-Fa-f]{2})+")
"""With `#`, which feature codes have and the grammar wants escaped."""
PASSWORD = re.compile(r"(?:[A-Za-z0-9\-_.!~*'()&=+$,]|%[0-9A-Fa-f]{2})*")
HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9\-_.]*[A-Za-z0-9_.])?")
PARAM = re.compile(r"(?:[A-Za-z0-9\-_.!~*'()\[\]/:&+$]|%[0-9A-Fa-f]{2})+")
HEADER = re.compile(r"(?:[A-Za-z0-9\-_.!~*'()\[\]/?:+$]|%[0-9A-Fa-f]{2})*")
OPAQUE = re.compile(r"[!#-;=?-~]+")
USER_SAFE = "-_.!~*'()&=+$,;?/"
DEFAULT_PORT = {"sip": 5060, "sips": 5061}
MAX_URI_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Uri:
    """One URI. Parts are kept as written, escapes and all, so that what is copied stays the same."""

    scheme: str
    """In lower case."""
    host: str = ""
    """A name, an IPv4 address, or an IPv6 address without its brackets; "" in a URI that is neither sip nor sips."""
    user: str | None = None
    password: str | None = None
    port: int | None = None
    params: Params = ()
    headers: tuple[tuple[str, str], ...] = ()
    opaque: str = ""
    """All after the scheme, of another URI than sip and sips."""

    @classmethod
    def sip(cls, user: str | None, host: str, port: int | None = None, params: Params = ()) -> Uri:
        """Build one from plain text: `user` is escaped as needed."""
        return cls("sip", host, None if user is None else percent_quote(user, safe=USER_SAFE), None, port, params)

    @property
    def is_sip(self) -> bool:
        return self.scheme in DEFAULT_PORT

    @property
    def user_text(self) -> str:
        """The user part without escapes; of a tel URI its number; "" when there is none."""
        if self.scheme == "tel":
            return self.opaque.partition(";")[0]
        return percent_unquote(self.user or "", errors="replace")

    def param(self, name: str) -> str | None:
        """A parameter's value without escapes: "" when it has none, None when it is absent."""
        for key, value in self.params:
            if percent_unquote(key).lower() == name:
                return percent_unquote(value or "", errors="replace")
        return None

    def header(self, name: str) -> str | None:
        """A header's value without escapes."""
        return next((percent_unquote(value) for key, value in self.headers if key.lower() == name.lower()), None)

    @property
    def host_port(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port is None else f"{host}:{self.port}"

    @property
    def transport(self) -> str:
        """udp, tcp or tls, as scheme and parameter say (RFC 3263 section 4.1, without DNS)."""
        named = (self.param("transport") or "").lower()
        if self.scheme == "sips":
            return "tls"
        return named if named in ("tcp", "tls") else "udp"

    def without_headers(self) -> Uri:
        return replace(self, headers=())

    def with_header(self, name: str, value: str) -> Uri:
        """Add a header, escaped: `Replaces` in a Refer-To (RFC 3891)."""
        return replace(self, headers=(*self.headers, (name, percent_quote(value, safe=""))))

    def same_as(self, other: Uri) -> bool:
        """Equality of RFC 3261 section 19.1.4."""
        if self.scheme != other.scheme:
            return False
        if not self.is_sip:
            return self.opaque == other.opaque
        if (percent_unquote(self.user or ""), self.password, self.host.lower(), self.port) != (
            percent_unquote(other.user or ""),
            other.password,
            other.host.lower(),
            other.port,
        ):
            return False
        mine, theirs = _folded(self.params), _folded(other.params)
        must_match = {"user", "ttl", "method", "maddr", "transport"}
        for name in (mine.keys() | theirs.keys()) & (must_match | (mine.keys() & theirs.keys())):
            if mine.get(name) != theirs.get(name):
                return False
        return sorted(map(_header_key, self.headers)) == sorted(map(_header_key, other.headers))

    def __str__(self) -> str:
        if not self.is_sip:
            return f"{self.scheme}:{self.opaque}"
        user = "" if self.user is None else self.user
        if self.password is not None:
            user += f":{self.password}"
        at = "" if self.user is None else "@"
        params = "".join(f";{name}" if value is None else f";{name}={value}" for name, value in self.params)
        headers = "&".join(f"{name}={value}" for name, value in self.headers)
        return f"{self.scheme}:{user}{at}{self.host_port}{params}{'?' if headers else ''}{headers}"


def _folded(params: Params) -> dict[str, str]:
    return {percent_unquote(name).lower(): percent_unquote(value or "").lower() for name, value in params}


def _header_key(header: tuple[str, str]) -> tuple[str, str]:
    return percent_unquote(header[0]).lower(), percent_unquote(header[1])


def parse_host_port(text: str, field: str) -> tuple[str, int | None]:
    """Read `host`, `host:port` or `[v6]:port`. Raises SipError naming `field`."""
    host, port = text, ""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise SipError(f"{field}: an IPv6 address must be in brackets", field=field)
        try:
            ipaddress.IPv6Address(host)
        except ValueError as exc:
            raise SipError(f"{field}: not an IPv6 address", field=field) from exc
        port = rest[1:]
        colon = bool(rest)
    else:
        host, sign, port = text.partition(":")
        host, port, colon = host.rstrip(), port.lstrip(), bool(sign)
        if len(host) > 255 or not HOST.fullmatch(host):
            raise SipError(f"{field}: a host was expected", field=field)
    if not colon:
        return host, None
    return host, parse_number(port, f"{field} port", below=65536)


def parse_uri(text: str, field: str = "URI") -> Uri:
    """Read any URI; sip and sips in their parts. Raises SipError naming `field`."""
    scheme, colon, rest = text.partition(":")
    if len(text) > MAX_URI_CHARS or not colon or not SCHEME.fullmatch(scheme) or not OPAQUE.fullmatch(rest):
        raise SipError(f"{field}: a URI was expected", field=field)
    scheme = scheme.lower()
    if scheme not in DEFAULT_PORT:
        return Uri(scheme, opaque=rest)
    userinfo, at, remainder = rest.partition("@")
    user: str | None = None
    password: str | None = None
    if at:
        user, has_password, secret = userinfo.partition(":")
        password = secret if has_password else None
        if not USER.fullmatch(user) or not PASSWORD.fullmatch(secret):
            raise SipError(f"{field}: malformed user part", field=field)
    else:
        remainder = rest
    body, question, query = remainder.partition("?")
    address, *raw = body.split(";")
    host, port = parse_host_port(address, field)
    params: list[tuple[str, str | None]] = []
    for item in raw:
        name, equals, value = item.partition("=")
        if not PARAM.fullmatch(name) or (equals and not PARAM.fullmatch(value)):
            raise SipError(f"{field}: malformed parameter", field=field)
        params.append((name, value if equals else None))
    headers: list[tuple[str, str]] = []
    for item in query.split("&") if question else ():
        name, equals, value = item.partition("=")
        if not equals or not name or not HEADER.fullmatch(name) or not HEADER.fullmatch(value):
            raise SipError(f"{field}: malformed header part", field=field)
        headers.append((name, value))
    return Uri(scheme, host, user, password, port, tuple(params), tuple(headers))
