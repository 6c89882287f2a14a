"""How many streams an engine carries on this machine: a probe at start, and the arithmetic. Engines run, no I/O.

A recogniser's cost is a whole reading of a clip; a turn of average length is read again every `partial_every_ms`, half
of its final length each time, and no stream takes more than a third of a core (`agent.asr.rereading`). A voice's cost
is its time per second of speech. Callers speak, and are spoken to, about half of the time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agent.asr.protocol import Recognizer
from agent.media.frames import HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.resample import resample
from agent.tts.protocol import Style, Synthesizer, Voice

__all__ = ["Probe", "probe_recognizer", "probe_synthesizer", "recognition_streams", "synthesis_streams"]

PROBE_TEXT = "Thank you for calling. Your order is on its way, and it will be with you on Thursday morning."

FILL_SHARE = 0.65
"""Cores are filled so far: finals and clauses that come at the same moment still find one free."""

SPEAKING_SHARE = 0.5
MAX_STREAM_SHARE = 1 / 3
ROUNDS = 2
"""The best of so many: another program may have had the core in one."""

MIN_STREAMS = 4
"""A probe on a machine that is busy for a moment must not make a core that refuses what it could carry."""

PROBE_S = 5.0


@dataclass(frozen=True, slots=True)
class Probe:
    """What a probe found: seconds of work for so many seconds of audio."""

    took_s: float
    audio_s: float

    @property
    def real_time_factor(self) -> float:
        """Work per second of audio; below 1 is faster than real time."""
        return self.took_s / self.audio_s


def recognition_streams(probe: Probe, *, threads: int, partial_every_ms: int) -> int:
    """Turns that `threads` cores can read at once; at least `MIN_STREAMS`."""
    share = min(MAX_STREAM_SHARE, probe.took_s / 2 / (partial_every_ms / 1000))
    return max(MIN_STREAMS, math.floor(threads * FILL_SHARE / (share * SPEAKING_SHARE)))


def synthesis_streams(probe: Probe, *, threads: int) -> int:
    """Clauses that `threads` cores can speak at once, each as fast as it is heard; at least `MIN_STREAMS`."""
    return max(MIN_STREAMS, math.floor(threads * FILL_SHARE / (probe.real_time_factor * SPEAKING_SHARE)))


async def probe_synthesizer(
    synthesizer: Synthesizer, voice: Voice, *, clock: Callable[[], float] = time.monotonic
) -> tuple[Probe, Pcm]:
    """Speak a sentence, twice; also returns its sound at 16 kHz, for the recogniser's probe. Raises EngineError."""
    best, pcm = math.inf, np.zeros(0, np.int16)
    for _ in range(ROUNDS):
        began = clock()
        pieces = [piece.pcm async for piece in synthesizer.stream(PROBE_TEXT, voice, Style())]
        best = min(best, clock() - began)
        pcm = np.concatenate(pieces)
    rate_hz = synthesizer.info.sample_rate_hz
    return Probe(best, len(pcm) / rate_hz), resample(pcm, rate_hz, HEARING_HZ)


async def probe_recognizer(
    recognizer: Recognizer, language: str, speech: Pcm | None, *, clock: Callable[[], float] = time.monotonic
) -> Probe:
    """Read a clip, twice.

    Args:
        recognizer: of the shard.
        language: of the shard.
        speech: int16 [n] at 16 kHz; None takes noise that comes and goes like syllables, of which fewer words are made.

    Raises EngineError.
    """
    pcm = speech if speech is not None else _babble()
    best = math.inf
    for _ in range(ROUNDS):
        stream = recognizer.stream(language=language)
        try:
            # As one piece: readings in between would be counted too.
            stream.push(pcm[: len(pcm) // HEARING_SAMPLES * HEARING_SAMPLES])
            began = clock()
            await stream.final()
            best = min(best, clock() - began)
        finally:
            stream.close()
    return Probe(best, len(pcm) / HEARING_HZ)


def _babble() -> Pcm:
    rng = np.random.default_rng(0)
    at = np.arange(round(PROBE_S * HEARING_HZ)) / HEARING_HZ
    loudness = np.clip(np.sin(2 * np.pi * 4 * at), 0, 1)
    return np.asarray(rng.normal(0, 3000, len(at)) * loudness, np.int16)
