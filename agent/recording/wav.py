"""Stereo 16-bit WAV whose header is right after every write, where the file allows that. Pure."""

from __future__ import annotations

import struct

from agent.media.frames import HEARING_HZ, Pcm

__all__ = ["HEADER_BYTES", "Wav", "header"]

FORM = struct.Struct("<4sI4s4sIHHIIHH4sI")
HEADER_BYTES = FORM.size
CHANNELS, BYTES = 2, 2
UNKNOWN = 0xFFFF_FFFF
"""What a length is while it cannot be known; players then read to the end."""


def header(data_bytes: int | None) -> bytes:
    """The 44 bytes before `data_bytes` of samples; None for a length that is not known."""
    size = UNKNOWN if data_bytes is None else data_bytes
    whole = UNKNOWN if data_bytes is None else HEADER_BYTES - 8 + data_bytes
    frame = CHANNELS * BYTES
    return FORM.pack(
        b"RIFF", whole, b"WAVE", b"fmt ", 16, 1, CHANNELS, HEARING_HZ, HEARING_HZ * frame, frame, 8 * BYTES,
        b"data", size,
    )  # fmt: skip


class Wav:
    """The same three steps as OggOpus; `header(written)` belongs at the start of the file after each."""

    def __init__(self) -> None:
        self.written = 0
        """Bytes of samples."""

    def begin(self) -> bytes:
        return header(None)

    def push(self, stereo: Pcm) -> bytes:
        data = stereo.astype("<i2", copy=False).tobytes()
        self.written += len(data)
        return data

    def finish(self) -> bytes:
        return b""
