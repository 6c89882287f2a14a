"""What a client may ask for on the data channel: OpenAI Realtime client events as typed commands. Pure.

Members that Rejoinder has no use for are ignored, so that stock clients work; what it uses is checked to the letter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from agent.errors import ProtocolError
from signaling.fields import Digit, LanguageTag, TypedText, VoiceName, json_object, validate

__all__ = [
    "CancelReply",
    "ClientCommand",
    "ClientError",
    "HangUp",
    "PressKey",
    "Respond",
    "TypeText",
    "UpdateSession",
    "parse_client_message",
]

MAX_CLIENT_MESSAGE_CHARS = 32 * 1024
"""A typed turn is at most 4,000 characters; stock clients' session.update is a few thousand."""

MAX_EVENT_ID_CHARS = 512


@dataclass(frozen=True, slots=True)
class UpdateSession:
    """session.update"""

    voice: str | None = None
    language: str | None = None
    silence_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CancelReply:
    """response.cancel or output_audio_buffer.clear"""


@dataclass(frozen=True, slots=True)
class Respond:
    """response.create"""


@dataclass(frozen=True, slots=True)
class TypeText:
    """conversation.item.create"""

    text: str


@dataclass(frozen=True, slots=True)
class PressKey:
    """rejoinder.dtmf"""

    digit: str


@dataclass(frozen=True, slots=True)
class HangUp:
    """rejoinder.hangup"""


@dataclass(frozen=True, slots=True)
class ClientError:
    """The message is wrong: what to tell the client. `param` is the field at fault as a dotted path."""

    code: str
    message: str
    param: str | None = None


ClientCommand = UpdateSession | CancelReply | Respond | TypeText | PressKey | HangUp


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _TurnDetection(_Lenient):
    silence_duration_ms: Annotated[int, Field(ge=100, le=5000)] | None = None


class _SessionBody(_Lenient):
    voice: VoiceName | None = None
    language: LanguageTag | None = None
    turn_detection: _TurnDetection | None = None


class _SessionUpdate(_Lenient):
    session: _SessionBody


class _InputText(_Lenient):
    type: Literal["input_text"]
    text: TypedText


class _Item(_Lenient):
    type: Literal["message"]
    role: Literal["user"]
    content: Annotated[list[_InputText], Field(min_length=1, max_length=8)]


class _ItemCreate(_Lenient):
    item: _Item


class _Dtmf(_Lenient):
    digit: Digit


def parse_client_message(text: str) -> tuple[ClientCommand | ClientError, str | None]:
    """One message of the client: its command, or what is wrong with it; and the client's `event_id`, if it gave one."""
    if len(text) > MAX_CLIENT_MESSAGE_CHARS:
        return ClientError("message_too_long", f"a message may have {MAX_CLIENT_MESSAGE_CHARS} characters"), None
    event_id: str | None = None
    try:
        message = json_object(text)
        given = message.get("event_id")
        if isinstance(given, str) and len(given) <= MAX_EVENT_ID_CHARS and given.isprintable():
            event_id = given
        return _command(message), event_id
    except ProtocolError as error:
        return ClientError(error.code, str(error), error.field), event_id


def _command(message: dict[str, Any]) -> ClientCommand:
    match message.get("type"):
        case "session.update":
            session = validate(_SessionUpdate, message, code="invalid_value").session
            silence_ms = session.turn_detection.silence_duration_ms if session.turn_detection is not None else None
            return UpdateSession(session.voice, session.language, silence_ms)
        case "response.cancel" | "output_audio_buffer.clear":
            return CancelReply()
        case "response.create":
            return Respond()
        case "conversation.item.create":
            item = validate(_ItemCreate, message, code="invalid_value").item
            return TypeText(" ".join(part.text for part in item.content))
        case "rejoinder.dtmf":
            return PressKey(validate(_Dtmf, message, code="invalid_value").digit)
        case "rejoinder.hangup":
            return HangUp()
        case str():
            raise ProtocolError("type: there is no such client event", field="type", code="unknown_event")
    raise ProtocolError("type: expected the name of a client event", field="type", code="missing_type")
