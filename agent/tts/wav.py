"""Reads the WAV that speech programs write, whose lengths are often wrong because they wrote to a pipe. Pure."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

from agent.errors import EngineError

__all__ = ["read_wav"]

PCM = 1
HEADER = struct.Struct("<4sI4s")
CHUNK = struct.Struct("<4sI")
FORMAT = struct.Struct("<HHIIHH")
MIN_HZ, MAX_HZ = 4_000, 192_000


def read_wav(data: bytes) -> tuple[npt.NDArray[np.float32], int]:
    """Mono 16-bit PCM WAV to (float32 [n] with full scale 1.0, rate in Hz).

    A data chunk that claims more than there is holds what there is; one that claims nothing holds the rest.
    Raises EngineError for anything else.
    """
    if len(data) < HEADER.size or data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise EngineError("a speech program wrote no WAV file")
    at = HEADER.size
    rate_hz = 0
    while at + CHUNK.size <= len(data):
        name, size = CHUNK.unpack_from(data, at)
        at += CHUNK.size
        if name == b"fmt " and size >= FORMAT.size and at + FORMAT.size <= len(data):
            coding, channels, rate_hz, _, _, bits = FORMAT.unpack_from(data, at)
            if (coding, channels, bits) != (PCM, 1, 16) or not MIN_HZ <= rate_hz <= MAX_HZ:
                raise EngineError(f"a speech program wrote coding {coding}, {channels} channels, {bits} bits")
        elif name == b"data":
            if not rate_hz:
                break
            body = data[at : at + size] if size else data[at:]
            samples = np.frombuffer(body[: len(body) // 2 * 2], "<i2")
            return samples.astype(np.float32) / 32768.0, rate_hz
        at += size + size % 2
    raise EngineError("a speech program wrote a WAV file without format or data")
