"""AudioSocket, the protocol of Asterisk's res_audiosocket: one type byte, a 16-bit length, a payload. Pure.

The parser holds at most one message; a length that no message of its type can have is refused before the payload comes.
Audio is little-endian int16 at a rate that the type says: 0x10 to 0x18 for 8, 12, 16, 24, 32, 44.1, 48, 96 and 192 kHz.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent.errors import ProtocolError
from agent.events import CallEvent, OutputCleared, OutputPaused
from agent.media.dtmf import DIGITS
from agent.media.resample import StreamResampler
from signaling.commands import ClientCommand, HangUp, PressKey
from signaling.outbox import BYTES_PER_SAMPLE
from signaling.stream import MAX_AUDIO_MS
from signaling.streaming import Audio

__all__ = [
    "DEFAULT_RATE_HZ",
    "HANGUP",
    "AudioSocketDialect",
    "AudioSocketParser",
    "Frame",
    "call_uuid",
    "frame_bytes",
    "rate_of",
]

HANGUP = 0x00
UUID = 0x01
DTMF = 0x03
ERROR = 0xFF
_RATES_HZ = {0x10: 8000, 0x12: 16_000, 0x13: 24_000, 0x16: 48_000}
"""Those our media path takes."""
_OTHER_RATES = {0x11: "12", 0x14: "32", 0x15: "44.1", 0x17: "96", 0x18: "192"}
_KINDS = {rate: kind for kind, rate in _RATES_HZ.items()}

DEFAULT_RATE_HZ = 8000
"""The rate of the AudioSocket() application."""

HEADER_BYTES = 3
UUID_BYTES = 16
MAX_ERROR_BYTES = 64

CLEAR = "clear"
"""Nothing on the wire: the protocol has no way to call audio back, so only what has not left yet is dropped."""


@dataclass(frozen=True, slots=True)
class Frame:
    """One message."""

    kind: int
    payload: bytes = b""


def frame_bytes(kind: int, payload: bytes = b"") -> bytes:
    """A message as it goes over the wire. The payload has at most 65,535 bytes."""
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload


class AudioSocketParser:
    """Bytes in, messages out."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def __len__(self) -> int:
        """Bytes held of a message that is not complete."""
        return len(self._buffer)

    def feed(self, data: bytes) -> list[Frame]:
        """The messages that `data` completes. Raises ProtocolError naming type or length; nothing is read after it."""
        self._buffer += data
        frames = []
        at = 0
        while len(self._buffer) - at >= HEADER_BYTES:
            kind = self._buffer[at]
            length = int.from_bytes(self._buffer[at + 1 : at + HEADER_BYTES], "big")
            _check(kind, length)
            end = at + HEADER_BYTES + length
            if len(self._buffer) < end:
                break
            frames.append(Frame(kind, bytes(self._buffer[at + HEADER_BYTES : end])))
            at = end
        del self._buffer[:at]
        return frames


def _check(kind: int, length: int) -> None:
    if kind in _RATES_HZ:
        most = _RATES_HZ[kind] * MAX_AUDIO_MS // 1000 * BYTES_PER_SAMPLE
        if length > most:
            raise ProtocolError(
                f"length: expected at most {MAX_AUDIO_MS} ms of audio a message ({most} bytes), got {length}",
                field="length",
                code="audio_too_long",
            )
        if length % BYTES_PER_SAMPLE:
            raise ProtocolError(
                f"length: expected whole 16-bit samples, got {length} bytes", field="length", code="odd_length"
            )
        return
    if kind in _OTHER_RATES:
        raise ProtocolError(
            f"type: audio at {_OTHER_RATES[kind]} kHz is not taken; expected slin, slin16, slin24 or slin48",
            field="type",
            code="unsupported_rate",
        )
    allowed = {HANGUP: range(MAX_ERROR_BYTES), UUID: range(UUID_BYTES, UUID_BYTES + 1), DTMF: range(1, 2)}
    allowed[ERROR] = range(MAX_ERROR_BYTES)
    if kind not in allowed:
        raise ProtocolError(f"type: 0x{kind:02x} is none of AudioSocket", field="type", code="unknown_type")
    if length not in allowed[kind]:
        raise ProtocolError(
            f"length: {length} bytes cannot be the payload of type 0x{kind:02x}", field="length", code="invalid_value"
        )


def call_uuid(frame: Frame) -> uuid.UUID:
    """The call that the first message names. Raises ProtocolError when it is none."""
    if frame.kind != UUID:
        raise ProtocolError("type: expected the UUID (0x01) first", field="type", code="uuid_missing")
    return uuid.UUID(bytes=frame.payload)


def rate_of(frame: Frame) -> int | None:
    """The rate of an audio message in Hz, None for another."""
    return _RATES_HZ.get(frame.kind)


class AudioSocketDialect:
    """Implements Dialect; messages are those of `frame_bytes`, read ones too.

    Args:
        rate_hz: one of 8000, 16000, 24000 and 48000.
    """

    held = False
    unplayed = 0

    def __init__(self, rate_hz: int) -> None:
        self._kind = _KINDS[rate_hz]
        self._rate_hz = rate_hz
        self._silence = frame_bytes(self._kind, bytes(rate_hz // 50 * BYTES_PER_SAMPLE))
        self._resampler: StreamResampler | None = None

    def read(self, message: bytes | str) -> Audio | ClientCommand | None:
        """A whole message. Raises ProtocolError naming the field."""
        assert isinstance(message, bytes)
        kind, payload = message[0], message[HEADER_BYTES:]
        match kind:
            case self._kind:
                return Audio(payload) if payload else None
            case _ if kind in _RATES_HZ:
                return Audio(self._resampled(payload, _RATES_HZ[kind])) if payload else None
            case 0x03:
                digit = payload.decode("latin-1").upper()
                if digit not in DIGITS:
                    raise ProtocolError("payload: expected one of 0-9 * # A-D", field="payload", code="invalid_value")
                return PressKey(digit)
            case 0x01:
                raise ProtocolError("type: the call has its UUID already", field="type", code="invalid_value")
        # A hang-up, or an error: Asterisk's channel is broken and says nothing more.
        return HangUp()

    def _resampled(self, payload: bytes, from_hz: int) -> bytes:
        """The rate was guessed before the caller's channel had any audio, or has changed since."""
        if self._resampler is None or self._resampler.from_hz != from_hz:
            self._resampler = StreamResampler(from_hz, self._rate_hz)
        pcm = self._resampler.push(np.frombuffer(payload, "<i2").astype(np.int16, copy=False))
        return pcm[: self._rate_hz * MAX_AUDIO_MS // 1000].astype("<i2", copy=False).tobytes()

    def speak(self, pcm: bytes) -> Sequence[bytes]:
        return (frame_bytes(self._kind, pcm),)

    def tell(self, event: CallEvent) -> Sequence[str]:
        return (CLEAR,) if isinstance(event, OutputCleared | OutputPaused) else ()

    def fault(self, code: str, message: str) -> Sequence[str]:  # noqa: ARG002  (there is no message for it)
        return ()

    def keep_alive(self) -> Sequence[bytes]:
        """A frame of silence."""
        return (self._silence,)

    def ask_played(self) -> Sequence[bytes]:
        return ()

    def farewell(self) -> Sequence[bytes]:
        """The hang-up goes with each close, however it came."""
        return ()
