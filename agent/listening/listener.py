"""One call's ear: frames in, "the caller speaks / said this / stopped" out.

Joins the gate, the detector's stream and the segmenter, and keeps the audio that a recogniser must have when speech is
noticed only after it began. What it does not do: decide that a turn is over (that is `endpoint` and the conversation).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agent.config import ListeningSettings
from agent.errors import EngineError, MediaError
from agent.listening.fallback import EnergyVote
from agent.listening.gate import SpeechGate
from agent.listening.level import LevelFloor
from agent.listening.segmenter import SAMPLES_PER_MS, Segmenter, SegmentLong, SegmentStarted
from agent.listening.silero import WINDOW_SAMPLES, VadEngine
from agent.media.frames import FRAME_MS, HEARING_HZ, HEARING_SAMPLES, Pcm

__all__ = ["Heard", "Listener", "VoiceAudio", "VoiceLong", "VoiceStarted", "VoiceStopped"]

DECISION_MS = 1500
"""Oldest start of speech that can still be decided: the detector's bounded lag (640 ms), the replay when the gate
opens (200 ms) and the start duration, with room."""

RETRY_SAMPLES = HEARING_HZ
"""After a failure the detector is tried again once a second, between segments."""


@dataclass(frozen=True, slots=True)
class VoiceStarted:
    """The caller began to speak.

    `pcm`, int16 [n] at 16 kHz, begins `preroll_ms` before the start and reaches to the newest frame. Its first
    `repeated` samples were also part of the segment before: whoever continues that segment's recogniser stream skips
    them, whoever opens a new one keeps them.
    """

    start_ms: int
    pcm: Pcm
    repeated: int = 0


@dataclass(frozen=True, slots=True)
class VoiceAudio:
    """The next frame of an open segment, int16 [320] at 16 kHz: right after what came before, without gap or repeat."""

    pcm: Pcm


@dataclass(frozen=True, slots=True)
class VoiceLong:
    """The segment reached `max_segment_s` (since its start or the last such event) and goes on."""

    at_ms: int


@dataclass(frozen=True, slots=True)
class VoiceStopped:
    """The segment is over: speech ended at `end_ms` on the audio clock, and `speech_ms` of it was speech."""

    end_ms: int
    speech_ms: int


Heard = VoiceStarted | VoiceAudio | VoiceLong | VoiceStopped


class Listener:
    """Listens to one caller. Event loop only.

    Args:
        settings: thresholds and durations.
        vad: the process's detector, running.
        on_heard: called on the event loop, in order; must return at once.
    """

    def __init__(self, settings: ListeningSettings, vad: VadEngine, on_heard: Callable[[Heard], None]) -> None:
        self._on_heard = on_heard
        self._gate = SpeechGate()
        self._segmenter = Segmenter(settings)
        self._stream = vad.open(self._on_probability, self._on_failure)
        self._preroll = settings.preroll_ms * SAMPLES_PER_MS
        self._recent: deque[Pcm] = deque(maxlen=(settings.preroll_ms + settings.start_ms + DECISION_MS) // FRAME_MS)
        self._level = LevelFloor(settings.floor_dbfs)
        self._speech_probability = settings.start_probability
        self._position = 0
        self._given = 0
        self._fallback: EnergyVote | None = None
        self._failed_at = 0
        self._closed = False

    @property
    def audio_ms(self) -> int:
        """How much audio has been fed: the call's audio clock."""
        return self._position // SAMPLES_PER_MS

    @property
    def speaking_ms(self) -> int:
        """How long the caller has been speaking in the open segment, up to the last speech; 0 while none is open."""
        start = self._segmenter.start
        return 0 if start is None else (self._segmenter.last_speech - start) // SAMPLES_PER_MS

    @property
    def degraded(self) -> bool:
        """True while the detector cannot answer and energy alone decides."""
        return self._fallback is not None

    def feed(self, pcm: Pcm) -> None:
        """Take the next 20 ms, int16 [320] at 16 kHz mono; copied. Never blocks.

        Raises:
            MediaError: another shape or type.
        """
        if pcm.dtype != np.int16 or pcm.shape != (HEARING_SAMPLES,):
            raise MediaError(f"expected int16 [{HEARING_SAMPLES}], got {pcm.dtype} {list(pcm.shape)}")
        if self._closed:
            return
        pcm = pcm.copy()
        self._recent.append(pcm)
        self._level.push(pcm)
        self._position += HEARING_SAMPLES
        if self._segmenter.is_open:
            self._given = self._position
            self._on_heard(VoiceAudio(pcm))
        frames = self._gate.push(pcm, hold=self._segmenter.is_open)
        if self._fallback is not None and self._may_retry():
            self._fallback = None
            self._stream.resume(self._position - len(frames) * HEARING_SAMPLES)
        elif self._gate.opened:
            self._stream.resume(self._position - len(frames) * HEARING_SAMPLES)
        if self._fallback is None:
            for frame in frames:
                self._stream.push(frame)
        # Not `else`: a push may just have failed, and this frame must be judged all the same.
        if self._fallback is not None:
            self._vote(self._fallback, pcm)

    def close(self) -> None:
        """Stop listening; nothing is reported after this. Idempotent."""
        self._closed = True
        self._stream.close()
        self._recent.clear()

    def _may_retry(self) -> bool:
        return not self._segmenter.is_open and self._position - self._failed_at >= RETRY_SAMPLES and self._stream.ready

    def _vote(self, fallback: EnergyVote, pcm: Pcm) -> None:
        probability = fallback.push(pcm, voiced=self._gate.voiced)
        self._judge(probability, self._position - HEARING_SAMPLES, self._position)

    def _on_failure(self, error: EngineError) -> None:  # noqa: ARG002  (the engine has logged and counted it)
        self._failed_at = self._position
        # The newest frame is voted on by `feed` when it is the one that failed; its level counts twice at most.
        self._fallback = EnergyVote(self._recent)

    def _on_probability(self, probability: float, end_sample: int) -> None:
        self._judge(probability, end_sample - WINDOW_SAMPLES, end_sample)

    def _judge(self, probability: float, start: int, end: int) -> None:
        behind = (self._position - end) // HEARING_SAMPLES
        if not self._level.reached(behind, speaking=self._segmenter.is_open):
            if probability >= self._speech_probability:
                self._level.missed((end - start) / SAMPLES_PER_MS)
            probability = 0.0
        event = self._segmenter.feed(probability, start, end)
        if event is None or self._closed:
            return
        if isinstance(event, SegmentStarted):
            pcm, first = self._since(event.start - self._preroll)
            repeated = max(0, self._given - first)
            self._given = self._position
            self._on_heard(VoiceStarted(event.start // SAMPLES_PER_MS, pcm, repeated))
        elif isinstance(event, SegmentLong):
            self._on_heard(VoiceLong(event.at // SAMPLES_PER_MS))
        else:
            self._level.stretch_ended(event.speech // SAMPLES_PER_MS)
            self._on_heard(VoiceStopped(event.end // SAMPLES_PER_MS, event.speech // SAMPLES_PER_MS))

    def _since(self, position: int) -> tuple[Pcm, int]:
        """Kept audio from `position` on, or from the oldest kept, and where it begins."""
        oldest = self._position - len(self._recent) * HEARING_SAMPLES
        first = max(position, oldest)
        skip, inside = divmod(first - oldest, HEARING_SAMPLES)
        frames = list(self._recent)[skip:]
        return np.concatenate(frames)[inside:], first
