"""G.711, A-law and mu-law, by tables that hold the whole standard (ITU-T G.711, tables 1 and 2).

One byte a sample at 8 kHz, so a 20 ms frame is one table lookup of 160 samples: about 2 us to encode, about 45 us to
decode and bring to 16 kHz. No state between frames but the resampler's.
"""

from __future__ import annotations

import functools
from typing import Literal

import numpy as np
import numpy.typing as npt

from agent.errors import MediaError
from agent.media.codec import MAX_PACKET_MS, Contents
from agent.media.concealment import Concealer
from agent.media.frames import HEARING_HZ, Pcm
from agent.media.resample import StreamResampler

__all__ = ["G711Decoder", "G711Encoder", "Law", "alaw_tables", "mulaw_tables"]

Law = Literal["PCMA", "PCMU"]
RATE_HZ = 8_000
FRAME = RATE_HZ // 50
MAX_BYTES = RATE_HZ * MAX_PACKET_MS // 1000

Bytes = npt.NDArray[np.uint8]


@functools.cache
def mulaw_tables() -> tuple[Bytes, Pcm]:
    """(codes [65536] by 16-bit sample as unsigned, samples [256] by code): the 14-bit law on the upper bits.

    A magnitude plus 33 lies in one of eight segments that double; four bits tell where in it, and all bits are sent
    inverted (table 2).
    """
    samples = np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32)
    # 14 bits in ones' complement, so that both signs meet at zero.
    magnitude = np.minimum(np.where(samples < 0, ~samples, samples) >> 2, 8_158) + 33
    segment = np.floor(np.log2(magnitude)).astype(np.int32) - 5
    step = magnitude >> (segment + 1) & 0x0F
    codes = 0xFF ^ (segment << 4 | step) ^ np.where(samples < 0, 0x80, 0)
    code = np.arange(256) ^ 0xFF
    level = ((2 * (code & 0x0F) + 33) << (code >> 4 & 7)) - 33
    values = np.where(code & 0x80, -level, level) * 4
    return codes.astype(np.uint8), values.astype(np.int16)


@functools.cache
def alaw_tables() -> tuple[Bytes, Pcm]:
    """(codes [65536], samples [256]): the 13-bit law on the upper bits.

    The first two segments share a step, the next ones double; every other bit is sent inverted (table 1).
    """
    samples = np.arange(65_536, dtype=np.uint16).view(np.int16).astype(np.int32)
    magnitude = np.where(samples < 0, ~samples, samples) >> 4
    segment = np.maximum(np.floor(np.log2(np.maximum(magnitude, 1))).astype(np.int32) - 3, 0)
    step = magnitude >> np.maximum(segment - 1, 0) & 0x0F
    codes = (segment << 4 | step | np.where(samples < 0, 0, 0x80)) ^ 0x55
    code = np.arange(256) ^ 0x55
    power, low = code >> 4 & 7, 2 * (code & 0x0F) + 1
    level = np.where(power == 0, low, (low + 32) << np.maximum(power - 1, 0))
    values = np.where(code & 0x80, level, -level) * 8
    return codes.astype(np.uint8), values.astype(np.int16)


def _tables(law: Law) -> tuple[Bytes, Pcm]:
    return alaw_tables() if law == "PCMA" else mulaw_tables()


class G711Encoder:
    """Implements codec.Encoder."""

    clock_hz = RATE_HZ
    sample_rate_hz = RATE_HZ
    discontinuous = False
    stateful = False

    def __init__(self, law: Law) -> None:
        self.key = f"{law}/{RATE_HZ}"
        self._codes = _tables(law)[0]
        self._closed = False

    def encode(self, pcm: Pcm) -> bytes:
        """int16 [160] at 8 kHz to 160 bytes. Raises MediaError on another length."""
        if self._closed:
            raise MediaError("G.711: the encoder is closed")
        if len(pcm) != FRAME:
            raise MediaError(f"G.711: a frame of {len(pcm)} samples, {FRAME} expected")
        return self._codes[pcm.view(np.uint16)].tobytes()

    def allow_dtx(self, allowed: bool) -> None:
        """There is none."""

    def expect_loss(self, percent: int) -> None:
        """There is no FEC."""

    def reset(self) -> None:
        """There is no state."""

    def close(self) -> None:
        """Idempotent."""
        self._closed = True


class G711Decoder:
    """Implements codec.Decoder."""

    clock_hz = RATE_HZ

    def __init__(self, law: Law) -> None:
        self._values = _tables(law)[1]
        self._resampler = StreamResampler(RATE_HZ, HEARING_HZ)
        self._concealer = Concealer()

    def inspect(self, payload: bytes) -> Contents:
        """Every byte is a sample."""
        return Contents(len(payload) if len(payload) <= MAX_BYTES else 0)

    def decode(self, payload: bytes) -> Pcm:
        """n bytes to int16 [2 n]. Raises MediaError on an empty or over-long payload."""
        if not 0 < len(payload) <= MAX_BYTES:
            raise MediaError(f"G.711: a packet of {len(payload)} bytes, 1 to {MAX_BYTES} expected")
        narrow = self._values[np.frombuffer(payload, np.uint8)]
        return self._concealer.heard(self._resampler.push(narrow))

    def decode_fec(self, payload: bytes, samples: int) -> Pcm:  # noqa: ARG002
        """Packets carry no copies: concealment."""
        return self.conceal(samples)

    def conceal(self, samples: int) -> Pcm:
        return self._concealer.conceal(samples)

    def close(self) -> None:
        """Nothing to free."""
