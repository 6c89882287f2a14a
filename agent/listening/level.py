"""Loud enough to be the caller? A television in the room, or the next desk, is speech too, but far fainter than they.

Pure. What counts is the difference from the caller's own voice, as far as that was heard: microphones and lines differ
by more than a whisper does from a shout, so one level for all would make soft callers mute.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

import numpy as np

from agent.media.frames import FRAME_MS, HEARING_SAMPLES, Pcm

__all__ = ["LevelFloor"]

LEVEL_FRAMES = 8
"""Levels are those of 160 ms: about a syllable, so that the quiet end of a word is not cut."""

CLICK_FRAMES = 2
"""So many of a level's loudest frames teach nothing: a click is shorter than 20 ms and lies in one of them, or two."""

KEPT_FRAMES = 1000 // FRAME_MS
"""A level, the detector's bounded lag (640 ms) and what the gate replays (200 ms)."""

BELOW_CALLER_DB = 22.0
"""A person's own words differ by 10 to 15 dB; a voice from across the room is 25 and more below."""

RISES, FALLS = 0.6, 0.15
"""How much of the way the caller's level goes to that of a louder or a softer stretch of speech: whoever spoke first
may have been the television."""

SPEECH_MS = 300
"""Shorter stretches (a cough, a click) teach nothing."""

EASES_DB_PER_S = 0.25
"""How far the caller's level falls a second of speech below the floor. Whoever shouted first, or has put the telephone
on the table, is heard again after a few sentences; a television has to talk as long for each dB it is fainter."""

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
        powers = sorted(self._powers[index] for index in range(max(0, last - LEVEL_FRAMES), last))
        if not powers:
            return False
        if speaking:
            self._loudest_dbfs = max(self._loudest_dbfs, _dbfs(powers[:-CLICK_FRAMES]))
        return _dbfs(powers) >= self.floor_dbfs

    def missed(self, speech_ms: float) -> None:
        """So much speech did not reach the floor: the floor gives way, slowly."""
        if self._caller_dbfs is not None:
            self._caller_dbfs -= EASES_DB_PER_S * speech_ms / 1000

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


def _dbfs(powers: Sequence[float]) -> float:
    """The level of mean powers of int16 samples; -120 for none."""
    return 10 * math.log10(max(1e-3, sum(powers) / max(1, len(powers)))) - FULL_SCALE_DB
