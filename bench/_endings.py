"""What a call knows at each pause of a turn, and when it knew it: the real listener, recogniser and turn model.

Audio is fed as fast as they work, in virtual time: an engine's result comes as much later than its audio as the engine
took (CPU time of its thread).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy.typing as npt

from agent.asr.protocol import Hypothesis, Recognizer
from agent.asr.reading import Reader, Reading, StopSignal
from agent.asr.rereading import RereadingRecognizer, RereadingStream
from agent.config import ListeningSettings
from agent.ear import Ear
from agent.listening.listener import Heard, Listener, VoiceAudio, VoiceStarted, VoiceStopped
from agent.listening.recent import RecentAudio
from agent.listening.silero import VadEngine
from agent.listening.smartturn import WINDOW_SAMPLES, SmartTurn
from agent.media.frames import FRAME_MS, HEARING_HZ, HEARING_SAMPLES, Pcm
from bench._pauses import PausedTurn

__all__ = ["Closing", "Traced", "trace"]

PREROLL = HEARING_HZ * 3 // 10


@dataclass(frozen=True)
class Closing:
    """A segment closed. Times are milliseconds of the turn's audio, engine times included."""

    at_ms: float
    last_speech_ms: float
    speech_ms: int
    final: Hypothesis
    final_at_ms: float
    model: float
    model_took_ms: float
    audio: Pcm
    resumed_at_ms: float = float("inf")
    """When the listener said that speech went on."""
    resumed_from_ms: float = float("inf")
    """When that speech began, by the listener."""


@dataclass
class Traced:
    turn: PausedTurn
    closings: list[Closing] = field(default_factory=list)
    readings: int = 0
    reading_ms: float = 0.0


class _Timed:
    """Notes when a reading was there, in virtual time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.now_ms = 0.0
        self.ready_ms = 0.0
        self.count = 0
        self.spent_ms = 0.0

    def read(self, pcm: npt.NDArray, known: Reading, stop: StopSignal) -> Reading:
        began = time.thread_time()
        reading = self._reader.read(pcm, known, stop)
        took = (time.thread_time() - began) * 1000
        self.count += 1
        self.spent_ms += took
        self.ready_ms = max(self.ready_ms, self.now_ms) + took
        return reading


class _TimedRecognizer:
    def __init__(self, recognizer: RereadingRecognizer) -> None:
        self._recognizer = recognizer
        self.info = recognizer.info
        self.timed: _Timed

    def stream(self, *, language: str, hints=()) -> RereadingStream:
        self.timed = _Timed(self._recognizer.reader(language, hints))
        return RereadingStream(self.timed, self._recognizer._pool, partial_every_ms=2000)


async def trace(turn, settings, vad, recognizer, model) -> Traced:
    traced = Traced(turn)
    timed = _TimedRecognizer(recognizer)
    ear = Ear(timed, turn.clip.language)
    events: list[Heard] = []
    listener = Listener(settings, vad, events.append)
    recent = RecentAudio(WINDOW_SAMPLES)
    began = None
    for at in range(0, len(turn.pcm) - HEARING_SAMPLES + 1, HEARING_SAMPLES):
        frame = turn.pcm[at : at + HEARING_SAMPLES]
        recent.push(frame)
        listener.feed(frame)
        now = listener.audio_ms
        for event in events:
            if isinstance(event, VoiceStarted):
                if began is None:
                    began = event.start_ms * 16 - PREROLL
                elif traced.closings:
                    traced.closings[-1] = replace(traced.closings[-1], resumed_at_ms=now, resumed_from_ms=event.start_ms)
                ear.begin(event.pcm, event.repeated)
            elif isinstance(event, VoiceAudio):
                ear.push(event.pcm)
            elif isinstance(event, VoiceStopped):
                timed.timed.now_ms = now
                final = await ear.final()
                audio = recent.since(began)
                t = time.thread_time()
                p = model.probability(audio)
                took = (time.thread_time() - t) * 1000
                traced.closings.append(Closing(now, event.end_ms, event.speech_ms, final, max(now, timed.timed.ready_ms), p, took, audio))
        events.clear()
        if ear.open:
            timed.timed.now_ms = now
            await ear._stream.settled()
    if ear.open:
        traced.readings = timed.timed.count
        traced.reading_ms = timed.timed.spent_ms
    listener.close()
    ear.reset()
    return traced
