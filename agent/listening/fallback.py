"""Speech by webrtcvad and energy alone, for as long as the neural detector cannot answer.

Cruder than the detector (it hears a slammed door as speech for a moment) and far better than a deaf agent.
Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np

from agent.media.frames import FRAME_MS, Pcm

__all__ = ["EnergyVote"]

ABOVE_FLOOR_DB = 9.0
"""Speech stands out of the room by at least this much on any line a caller would keep using."""

FLOOR_MIN_DB = -70.0
"""Digital silence must not make every click that follows stand out."""

FLOOR_RISE_DB = 3.0 * FRAME_MS / 1000
"""The floor rises this much a frame (3 dB a second): over noise that stays, not over a sentence."""

VOTES = 5
"""Frames that vote (100 ms): bridges the closures inside words."""


class EnergyVote:
    """A probability of speech from the last 100 ms: the share of frames that are voiced and above the noise floor.

    Args:
        history: frames heard before, int16 [320] each, from which the noise floor is learned.
    """

    def __init__(self, history: Iterable[Pcm] = ()) -> None:
        self._floor: float | None = None
        self._votes: deque[bool] = deque([False] * VOTES, maxlen=VOTES)
        for pcm in history:
            self._above(pcm)

    def push(self, pcm: Pcm, *, voiced: bool) -> float:
        """Take one frame, int16 [320], and webrtcvad's verdict on it; returns 0 to 1."""
        self._votes.append(self._above(pcm) and voiced)
        return sum(self._votes) / VOTES

    def _above(self, pcm: Pcm) -> bool:
        samples = pcm.astype(np.float32)
        power = float(np.dot(samples, samples)) / (len(samples) * 32768.0**2)
        level = max(10.0 * float(np.log10(power + 1e-12)), FLOOR_MIN_DB)
        if self._floor is None:
            self._floor = level
        self._floor = min(level, self._floor + FLOOR_RISE_DB)
        return level > self._floor + ABOVE_FLOOR_DB
