"""Silence at the ends of stored speech is cut, so that the first packet of a hit is heard. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent.asr.protocol import Word
from agent.media.frames import Pcm
from agent.speech.edges import soften
from agent.tts.shaping import AUDIBLE_PEAK, HEAD_MS

__all__ = ["cut_edges"]


def cut_edges(pcm: Pcm, words: Sequence[Word], sample_rate_hz: int, tail_ms: float) -> tuple[Pcm, tuple[Word, ...]]:
    """A copy from 5 ms before the first sample above -50 dBFS to `tail_ms` after the last; words moved along.

    The pause that belongs after a clause is a part of its sound, so the tail is shortened and not removed. Engines of
    Rejoinder come trimmed already and are hardly changed. Silence becomes empty.
    """
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > AUDIBLE_PEAK * 32768)
    if not len(loud):
        return np.zeros(0, np.int16), ()
    start = max(0, int(loud[0]) - sample_rate_hz * HEAD_MS // 1000)
    stop = min(len(pcm), int(loud[-1]) + 1 + round(sample_rate_hz * tail_ms / 1000))
    shift_s, length_s = start / sample_rate_hz, (stop - start) / sample_rate_hz

    def moved(at_s: float) -> float:
        return min(max(at_s - shift_s, 0.0), length_s)

    cut = soften(pcm[start:stop], sample_rate_hz).copy()
    return cut, tuple(Word(w.text, moved(w.start_s), moved(w.end_s)) for w in words)
