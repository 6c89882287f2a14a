"""What a telephone system may tell about a call, by allow-list, as parts of the hook's `Session`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict

from agent.errors import ProtocolError
from agent.nlu.hook import Session
from signaling.calls import new_call_id
from signaling.fields import Caller, LanguageTag, validate

__all__ = ["Told", "take_parameters", "telephone_session"]

MAX_VALUE_CHARS = 256


@dataclass(frozen=True, slots=True)
class Told:
    """The parts of a session that the other side knows."""

    caller: str | None = None
    language: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class _Known(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    caller: Caller | None = None
    language: LanguageTag | None = None


def take_parameters(values: Mapping[str, str], allowed: Collection[str], where: str) -> Told:
    """`caller` and `language` are the session's own fields, what `allowed` names is its metadata, the rest is dropped.

    Args:
        where: path of the values in their message, for errors.

    Raises ProtocolError, code `invalid_value`, naming the field.
    """
    try:
        known = validate(_Known, {key: values[key] for key in ("caller", "language") if values.get(key)})
    except ProtocolError as exc:
        raise ProtocolError(f"{where}.{exc}", field=f"{where}.{exc.field}", code="invalid_value") from exc
    metadata = {name: values[name] for name in allowed if name in values}
    for name, value in metadata.items():
        if len(value) > MAX_VALUE_CHARS or not value.isprintable():
            raise ProtocolError(
                f"{where}.{name}: expected at most {MAX_VALUE_CHARS} printable characters",
                field=f"{where}.{name}",
                code="invalid_value",
            )
    return Told(known.caller, known.language, metadata)


def telephone_session(told: Told, language: str) -> Session:
    """The session of a new call by telephone. `language`: where none was told."""
    return Session(
        id=new_call_id(),
        channel="sip",
        language=told.language or language,
        caller=told.caller,
        metadata=told.metadata,
    )
