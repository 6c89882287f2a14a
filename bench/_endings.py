"""What a call knows at each pause of a turn, and when it knew it: the real listener, recogniser and turn model.

Audio is fed as fast as they work, in virtual time: a result comes as much later than its audio as the engine took (CPU
time of its thread, each engine on a thread of its own).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from agent.asr.moonshine import MoonshineModel, MoonshineRecognizer
from agent.asr.protocol import Hypothesis
from agent.asr.reading import Reader, Reading, StopSignal
from agent.asr.rereading import RereadingStream
from agent.config import ListeningSettings
from agent.core.pool import WorkerPool
from agent.listening.endpoint import EndOfTurn, Evidence
from agent.listening.listener import Heard, Listener, VoiceAudio, VoiceStarted, VoiceStopped
from agent.listening.pauses import PauseTracker
from agent.listening.prosody import judge_prosody
from agent.listening.recent import RecentAudio
from agent.listening.silero import VadEngine
from agent.listening.smartturn import WINDOW_SAMPLES, SmartTurn
from agent.media.frames import FRAME_MS, HEARING_SAMPLES, Pcm
from bench._pauses import Before, PausedTurn

__all__ = ["Closing", "Judged", "Outcome", "TimedRecognizer", "Traced", "before", "decide", "is_inner", "trace"]

LONGEST_WAIT_MS = 5000
SLACK_MS = 60
"""A segment may close a detector's window after the pause ended."""
FAINT_MS = 300
"""The detector may miss this much of a soft ending in noise."""
PARTIAL_EVERY_MS = 2000
"""Readings at pauses alone decide; the others would only make the bench slow."""


@dataclass(frozen=True)
class Closing:
    """A segment closed. Times are milliseconds of the turn's audio, engine times included."""

    at_ms: float
    last_speech_ms: float
    speech_ms: int
    final: Hypothesis
    final_at_ms: float
    model: float | None
    model_at_ms: float
    contour: float | None
    resumed_at_ms: float = math.inf
    """When the listener said that speech went on."""
    resumed_from_ms: float = math.inf
    """When that speech began, by the listener."""


@dataclass
class Traced:
    """A turn and its closings."""

    turn: PausedTurn
    closings: list[Closing] = field(default_factory=list)
    engine_ms: float = 0.0
    """What readings and turn model took in all."""


@dataclass(frozen=True)
class Outcome:
    """What an estimator made of a turn."""

    delay_ms: float | None
    """From the last speech to the decision; None when the turn was never decided."""
    judged: tuple[Judged, ...]
    """Each time that a segment closed inside the turn."""

    @property
    def cut_off(self) -> bool:
        return any(pause.cut for pause in self.judged)

    @property
    def talked_over(self) -> bool:
        return any(pause.audible for pause in self.judged)


@dataclass(frozen=True)
class Judged:
    """A pause inside a turn, as it was taken."""

    before: Before
    """What stands before it; a closing that is at no pause of the truth is in mid-sentence."""
    cut: bool
    """It was taken for the turn's end."""
    audible: bool
    """And the caller went on so late that a quick answer had begun."""


class _TimedReader:
    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self.now_ms = 0.0
        self.ready_ms = 0.0
        self.spent_ms = 0.0

    def read(self, pcm: npt.NDArray[np.int16], known: Reading, stop: StopSignal) -> Reading:
        began = time.thread_time()
        reading = self._reader.read(pcm, known, stop)
        took_ms = (time.thread_time() - began) * 1000
        self.spent_ms += took_ms
        self.ready_ms = max(self.ready_ms, self.now_ms) + took_ms
        return reading


class TimedRecognizer(MoonshineRecognizer):
    """A recogniser whose readings say when they were there."""

    def __init__(self, model: MoonshineModel, pool: WorkerPool) -> None:
        super().__init__(model, pool, partial_every_ms=PARTIAL_EVERY_MS)
        self.timed = _TimedReader(model)

    def reader(self, language: str, hints: Sequence[str]) -> Reader:
        self.timed = _TimedReader(super().reader(language, hints))
        return self.timed


