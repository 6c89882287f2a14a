"""Where two stretches of sound meet: a step of the signal is heard as a click, so none is left. Pure.

Speech of our engines begins and ends in silence and is not touched. What is cut off, by a failing engine or in a
recording of somebody's own, is led to zero.
"""

from __future__ import annotations

import numpy as np

from agent.media.frames import Pcm

__all__ = ["FADE_MS", "QUIET_PEAK", "begun_softly", "led_to_zero", "softened"]

FADE_MS = 5
"""Shorter is heard as a click of its own, longer takes a consonant away."""

QUIET_PEAK = 64
"""Of 32768 (-54 dBFS): a step of this height is inaudible beside speech."""


def begun_softly(pcm: Pcm, sample_rate_hz: int) -> Pcm:
    """int16 [n], faded in over 5 ms if it begins with a step; else the same array."""
    if not len(pcm) or abs(int(pcm[0])) <= QUIET_PEAK:
        return pcm
    count = min(len(pcm), sample_rate_hz * FADE_MS // 1000)
    out = pcm.copy()
    out[:count] = pcm[:count] * np.linspace(0.0, 1.0, count, endpoint=False, dtype=np.float32)
    return out


def led_to_zero(last: Pcm, sample_rate_hz: int) -> Pcm:
    """What takes the place of the last samples of a stretch, int16 [n], so that it ends at zero: its last 5 ms faded.

    A single sample is led down from where it stands. Empty where there is no step.
    """
    if not len(last) or abs(int(last[-1])) <= QUIET_PEAK:
        return last[:0]
    count = sample_rate_hz * FADE_MS // 1000
    tail = last[-count:] if len(last) > 1 else np.repeat(last, count)
    return np.asarray(tail * np.linspace(1.0, 0.0, len(tail), dtype=np.float32), np.int16)


def softened(pcm: Pcm, sample_rate_hz: int) -> Pcm:
    """A whole stretch, int16 [n], that neither begins nor ends with a step; the same array where it does neither."""
    out = begun_softly(pcm, sample_rate_hz)
    rest = led_to_zero(out, sample_rate_hz)
    return np.concatenate([out[: len(out) - len(rest)], rest]) if len(rest) else out
