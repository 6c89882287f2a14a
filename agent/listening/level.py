"""Loud enough to be the caller? A television in the room, or the next desk, is speech too, but far fainter than they.

Pure. What counts is the difference from the caller's own voice, as far as that was heard: microphones and lines differ
by more than a whisper does from a shout, so one level for all would make soft callers mute.
"""

from __future__ import annotations

import math
from collections import deque

import numpy as np

from agent.media.frames import HEARING_SAMPLES, Pcm

__all__ = ["LevelFloor"]

LEVEL_FRAMES = 8
"""Levels are those of 160 ms: about a syllable, so that the quiet end of a word is not cut."""

KEPT_FRAMES = 128
"""The detector lags behind the audio, by 640 ms at most."""

BELOW_CALLER_DB = 22.0
"""A person's own words differ by 10 to 15 dB; a voice from across the room is 25 and more below."""

RISES, FALLS = 0.6, 0.15
"""How much of the way the caller's level goes to that of a louder or a softer stretch of speech: whoever spoke first
may have been the television."""

SPEECH_MS = 300
"""Shorter stretches (a cough, a click) teach nothing."""

FULL_SCALE_DB = 20 * math.log10(32_768)
SILENT_DBFS = -120.0


class LevelFloor:
    """The level below which speech is not the caller's.

    Args:
        lowest_dbfs: the floor while the caller's level is not known, and at least afterwards.
    """

    def __init__(self, lowest_dbfs: float) -> None:
        self._lowest_dbfs = lowest_dbfs
        self._powers: deque[float] = deque(maxlen=KEPT_FRAMES)
        self._caller_dbfs: float | None = None
        self._loudest_dbfs = SILENT_DBFS

    @property
    def floor_dbfs(self) -> float:
        """Where the floor is now."""
        if self._caller_dbfs is None:
            return self._lowest_dbfs
        return max(self._lowest_dbfs, self._caller_dbfs - BELOW_CALLER_DB)

    def push(self, pcm: Pcm) -> None:
        """The next frame, int16 [320] at 16 kHz."""
        samples = pcm.astype(np.float32)
        self._powers.append(float(samples @ samples) / HEARING_SAMPLES)

    def reached(self, behind: int, *, speaking: bool) -> bool:
        """Whether the sound that ended `behind` frames ago reaches the floor.

        Args:
            behind: 0 for the newest frame.
            speaking: the sound is inside a stretch of speech, and belongs to its level.
        """
        last = max(0, len(self._powers) - behind)
        powers = [self._powers[index] for index in range(max(0, last - LEVEL_FRAMES), last)]
        if not powers:
            return False
        level_dbfs = 10 * math.log10(max(1e-3, sum(powers) / len(powers))) - FULL_SCALE_DB
        if speaking:
            self._loudest_dbfs = max(self._loudest_dbfs, level_dbfs)
        return level_dbfs >= self.floor_dbfs

    def stretch_ended(self, speech_ms: int) -> None:
        """A stretch of speech that reached the floor is over: the caller's level is nearer to its loudest part."""
        loudest, self._loudest_dbfs = self._loudest_dbfs, SILENT_DBFS
        if speech_ms < SPEECH_MS or loudest == SILENT_DBFS:
            return
        known = self._caller_dbfs
        if known is None:
            self._caller_dbfs = loudest
        else:
            self._caller_dbfs = known + (RISES if loudest > known else FALLS) * (loudest - known)
