"""Pieces of SIP's grammar that many header fields share (RFC 3261 section 25.1): tokens, quoted strings, parameters."""

from __future__ import annotations

import re

from signaling.sip.errors import SipError

__all__ = [
    "QUOTED",
    "TOKEN",
    "Params",
    "format_params",
    "get_param",
    "parse_number",
    "parse_params",
    "quote",
    "split",
    "unquote",
]

TOKEN = re.compile(r"[A-Za-z0-9\-.!%*_+`'~]+")
VALUE = re.compile(r"[^\s;,\"<>?@]+")
"""Of a parameter without quotes: a token or a host; wider than the grammar, as senders are."""
QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
MAX_PARAMS = 64
NUMBER = re.compile(r"[0-9]+")

Params = tuple[tuple[str, str | None], ...]
"""Parameters in their order: name as written, and value (None: no `=`), with its quotes if it had any."""


def split(value: str, separator: str) -> list[str]:
    """Cut at each separator outside quotes and angle brackets; every part is stripped.

    Raises SipError on quotes or brackets without an end.
    """
    if '"' not in value and "<" not in value:
        return [part.strip() for part in value.split(separator)]
    parts, start, at, bracket = [], 0, 0, False
    while at < len(value):
        char = value[at]
        if char == '"' and not bracket:
            found = QUOTED.match(value, at)
            if found is None:
                raise SipError("quoted string: no closing quote")
            at = found.end()
            continue
        if char in "<>":
            if (char == "<") == bracket:
                raise SipError("angle brackets do not match")
            bracket = char == "<"
        elif char == separator and not bracket:
            parts.append(value[start:at].strip())
            start = at + 1
        at += 1
    if bracket:
        raise SipError("angle brackets do not match")
    return [*parts, value[start:].strip()]


def quote(text: str) -> str:
    """A quoted string. Control characters, which no header may carry unescaped, are dropped."""
    clean = "".join(char for char in text if char >= " " and char != "\x7f")
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'


def unquote(text: str) -> str:
    """The text of a quoted string; any other text as it is."""
    if len(text) >= 2 and text[0] == text[-1] == '"':
        return re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL)
    return text


def parse_params(text: str, field: str) -> Params:
    """Read `a=b;c;d="e"`, without the first semicolon. Raises SipError on an empty or malformed one."""
    if not text.strip():
        return ()
    parts = split(text, ";")
    if len(parts) > MAX_PARAMS:
        raise SipError(f"{field}: more than {MAX_PARAMS} parameters", field=field)
    found: list[tuple[str, str | None]] = []
    for part in parts:
        name, equals, value = part.partition("=")
        name, value = name.strip(), value.strip()
        good = TOKEN.fullmatch(name) is not None
        if equals and good:
            good = (QUOTED if value.startswith('"') else VALUE).fullmatch(value) is not None
        if not good:
            raise SipError(f"{field}: a parameter is not `name` or `name=value`", field=field)
        found.append((name, value if equals else None))
    return tuple(found)


def format_params(params: Params) -> str:
    """With the semicolon before each."""
    return "".join(f";{name}" if value is None else f";{name}={value}" for name, value in params)


def get_param(params: Params, name: str) -> str | None:
    """The value of a parameter: "" when it has none, None when it is absent. Names have no case."""
    for key, value in params:
        if key.lower() == name:
            return "" if value is None else value
    return None


def parse_number(text: str, field: str, *, below: int) -> int:
    """A decimal number under `below`. Raises SipError on another."""
    digits = text.lstrip("0") or "0"
    if not NUMBER.fullmatch(text) or len(digits) > 20 or int(digits) >= below:
        raise SipError(f"{field}: a number below {below} was expected", field=field)
    return int(digits)
