"""The actions a hook may yield, as data: one table for checking instances, reading JSON, and describing tools.

Every way into Rejoinder that can name an action (a Python hook, an HTTP reply, a model's tool call, a rules file) goes
through this table, so an action means the same and is refused with the same words everywhere.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from agent.errors import HookError
from agent.nlu.hook import (
    Action,
    Dtmf,
    Expect,
    Hangup,
    Listen,
    Play,
    Private,
    Send,
    SwitchLanguage,
    SwitchVoice,
    Transfer,
    Uninterruptible,
)

__all__ = ["ACTION_NAMES", "action_from_json", "check_item", "explain", "tool_descriptions"]

MAX_SEND_BYTES = 56 * 1024
"""Largest `Send` payload as JSON: with what goes around it, a data-channel message that every browser takes."""

_Name = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
_Tag = Annotated[str, StringConstraints(max_length=35, pattern=r"^[A-Za-z]{2,8}(-[A-Za-z0-9]{1,8})*$")]
_Digits = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=r"^[0-9*#A-D]+$")]


class _Wire(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Transfer(_Wire):
    to: _Name


class _Hangup(_Wire):
    after_playout: bool = True


class _Dtmf(_Wire):
    digits: _Digits


class _SwitchLanguage(_Wire):
    tag: _Tag


class _SwitchVoice(_Wire):
    voice: _Name
    style: Annotated[str, StringConstraints(max_length=256)] | None = None


class _Play(_Wire):
    clip: _Name


class _Send(_Wire):
    data: dict[str, Any]


class _Listen(_Wire):
    expect: Expect = "free"
    min_digits: int | None = Field(None, ge=1, le=32)
    dtmf_barge_in: bool = True
    max_digits: int | None = Field(None, ge=1, le=32)
    digit_gap_s: float | None = Field(None, ge=0.3, le=30)


class _Bare(_Wire):
    """An action without fields."""


@dataclass(frozen=True, slots=True)
class _Spec:
    action: Callable[..., Action]
    wire: type[_Wire]


_SPECS: dict[str, _Spec] = {
    "transfer": _Spec(Transfer, _Transfer),
    "hangup": _Spec(Hangup, _Hangup),
    "dtmf": _Spec(Dtmf, _Dtmf),
    "switch_language": _Spec(SwitchLanguage, _SwitchLanguage),
    "switch_voice": _Spec(SwitchVoice, _SwitchVoice),
    "play": _Spec(Play, _Play),
    "send": _Spec(Send, _Send),
    "listen": _Spec(Listen, _Listen),
    "uninterruptible": _Spec(Uninterruptible, _Bare),
    "private": _Spec(Private, _Bare),
}
_BY_TYPE: dict[Any, str] = {spec.action: name for name, spec in _SPECS.items()}

ACTION_NAMES: tuple[str, ...] = tuple(_SPECS)
"""Every action's name on the wire."""

_EXPECTED = "expected str or an action (" + ", ".join(spec.action.__name__ for spec in _SPECS.values()) + ")"


def explain(exc: ValidationError, where: str = "") -> str:
    """Say what is wrong as `path: reason; path: reason`, without the values (they may be a caller's words)."""
    parts = []
    for error in exc.errors(include_url=False, include_input=False, include_context=False):
        path = ".".join([where, *(str(part) for part in error["loc"])] if where else [str(p) for p in error["loc"]])
        what = {"extra_forbidden": "unknown field", "missing": "required field is missing"}.get(
            error["type"], error["msg"]
        )
        parts.append(f"{path}: {what}" if path else what)
    return "; ".join(parts)


def action_from_json(value: object, where: str, *, strict: bool = True) -> Action:
    """Read `{"action": "transfer", "to": "sales"}`.

    Args:
        value: the decoded JSON.
        where: its place in the message, for errors.
        strict: refuse `"true"` for true; off for files whose scalars are all strings.

    Raises:
        HookError: it is not an object, the name is unknown, or a field is missing, unknown or of the wrong type.
    """
    if not isinstance(value, Mapping):
        raise HookError(f"{where}: expected an object with an `action` field, got {type(value).__name__}")
    name = value.get("action")
    if not isinstance(name, str) or name not in _SPECS:
        raise HookError(f"{where}.action: expected one of {', '.join(ACTION_NAMES)}")
    return _build(name, {key: field for key, field in value.items() if key != "action"}, where, strict)


def check_item(item: object) -> str | Action:
    """Check one thing a hook yielded.

    Lone surrogates are replaced, since nothing downstream can encode them; `Send` payloads are copied, so that a hook
    cannot change one that is already on its way.

    Raises:
        HookError: naming what was yielded, or the field that is wrong, and what was expected.
    """
    if isinstance(item, str):
        return str.encode(item, "utf-16", "surrogatepass").decode("utf-16", "replace")
    name = _BY_TYPE.get(type(item))
    if name is None:
        raise HookError(f"the hook yielded {_describe(item)}; {_EXPECTED}")
    fields = {key: getattr(item, key) for key in _SPECS[name].wire.model_fields}
    if name == "send" and isinstance(fields["data"], Mapping):
        fields["data"] = dict(fields["data"])
    return _build(name, fields, type(item).__name__, strict=True)


def tool_descriptions(leave_out: Iterable[str] = ()) -> list[dict[str, Any]]:
    """One OpenAI function tool for each action."""
    skip = frozenset(leave_out)
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": inspect.getdoc(spec.action) or name,
                "parameters": _parameters(spec.wire),
            },
        }
        for name, spec in _SPECS.items()
        if name not in skip
    ]


def _parameters(wire: type[_Wire]) -> dict[str, Any]:
    schema = wire.model_json_schema()
    schema.pop("title", None)
    for prop in schema.get("properties", {}).values():
        prop.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def _build(name: str, fields: dict[str, Any], where: str, strict: bool) -> Action:
    spec = _SPECS[name]
    try:
        wire = spec.wire.model_validate(fields, strict=strict)
    except ValidationError as exc:
        raise HookError(explain(exc, where)) from None
    if isinstance(wire, _Send):
        return Send(_snapshot(wire.data, f"{where}.data"))
    return spec.action(**{key: getattr(wire, key) for key in spec.wire.model_fields})


def _snapshot(data: dict[str, Any], where: str) -> dict[str, Any]:
    try:
        encoded = json.dumps(data, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as exc:
        raise HookError(f"{where}: expected JSON values only ({exc})") from None
    if len(encoded) > MAX_SEND_BYTES:
        raise HookError(f"{where}: {len(encoded)} bytes of JSON, expected at most {MAX_SEND_BYTES}")
    copy: dict[str, Any] = json.loads(encoded)
    return copy


def _describe(item: object) -> str:
    if item is None:
        return "None (to stay silent, yield nothing)"
    if isinstance(item, type):
        return f"the class {item.__name__} (an instance is meant: {item.__name__}(...))"
    if isinstance(item, bytes | bytearray):
        return "bytes (decode them first)"
    if isinstance(item, list | tuple):
        return f"a {type(item).__name__} (yield its items one by one)"
    if inspect.isawaitable(item):
        if inspect.iscoroutine(item):
            item.close()
        return "an awaitable (await it first)"
    return f"a {type(item).__name__}"
