"""The JSON side of the PCM WebSocket: events as messages, client messages as commands. Pure."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from agent.errors import ProtocolError
from agent.events import (
    AgentText,
    CallEnded,
    CallEvent,
    CallFault,
    ClientData,
    DtmfSent,
    MediaResumed,
    MediaStalled,
    OutputCleared,
    OutputPaused,
    ReplyFinished,
    ReplyStarted,
    TransferRequested,
    TurnTimings,
    UserTranscript,
)
from signaling.commands import CancelReply, ClientCommand, HangUp, PressKey, TypeText
from signaling.fields import Digit, TypedText, json_object, validate
from signaling.realtime import Message, appended, timing_fields

__all__ = ["StreamTranslator", "parse_stream_message", "stream_error"]


class StreamTranslator:
    """One call's events as messages. Each partial transcript carries the whole text so far of its contribution."""

    def __init__(self) -> None:
        self._response_id = ""
        self._reply = ""

    def translate(self, event: CallEvent) -> list[Message]:
        """The messages that say `event`; most events say nothing here."""
        match event:
            case UserTranscript():
                return [_transcript("user", event.text, final=event.final)]
            case ReplyStarted(response_id):
                self._response_id, self._reply = response_id, ""
                return []
            case AgentText():
                if event.response_id != self._response_id:
                    self._response_id, self._reply = event.response_id, ""
                self._reply += appended(self._reply, event.text)
                return [_transcript("agent", self._reply, final=False)]
            case ReplyFinished():
                if not event.heard and not event.unheard:
                    return []
                return [_transcript("agent", event.heard, final=True)]
            case OutputPaused() | OutputCleared():
                # What follows a pause is the rest of the reply from here, or another clear: the client does the same.
                return [{"type": "clear"}]
            case DtmfSent(digits):
                return [{"type": "dtmf", "digit": digit} for digit in digits]
            case TurnTimings():
                return [{"type": "timings", **timing_fields(event)}]
            case ClientData(data):
                return [{"type": "data", "data": dict(data)}]
            case TransferRequested(to):
                return [{"type": "transfer", "to": to}]
            case MediaStalled(silence_s):
                return [{"type": "media_stalled", "silence_s": round(silence_s, 1)}]
            case MediaResumed(silence_s):
                return [{"type": "media_resumed", "silence_s": round(silence_s, 1)}]
            case CallFault(part, message):
                return [stream_error(f"{part}_failed", message)]
            case CallEnded(reason):
                return [{"type": "hangup", "reason": reason}]
        return []


def _transcript(role: Literal["user", "agent"], text: str, *, final: bool) -> Message:
    return {"type": "transcript", "role": role, "text": text, "final": final}


def stream_error(code: str, message: str, field: str | None = None) -> Message:
    """An error message. With a close after it the call is over; without one it goes on."""
    return {"type": "error", "code": code, "message": message, "field": field}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    type: str


class _Dtmf(_Strict):
    digit: Digit


class _Text(_Strict):
    text: TypedText


def parse_stream_message(text: str) -> ClientCommand:
    """A client's text message as a command.

    Raises ProtocolError: code `invalid_json`, `unknown_type` or `invalid_value`, naming the field.
    """
    message = json_object(text)
    match message.get("type"):
        case "clear":
            validate(_Strict, message, code="invalid_value")
            return CancelReply()
        case "hangup":
            return HangUp()
        case "dtmf":
            return PressKey(validate(_Dtmf, message, code="invalid_value").digit)
        case "text":
            return TypeText(validate(_Text, message, code="invalid_value").text)
    raise ProtocolError("type: expected clear, dtmf, text or hangup", field="type", code="unknown_type")