async def trace(
    turn: PausedTurn, settings: ListeningSettings, vad: VadEngine, recognizer: TimedRecognizer, model: SmartTurn | None
) -> Traced:
    """Play the turn to the listener, and keep what is known each time that a segment closes."""
    traced = Traced(turn)
    events: list[Heard] = []
    listener = Listener(settings, vad, events.append)
    sound = RecentAudio(WINDOW_SAMPLES)
    stream: RereadingStream | None = None
    for at in range(0, len(turn.pcm) - HEARING_SAMPLES + 1, HEARING_SAMPLES):
        listener.feed(turn.pcm[at : at + HEARING_SAMPLES])
        now_ms = listener.audio_ms
        recognizer.timed.now_ms = now_ms
        for event in events:
            if isinstance(event, VoiceStarted):
                fresh = event.pcm[event.repeated if stream is not None else 0 :]
                stream = stream or recognizer.stream(language=turn.utterance.language)
                recognizer.timed.now_ms = now_ms
                if traced.closings:
                    traced.closings[-1] = replace(
                        traced.closings[-1], resumed_at_ms=now_ms, resumed_from_ms=event.start_ms
                    )
                stream.push(fresh)
                sound.push(fresh)
            elif isinstance(event, VoiceAudio) and stream is not None:
                stream.push(event.pcm)
                sound.push(event.pcm)
            elif isinstance(event, VoiceStopped) and stream is not None:
                traced.closings.append(await _close(event, now_ms, stream, recognizer.timed, sound.since(0), model))
                traced.engine_ms += traced.closings[-1].model_at_ms - now_ms
        events.clear()
        if stream is not None:
            await stream.settled()
    listener.close()
    if stream is not None:
        stream.close()
        traced.engine_ms += recognizer.timed.spent_ms
    return traced


async def _close(
    event: VoiceStopped, now_ms: float, stream: RereadingStream, timed: _TimedReader, pcm: Pcm, model: SmartTurn | None
) -> Closing:
    final = await stream.final()
    began = time.thread_time()
    probability = model.probability(pcm) if model is not None else None
    took_ms = (time.thread_time() - began) * 1000
    ready_ms = max(now_ms, timed.ready_ms)
    return Closing(
        now_ms, event.end_ms, event.speech_ms, final, ready_ms, probability, now_ms + took_ms, judge_prosody(pcm)
    )


def decide(
    traced: Traced, endpoint: EndOfTurn, look: Callable[[Closing, bool], Evidence], *, audible_after_ms: float
) -> Outcome:
    """What the turn machine does with an estimator: it looks each tick, once a segment is closed and read.

    Args:
        look: the evidence of a closing; its second argument says whether the turn model has answered.
        audible_after_ms: from a decision to the first sound of a quick answer.
    """
    pauses = PauseTracker()
    delay_ms: float | None = None
    judged: list[Judged] = []
    for closing in traced.closings:
        decided_ms = _decided_ms(closing, endpoint, look, pauses.typical_ms)
        if is_inner(traced.turn, closing):
            cut = decided_ms is not None
            audible = decided_ms is not None and closing.resumed_at_ms > decided_ms + audible_after_ms
            judged.append(Judged(before(traced.turn, closing), cut, audible))
            pauses.turn_went_on(closing.resumed_from_ms - closing.last_speech_ms)
        elif decided_ms is not None and delay_ms is None:
            delay_ms = decided_ms - traced.turn.end_ms
    return Outcome(delay_ms, tuple(judged))


def is_inner(turn: PausedTurn, closing: Closing) -> bool:
    """Whether speech of the turn was still to come when the segment closed, more than a faint last sound."""
    went_on = closing.resumed_from_ms < turn.end_ms or turn.end_ms - closing.last_speech_ms > FAINT_MS
    return closing.at_ms < turn.end_ms and went_on


def before(turn: PausedTurn, closing: Closing) -> Before:
    """What stands before the pause in which the segment closed."""
    return next((p.before for p in turn.pauses if p.start_ms <= closing.at_ms <= p.end_ms + SLACK_MS), "part")


def _decided_ms(
    closing: Closing, endpoint: EndOfTurn, look: Callable[[Closing, bool], Evidence], typical_ms: float | None
) -> float | None:
    at_ms = math.ceil(max(closing.at_ms, closing.final_at_ms) / FRAME_MS) * FRAME_MS
    end_ms = min(closing.resumed_at_ms, closing.last_speech_ms + LONGEST_WAIT_MS)
    if not closing.final.text:
        return None
    known = {
        answered: endpoint.judge(replace(look(closing, answered), pause_ms=typical_ms)) for answered in (False, True)
    }
    while at_ms < end_ms:
        if at_ms - closing.last_speech_ms >= known[at_ms >= closing.model_at_ms].wait_ms:
            return at_ms
        at_ms += FRAME_MS
    return None
