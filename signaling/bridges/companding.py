"""G.711 to int16 and back, by the codec's tables (agent/media/g711.py). Pure, without state."""

from __future__ import annotations

from typing import Literal

import numpy as np

from agent.media.g711 import alaw_tables, mulaw_tables

__all__ = ["Law", "compress", "expand"]

Law = Literal["ulaw", "alaw"]


def expand(law: Law, data: bytes) -> bytes:
    """n bytes of G.711 to 2 n bytes of little-endian int16."""
    samples = (alaw_tables() if law == "alaw" else mulaw_tables())[1]
    pcm: bytes = samples[np.frombuffer(data, np.uint8)].astype("<i2", copy=False).tobytes()
    return pcm


def compress(law: Law, pcm: bytes) -> bytes:
    """2 n bytes of little-endian int16 to n bytes of G.711."""
    codes = (alaw_tables() if law == "alaw" else mulaw_tables())[0]
    data: bytes = codes[np.frombuffer(pcm, "<u2")].tobytes()
    return data
