"""The messages of Asterisk's WebSocket channel (chan_websocket; Asterisk 20.16, 21.11, 22.6 and 23 on). Pure.

Binary messages are audio as the channel has it. Text messages are one word and `name:value` pairs, or JSON where
`control_message_format` or the dial string says so; what comes first decides what goes back. Asterisk keeps the time:
it plays what it has, drops it on FLUSH_MEDIA, and says MEDIA_XOFF when it has too much.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agent.errors import ProtocolError
from agent.events import CallEvent, OutputCleared, OutputPaused
from agent.media.dtmf import DIGITS
from signaling.bridges.companding import Law, compress, expand
from signaling.commands import ClientCommand, PressKey
from signaling.fields import json_object
from signaling.outbox import BYTES_PER_SAMPLE
from signaling.stream import MAX_AUDIO_MS, checked_audio
from signaling.streaming import Audio

__all__ = ["FORMATS", "AsteriskDialect", "MediaFormat", "MediaStart", "parse_media_start"]

MAX_TEXT_CHARS = 16 * 1024
"""MEDIA_START in JSON carries the channel's variables."""


@dataclass(frozen=True, slots=True)
class MediaFormat:
    """One of Asterisk's formats that our media path takes."""

    rate_hz: int
    law: Law | None = None
    """None is little-endian int16."""


FORMATS = {
    "ulaw": MediaFormat(8000, "ulaw"),
    "alaw": MediaFormat(8000, "alaw"),
    "slin": MediaFormat(8000),
    "slin16": MediaFormat(16_000),
    "slin24": MediaFormat(24_000),
    "slin48": MediaFormat(48_000),
}


@dataclass(frozen=True, slots=True)
class MediaStart:
    """The first message."""

    format: MediaFormat
    channel: str
    """Asterisk's own id of the channel, for the log."""
    as_json: bool


def parse_media_start(message: bytes | str) -> MediaStart:
    """Raises ProtocolError naming the field: no MEDIA_START, or a format that is not taken."""
    event, fields = _event(message)
    if event != "MEDIA_START":
        raise ProtocolError("event: expected MEDIA_START first", field="event", code="start_missing")
    name = fields.get("format")
    if not isinstance(name, str) or name not in FORMATS:
        raise ProtocolError(
            f"format: expected {', '.join(FORMATS)}; set it in the dial string, such as c(slin16)",
            field="format",
            code="unsupported_format",
        )
    channel = fields.get("channel_id") or fields.get("channel")
    assert isinstance(message, str)
    return MediaStart(FORMATS[name], str(channel)[:128], message.startswith("{"))


class AsteriskDialect:
    """Implements Dialect for the channel that `start` opened."""

    def __init__(self, start: MediaStart) -> None:
        self._format = start.format
        self._as_json = start.as_json
        self._asked = False
        self._drained = False
        self._sent = 0
        self.held = False
        """Asterisk's queue is full."""

    @property
    def unplayed(self) -> int:
        """Known at the end only, when it was asked: how much it was is not told, just whether there is any."""
        return int(self._asked and not self._drained)

    def answer(self) -> str:
        """The command that answers the channel, where the dial string left that to us (option n)."""
        return self._command("ANSWER")

    def read(self, message: bytes | str) -> Audio | ClientCommand | None:
        """Audio and keys; what Asterisk may say in a later version is not for us."""
        if isinstance(message, bytes):
            return Audio(self._pcm(message))
        event, fields = _event(message)
        match event:
            case "MEDIA_START":
                raise ProtocolError("event: the media has started already", field="event", code="invalid_value")
            case "MEDIA_XOFF":
                self.held = True
            case "MEDIA_XON":
                self.held = False
            case "QUEUE_DRAINED":
                self._drained = True
            case "DTMF_END":
                digit = fields.get("digit")
                if not isinstance(digit, str) or len(digit) != 1 or digit.upper() not in DIGITS:
                    raise ProtocolError("digit: expected one of 0-9 * # A-D", field="digit", code="invalid_value")
                return PressKey(digit.upper())
        return None

    def _pcm(self, data: bytes) -> bytes:
        if self._format.law is None:
            return checked_audio(data, self._format.rate_hz)
        if len(data) > self._format.rate_hz * MAX_AUDIO_MS // 1000:
            raise ProtocolError(
                f"audio: expected at most {MAX_AUDIO_MS} ms a message, got {len(data)} bytes",
                field="audio",
                code="audio_too_long",
            )
        return expand(self._format.law, data)

    def speak(self, pcm: bytes) -> Sequence[bytes]:
        """A frame of 20 ms is what Asterisk wants whole (its optimal_frame_size)."""
        self._sent += len(pcm) // BYTES_PER_SAMPLE
        return (pcm if self._format.law is None else compress(self._format.law, pcm),)

    def tell(self, event: CallEvent) -> Sequence[str]:
        if isinstance(event, OutputCleared | OutputPaused):
            # It resets XOFF as well, but for a queue that was full no MEDIA_XON follows.
            self.held = False
            return (self._command("FLUSH_MEDIA"),)
        return ()

    def fault(self, code: str, message: str) -> Sequence[str]:  # noqa: ARG002  (there is no message for it)
        return ()

    def keep_alive(self) -> Sequence[bytes | str]:
        return ()

    def ask_played(self) -> Sequence[str]:
        """QUEUE_DRAINED comes back at once when nothing is queued."""
        if not self._sent:
            return ()
        self._asked = True
        return (self._command("REPORT_QUEUE_DRAINED"),)

    def farewell(self) -> Sequence[str]:
        return (self._command("HANGUP"),)

    def _command(self, command: str) -> str:
        return json.dumps({"command": command}) if self._as_json else command


def _event(message: bytes | str) -> tuple[str, dict[str, Any]]:
    """(word, its values). Raises ProtocolError when it is neither of both shapes."""
    if isinstance(message, bytes):
        raise ProtocolError("event: expected a text message", field="event", code="start_missing")
    if len(message) > MAX_TEXT_CHARS:
        raise ProtocolError(f"event: expected at most {MAX_TEXT_CHARS} characters", field="event", code="invalid_value")
    if message.startswith("{"):
        fields = json_object(message)
        event = fields.get("event")
        if not isinstance(event, str):
            raise ProtocolError("event: expected a string", field="event", code="invalid_value")
        return event, fields
    event, *pairs = message.split() or [""]
    return event, {name: value for name, _, value in (pair.partition(":") for pair in pairs)}
