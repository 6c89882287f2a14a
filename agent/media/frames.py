"""The numbers and types that all audio in Rejoinder shares."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["FRAME_MS", "HEARING_HZ", "HEARING_SAMPLES", "SPEAKING_HZ", "Pcm"]

Pcm = npt.NDArray[np.int16]
"""Mono signed 16-bit samples, shape [n]."""

FRAME_MS = 20
"""One tick of the media clock, and one frame in either direction."""

HEARING_HZ = 16_000
"""Everything that listens works at this rate."""

HEARING_SAMPLES = HEARING_HZ * FRAME_MS // 1000

SPEAKING_HZ = 24_000
"""What a wideband port plays: the rate of the embedded voices, and one Opus encodes directly."""
