"""The few kinds of value that every door takes, checked the same way everywhere. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, StringConstraints, ValidationError

from agent.errors import ProtocolError

__all__ = [
    "Caller",
    "Digit",
    "JsonObject",
    "LanguageTag",
    "TypedText",
    "VoiceName",
    "first_problem",
    "flag",
    "json_object",
    "validate",
]

JsonObject = dict[str, Any]

MAX_TEXT_CHARS = 4000
"""A typed turn; a page of text."""

MAX_DEPTH = 32
"""JSON nested deeper is an attack on the parser's stack, not a message."""

_BCP47 = r"[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8}){0,4}"


def _clean(text: str) -> str:
    """Without control characters (but newline and tab) and with real characters only."""
    if any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError("expected valid Unicode, got a lone surrogate")
    return "".join(char for char in text if char.isprintable() or char in "\n\t")


def _not_blank(text: str) -> str:
    if not text.strip():
        raise ValueError("expected some text")
    return text


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected printable characters only")
    return text


def _form(pattern: str, expected: str) -> Callable[[str], str]:
    compiled = re.compile(pattern, re.ASCII)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"expected {expected}")
        return text

    return check


TypedText = Annotated[
    str, StringConstraints(min_length=1, max_length=MAX_TEXT_CHARS), AfterValidator(_clean), AfterValidator(_not_blank)
]
"""What a caller types."""

Digit = Annotated[str, AfterValidator(_form(r"[0-9*#A-D]", "one of 0-9 * # A-D"))]
"""One key."""

LanguageTag = Annotated[
    str, StringConstraints(max_length=35), AfterValidator(_form(_BCP47, "a BCP 47 tag such as en or de-AT"))
]
"""RFC 5646; 35 characters are what its section 4.4.1 asks to be ready for."""

VoiceName = Annotated[str, AfterValidator(_form(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,63}", "the name of a voice"))]

Caller = Annotated[str, StringConstraints(min_length=1, max_length=128), AfterValidator(_printable)]
"""A telephone number, user id or name."""

ModelT = TypeVar("ModelT", bound=BaseModel)

_TOO_DEEP = re.compile(r"[\[{]")


def json_object(text: str | bytes) -> JsonObject:
    """Parse one JSON object (RFC 8259; no NaN, no duplicate surprises beyond the last winning).

    Raises ProtocolError, code `invalid_json`, when it is not UTF-8, not JSON, nested over 32 levels, or no object.
    """
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        # Counting brackets is cheap and bounds the depth from above before the parser recurses.
        if sum(1 for _ in _TOO_DEEP.finditer(text)) > MAX_DEPTH and _depth(text) > MAX_DEPTH:
            raise ProtocolError(f"expected JSON of at most {MAX_DEPTH} levels", code="invalid_json")
        value = json.loads(text, parse_constant=_no_constant)
    except UnicodeDecodeError as exc:
        raise ProtocolError("expected UTF-8", code="invalid_json") from exc
    except (ValueError, RecursionError) as exc:
        raise ProtocolError("expected a JSON object", code="invalid_json") from exc
    if not isinstance(value, dict):
        raise ProtocolError(f"expected a JSON object, got {_json_name(value)}", code="invalid_json")
    return value


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _depth(text: str) -> int:
    """Nesting of brackets outside strings."""
    deepest = depth = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _json_name(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "a boolean", str: "a string", list: "an array", int: "a number", float: "a number"}
    return names.get(type(value), "something else")


def validate(model: type[ModelT], values: JsonObject, *, code: str = "invalid_request") -> ModelT:
    """`values` as `model`; raises ProtocolError naming the first field at fault as a dotted path."""
    try:
        return model.model_validate(values)
    except ValidationError as exc:
        field, message = first_problem(exc)
        raise ProtocolError(f"{field}: {message}" if field else message, field=field or None, code=code) from exc


def flag(text: str | None, field: str) -> bool:
    """A query parameter that is 1 or true, 0 or false, or not there. Raises ProtocolError naming it."""
    if text is None or text in ("0", "false"):
        return False
    if text in ("1", "true"):
        return True
    raise ProtocolError(f"{field}: expected 1 or 0", field=field, code="invalid_request")


def first_problem(error: ValidationError) -> tuple[str, str]:
    """(dotted field, message) of the first fault; the offending value is left out, since it may be long or private."""
    first = error.errors(include_url=False, include_input=False)[0]
    message = "unknown field" if first["type"] == "extra_forbidden" else _sentence(first["msg"])
    return dotted(first["loc"]), message


def dotted(loc: Sequence[int | str]) -> str:
    """`("item", "content", 0, "text")` as `item.content.0.text`."""
    return ".".join(str(part) for part in loc)


def _sentence(message: str) -> str:
    message = message.removeprefix("Value error, ")
    return message[:1].lower() + message[1:]
