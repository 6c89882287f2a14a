"""The audio of one segment as a recogniser needs it: it grows, knows where speech ended, and can be cut. Pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["RATE_HZ", "SpeechBuffer"]

RATE_HZ = 16_000
"""Everything that listens works at this rate."""

FRAME_SAMPLES = 320
"""Levels are kept for each 20 ms."""

QUIET_BELOW_SPEECH_DB = 30.0
"""Fainter than the segment's loud frames by this much is a pause. Over the 50 recorded clips, readings that ended
0 to 200 ms after the last frame above it made between 16 and 28 word errors, with no trend."""

SILENCE_DBFS = -60.0
"""Fainter than this is silence whatever the rest of the segment is like: below the noise of any line."""

LOUD_SHARE = 0.1
"""The level that this share of the frames exceeds is the level of the speech; the loudest few are clicks."""

CUT_FRAMES = 10
"""A cut lies in the middle of the quietest 200 ms: shorter dips are inside words."""

_FLOOR = 1e-12
_BINS = 128


class SpeechBuffer:
    """Mono int16 audio at 16 kHz that grows at the end and is consumed at the front.

    Positions are samples since the last cut. Slices stay valid while more is appended.
    """

    def __init__(self) -> None:
        self._pcm = np.empty(4 * RATE_HZ, np.int16)
        self._length = 0
        self._levels = np.empty(256, np.float32)
        self._frames = 0
        # How many frames have each whole level from -127 to 0 dBFS: the loud level without sorting at every push.
        self._histogram = np.zeros(_BINS, np.int64)
        self._loudest = -np.inf
        self._speech = (0, 0)
        self._speech_frames = 0

    def __len__(self) -> int:
        return self._length

    def append(self, pcm: npt.NDArray[np.int16]) -> None:
        """Add int16 [n] at the end; amortised O(n).

        Raises:
            ValueError: `pcm` is not one-dimensional int16.
        """
        if pcm.dtype != np.int16 or pcm.ndim != 1:
            raise ValueError(f"audio must be int16 [n], got {pcm.dtype} {list(pcm.shape)}")
        end = self._length + len(pcm)
        if end > len(self._pcm):
            # A new array, never a resize in place: a worker may still read a slice of the old one.
            grown = np.empty(max(end, 2 * len(self._pcm)), np.int16)
            grown[: self._length] = self._pcm[: self._length]
            self._pcm = grown
        self._pcm[self._length : end] = pcm
        self._length = end
        self._measure()

    def slice(self, end: int) -> npt.NDArray[np.int16]:
        """The first `end` samples, not copied."""
        return self._pcm[: min(end, self._length)]

    def cut(self, at: int) -> None:
        """Drop the first `at` samples."""
        rest = self._pcm[at : self._length].copy()
        self._length = self._frames = self._speech_frames = 0
        self._histogram[:] = 0
        self._loudest = -np.inf
        self._speech = (0, 0)
        self._pcm = np.empty(max(4 * RATE_HZ, 2 * len(rest)), np.int16)
        self.append(rest)

    @property
    def silent(self) -> bool:
        """True when no frame is above silence."""
        return self._loudest <= SILENCE_DBFS

    def speech(self) -> tuple[int, int]:
        """Where the first loud frame begins and the last one ends; (0, 0) when there is none."""
        if self._speech_frames != self._frames:
            louder = np.cumsum(self._histogram[::-1])
            level = -float(np.searchsorted(louder, max(1.0, LOUD_SHARE * self._frames)))
            floor = max(level - QUIET_BELOW_SPEECH_DB, SILENCE_DBFS)
            loud = np.flatnonzero(self._levels[: self._frames] > floor)
            self._speech = (int(loud[0]) * FRAME_SAMPLES, (int(loud[-1]) + 1) * FRAME_SAMPLES) if len(loud) else (0, 0)
            self._speech_frames = self._frames
        return self._speech

    def quietest(self, start: int, end: int) -> int:
        """The middle of the quietest stretch of 200 ms between two positions at least that far apart."""
        first, last = start // FRAME_SAMPLES, min(end // FRAME_SAMPLES, self._frames)
        power = 10.0 ** (self._levels[first:last] / 10.0)
        smooth = np.convolve(power, np.ones(CUT_FRAMES), mode="valid")
        return (first + int(smooth.argmin()) + CUT_FRAMES // 2) * FRAME_SAMPLES

    def _measure(self) -> None:
        frames = self._length // FRAME_SAMPLES
        if frames == self._frames:
            return
        fresh = self._pcm[self._frames * FRAME_SAMPLES : frames * FRAME_SAMPLES].astype(np.float32) / 32768.0
        power = np.square(fresh).reshape(-1, FRAME_SAMPLES).mean(axis=1)
        if frames > len(self._levels):
            grown = np.empty(max(frames, 2 * len(self._levels)), np.float32)
            grown[: self._frames] = self._levels[: self._frames]
            self._levels = grown
        levels = 10.0 * np.log10(power + _FLOOR)
        self._levels[self._frames : frames] = levels
        self._histogram += np.bincount(
            np.clip(np.floor(levels) + _BINS - 1, 0, _BINS - 1).astype(np.int64), minlength=_BINS
        )
        self._loudest = max(self._loudest, float(levels.max()))
        self._frames = frames
