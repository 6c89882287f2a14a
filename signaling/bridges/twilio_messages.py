"""The messages of Twilio Media Streams, as other vendors speak them too. Pure.

Text only, JSON: connected and start once, then media (base64 of mu-law at 8 kHz), dtmf, mark and stop; back go media,
mark and clear (Twilio, Media Streams: WebSocket messages). Members we have no use for are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from agent.errors import ProtocolError
from agent.events import CallEvent, OutputCleared, OutputPaused
from signaling.bridges.companding import compress, expand
from signaling.bridges.marks import Marks
from signaling.commands import ClientCommand, HangUp, PressKey
from signaling.fields import Digit, json_object, validate
from signaling.outbox import BYTES_PER_SAMPLE
from signaling.stream import MAX_AUDIO_MS
from signaling.streaming import Audio

__all__ = ["RATE_HZ", "Start", "TwilioDialect", "parse_start"]

RATE_HZ = 8000
MAX_AUDIO_BYTES = RATE_HZ * MAX_AUDIO_MS // 1000
MAX_NAME_CHARS = 256
MAX_PARAMETERS = 64

_Name = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME_CHARS)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True, populate_by_name=True)


class _Format(_Part):
    encoding: Literal["audio/x-mulaw"] = "audio/x-mulaw"
    sample_rate: Annotated[Literal[8000], Field(alias="sampleRate")] = 8000
    channels: Literal[1] = 1


class _StartFields(_Part):
    stream: Annotated[_Name, Field(alias="streamSid")]
    call: Annotated[_Name, Field(alias="callSid")] = "-"
    format: Annotated[_Format, Field(alias="mediaFormat")] = _Format()
    parameters: Annotated[dict[str, str], Field(alias="customParameters", max_length=MAX_PARAMETERS)] = {}


class _StartMessage(_Part):
    start: _StartFields


class _Media(_Part):
    payload: str
    track: str = "inbound"


class _MediaMessage(_Part):
    media: _Media


class _Dtmf(_Part):
    digit: Digit


class _DtmfMessage(_Part):
    dtmf: _Dtmf


class _Mark(_Part):
    name: Annotated[str, StringConstraints(max_length=MAX_NAME_CHARS)]


class _MarkMessage(_Part):
    mark: _Mark


@dataclass(frozen=True, slots=True)
class Start:
    """What the start message says."""

    stream: str
    """Goes back with each message."""
    parameters: dict[str, str]
    """The custom parameters of the TwiML."""


def parse_start(message: bytes | str) -> Start | None:
    """The start message; None for `connected`, which comes before it. Raises ProtocolError naming the field."""
    fields = _fields(message)
    match fields.get("event"):
        case "connected":
            return None
        case "start":
            start = validate(_StartMessage, fields, code="invalid_value").start
            return Start(start.stream, start.parameters)
    raise ProtocolError("event: expected connected and then start", field="event", code="unknown_type")


class TwilioDialect:
    """Implements Dialect for the stream that `start` opened."""

    held = False

    def __init__(self, start: Start) -> None:
        self._stream = start.stream
        self._marks = Marks(RATE_HZ)
        self._leaving = False

    @property
    def unplayed(self) -> int:
        """By marks: to the sample once the last one is out, till then what surely was not played."""
        return self._marks.unplayed if self._leaving else self._marks.unheard

    def read(self, message: bytes | str) -> Audio | ClientCommand | None:
        fields = _fields(message)
        match fields.get("event"):
            case "media":
                media = validate(_MediaMessage, fields, code="invalid_value").media
                # Our own voice comes back on streams that carry both tracks.
                return Audio(_audio(media.payload)) if media.track == "inbound" else None
            case "dtmf":
                return PressKey(validate(_DtmfMessage, fields, code="invalid_value").dtmf.digit)
            case "mark":
                self._marks.echoed(validate(_MarkMessage, fields, code="invalid_value").mark.name)
                return None
            case "stop":
                return HangUp()
            case "connected" | "start":
                raise ProtocolError("event: the stream has started already", field="event", code="invalid_value")
        raise ProtocolError("event: expected media, dtmf, mark or stop", field="event", code="unknown_type")

    def speak(self, pcm: bytes) -> Sequence[str]:
        payload = base64.b64encode(compress("ulaw", pcm)).decode()
        media = self._message("media", media={"payload": payload})
        name = self._marks.sent(len(pcm) // BYTES_PER_SAMPLE)
        return (media,) if name is None else (media, self._message("mark", mark={"name": name}))

    def tell(self, event: CallEvent) -> Sequence[str]:
        if isinstance(event, OutputCleared | OutputPaused):
            self._marks.clear()
            return (self._message("clear"),)
        return ()

    def fault(self, code: str, message: str) -> Sequence[str]:  # noqa: ARG002  (there is no message for it)
        return ()

    def keep_alive(self) -> Sequence[bytes | str]:
        return ()

    def ask_played(self) -> Sequence[str]:
        self._leaving = True
        name = self._marks.last()
        return () if name is None else (self._message("mark", mark={"name": name}),)

    def farewell(self) -> Sequence[str]:
        return ()

    def _message(self, event: str, **members: Any) -> str:
        return json.dumps({"event": event, "streamSid": self._stream, **members}, separators=(",", ":"))


def _fields(message: bytes | str) -> dict[str, Any]:
    if isinstance(message, bytes):
        raise ProtocolError("expected text messages, got a binary one", code="unknown_type")
    return json_object(message)


def _audio(payload: str) -> bytes:
    try:
        data = base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError) as exc:
        raise ProtocolError("media.payload: expected base64", field="media.payload", code="invalid_value") from exc
    if len(data) > MAX_AUDIO_BYTES:
        raise ProtocolError(
            f"media.payload: expected at most {MAX_AUDIO_MS} ms a message ({MAX_AUDIO_BYTES} bytes), got {len(data)}",
            field="media.payload",
            code="audio_too_long",
        )
    return expand("ulaw", data)
