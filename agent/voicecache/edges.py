"""Silence at the ends of stored speech is cut, so that the first packet of a hit is heard. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from agent.asr.protocol import Word
from agent.media.frames import Pcm
from agent.tts.shaping import AUDIBLE_PEAK, HEAD_MS

__all__ = ["cut_edges"]


def cut_edges(pcm: Pcm, words: Sequence[Word], sample_rate_hz: int, tail_ms: float) -> tuple[Pcm, tuple[Word, ...]]:
    """A copy from 5 ms before the first sample above -50 dBFS to `tail_ms` after the last; words moved along.

    The pause that belongs after a clause is a part of its sound, so the tail is shortened and not removed. Engines of
    Rejoinder come trimmed already and are hardly changed. What an engine hums before and after its speech is faded, so
    that no joint is heard. Silence becomes empty.
    """
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > AUDIBLE_PEAK * 32768)
    if not len(loud):
        return np.zeros(0, np.int16), ()
    start = max(0, int(loud[0]) - sample_rate_hz * HEAD_MS // 1000)
    stop = min(len(pcm), int(loud[-1]) + 1 + round(sample_rate_hz * tail_ms / 1000))
    shift_s, length_s = start / sample_rate_hz, (stop - start) / sample_rate_hz

    def moved(at_s: float) -> float:
        return min(max(at_s - shift_s, 0.0), length_s)

    cut = pcm[start:stop].copy()
    _soften(cut, int(loud[0]) - start, int(loud[-1]) + 1 - start)
    return cut, tuple(Word(w.text, moved(w.start_s), moved(w.end_s)) for w in words)


def _soften(pcm: Pcm, onset: int, end: int) -> None:
    """Fade what lies before `onset` in and what lies behind `end` out, in place; silence stays silence."""
    pcm[:onset] = pcm[:onset] * np.linspace(0.0, 1.0, onset, endpoint=False, dtype=np.float32)
    pcm[end:] = pcm[end:] * np.linspace(1.0, 0.0, len(pcm) - end, dtype=np.float32)
