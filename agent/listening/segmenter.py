"""From probabilities of speech to segments of speech: two thresholds and two durations.

Pure: no clock, no I/O. Positions are samples at 16 kHz on the call's audio clock; results may skip audio (the gate was
shut) but never go back.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.config import ListeningSettings
from agent.media.frames import HEARING_HZ

__all__ = ["SegmentEvent", "SegmentLong", "SegmentStarted", "SegmentStopped", "Segmenter"]

SAMPLES_PER_MS = HEARING_HZ // 1000


@dataclass(frozen=True, slots=True)
class SegmentStarted:
    """Speech began at sample `start`; it took until `decided` to be sure."""

    start: int
    decided: int


@dataclass(frozen=True, slots=True)
class SegmentStopped:
    """Speech ended at sample `end`; `speech` samples of the segment were speech."""

    end: int
    speech: int
    decided: int


@dataclass(frozen=True, slots=True)
class SegmentLong:
    """The segment has gone on for `max_segment_s` since its start or the last such event, and goes on."""

    at: int


SegmentEvent = SegmentStarted | SegmentStopped | SegmentLong


class Segmenter:
    """Hysteresis over probabilities.

    A segment opens once windows of at least `start_probability` add up to `start_ms`, none of them below
    `stop_probability` and none further than `start_ms` from the one before; shorter blips leave no trace. It closes
    once nothing has reached `stop_probability` for `stop_ms`.
    """

    def __init__(self, settings: ListeningSettings) -> None:
        self._start_probability = settings.start_probability
        self._stop_probability = min(settings.stop_probability, settings.start_probability)
        self._start_samples = settings.start_ms * SAMPLES_PER_MS
        self._stop_samples = settings.stop_ms * SAMPLES_PER_MS
        self._max_samples = int(settings.max_segment_s * HEARING_HZ)
        self.is_open = False
        self._position = 0
        self._start: int | None = None
        self._last_speech = 0
        self._speech = 0
        self._part_start = 0

    @property
    def position(self) -> int:
        """Where the last result ended."""
        return self._position

    @property
    def start(self) -> int | None:
        """Where the open segment began; None while closed."""
        return self._start if self.is_open else None

    @property
    def last_speech(self) -> int:
        """Where speech last ended, in this segment or the one before."""
        return self._last_speech

    def feed(self, probability: float, start: int, end: int) -> SegmentEvent | None:
        """Take the probability of speech between two positions, in samples.

        Audio before the end of the previous result is not counted twice. A probability that is not a number counts
        as silence.
        """
        if end <= self._position:
            return None
        start = max(start, self._position)
        self._position = end
        if self.is_open:
            return self._feed_open(probability, start, end)
        return self._feed_closed(probability, start, end)

    def _feed_closed(self, probability: float, start: int, end: int) -> SegmentEvent | None:
        if not probability >= self._stop_probability:
            self._start = None
        if not probability >= self._start_probability:
            return None
        if self._start is None or start - self._last_speech > self._start_samples:
            self._start = start
            self._speech = 0
        self._speech += end - start
        self._last_speech = end
        if self._speech < self._start_samples:
            return None
        self.is_open = True
        self._part_start = self._start
        return SegmentStarted(self._start, end)

    def _feed_open(self, probability: float, start: int, end: int) -> SegmentEvent | None:
        if probability >= self._stop_probability:
            self._speech += end - start
            self._last_speech = end
        elif end - self._last_speech >= self._stop_samples:
            self.is_open = False
            self._start = None
            return SegmentStopped(self._last_speech, self._speech, end)
        if end - self._part_start >= self._max_samples:
            self._part_start = end
            return SegmentLong(end)
        return None
