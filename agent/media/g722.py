"""G.722 at 64 kbit/s through FFmpeg's codec in PyAV: 7 kHz of speech at the cost of a telephone line.

A 20 ms frame takes about 30 us to encode and 16 us to decode (measured, one core). RTP counts its 16 kHz samples at
8 kHz (RFC 3551 section 4.5.2), so 160 bytes are 160 ticks and 320 samples.
"""

from __future__ import annotations

from typing import Literal

import av
import numpy as np

from agent.errors import MediaError
from agent.media.codec import MAX_PACKET_MS, Contents
from agent.media.concealment import Concealer
from agent.media.frames import HEARING_SAMPLES, Pcm

__all__ = ["G722Decoder", "G722Encoder"]

CLOCK_HZ = 8_000
RATE_HZ = 16_000
FRAME = RATE_HZ // 50
MAX_BYTES = CLOCK_HZ * MAX_PACKET_MS // 1000


def _context(mode: Literal["r", "w"]) -> av.AudioCodecContext:
    context = av.CodecContext.create("g722", mode)
    context.sample_rate = RATE_HZ
    context.layout = "mono"
    if mode == "w":
        context.format = av.AudioFormat("s16")
    return context


class G722Encoder:
    """Implements codec.Encoder."""

    clock_hz = CLOCK_HZ
    sample_rate_hz = RATE_HZ
    discontinuous = False
    stateful = True
    key = f"G722/{RATE_HZ}"

    def __init__(self) -> None:
        self._context: av.AudioCodecContext | None = _context("w")

    def encode(self, pcm: Pcm) -> bytes:
        """int16 [320] at 16 kHz to 160 bytes. Raises MediaError on another length."""
        if self._context is None:
            raise MediaError("G.722: the encoder is closed")
        if len(pcm) != FRAME:
            raise MediaError(f"G.722: a frame of {len(pcm)} samples, {FRAME} expected")
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(pcm).reshape(1, -1), format="s16", layout="mono")
        frame.sample_rate = RATE_HZ
        return b"".join(map(bytes, self._context.encode(frame)))

    def allow_dtx(self, allowed: bool) -> None:
        """There is none."""

    def expect_loss(self, percent: int) -> None:
        """There is no FEC."""

    def reset(self) -> None:
        """Forget the past."""
        if self._context is not None:
            self._context = _context("w")

    def close(self) -> None:
        """Free the state. Idempotent."""
        self._context = None


class G722Decoder:
    """Implements codec.Decoder."""

    clock_hz = CLOCK_HZ

    def __init__(self) -> None:
        self._context: av.AudioCodecContext | None = _context("r")
        self._concealer = Concealer()

    def inspect(self, payload: bytes) -> Contents:
        """Every byte is two samples and one tick of the RTP clock."""
        return Contents(len(payload) if len(payload) <= MAX_BYTES else 0)

    def decode(self, payload: bytes) -> Pcm:
        """n bytes to int16 [2 n]. Raises MediaError on an empty, over-long or undecodable payload."""
        if self._context is None:
            raise MediaError("G.722: the decoder is closed")
        if not 0 < len(payload) <= MAX_BYTES:
            raise MediaError(f"G.722: a packet of {len(payload)} bytes, 1 to {MAX_BYTES} expected")
        try:
            frames = self._context.decode(av.Packet(payload))
        except av.FFmpegError as exc:
            raise MediaError(f"G.722: decoding: {type(exc).__name__}") from exc
        pieces = [frame.to_ndarray().reshape(-1) for frame in frames]
        pcm: Pcm = np.concatenate(pieces) if pieces else np.zeros(HEARING_SAMPLES, np.int16)
        return self._concealer.heard(pcm)

    def decode_fec(self, payload: bytes, samples: int) -> Pcm:  # noqa: ARG002
        """Packets carry no copies: concealment."""
        return self.conceal(samples)

    def conceal(self, samples: int) -> Pcm:
        return self._concealer.conceal(samples)

    def close(self) -> None:
        """Free the state. Idempotent."""
        self._context = None
