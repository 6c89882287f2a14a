"""From an engine's raw wave to a piece of speech: trimmed, levelled, int16, its words timed. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.asr.protocol import Word
from agent.media.frames import SPEAKING_HZ, Pcm
from agent.tts.plain import word_spans
from agent.tts.protocol import Speech

__all__ = ["SHAPING_VERSION", "Trimmed", "audible", "proportional_words", "shape", "tail_ms", "trim"]

SHAPING_VERSION = "1"
"""Part of every engine's version, because cached speech went through here."""

Wave = npt.NDArray[np.float32]

ONSET_LEVEL = 10 ** (-54 / 20)
"""Peak in a 2 ms window at which speech begins. Engines are silent below -90 dBFS; a soft "h" starts near -56."""

HEAD_MS = 5
"""Silence kept before the onset, faded in, so that no consonant is clipped and no click is made."""

WINDOW_MS = 2
MAX_PEAK = 0.95

TAIL_SENTENCE_MS = 220
TAIL_CLAUSE_MS = 120
TAIL_OPEN_MS = 40
"""Pauses after a full stop, a comma, and a cut without a mark; what a listener expects at rate 1."""

_SENTENCE_MARKS = ".!?…。！？"
_CLAUSE_MARKS = ",;:—–、，；："
_CLOSERS = "\"'”’)]}»」』）】》"

AUDIBLE_PEAK = 10 ** (-50 / 20)


@dataclass(frozen=True, slots=True)
class Trimmed:
    """`wave` starts `offset` samples into the original; `speech` samples of it are before the tail."""

    wave: Wave
    offset: int
    speech: int


def tail_ms(text: str, rate: float = 1.0) -> float:
    """The pause that belongs after this text, by its last mark."""
    last = text.rstrip().rstrip(_CLOSERS)[-1:]
    if last and last in _SENTENCE_MARKS:
        pause = TAIL_SENTENCE_MS
    elif last and last in _CLAUSE_MARKS:
        pause = TAIL_CLAUSE_MS
    else:
        pause = TAIL_OPEN_MS
    return pause / rate


def audible(pcm: Pcm) -> bool:
    """True if the piece (int16 [n]) has a sample above -50 dBFS."""
    return bool(len(pcm)) and int(np.abs(pcm.astype(np.int32)).max()) > AUDIBLE_PEAK * 32768


def trim(wave: Wave, sample_rate_hz: int, tail: float) -> Trimmed:
    """Cut silence at both ends to 5 ms before and `tail` ms after. A silent wave becomes empty.

    Args:
        wave: float32 [n], full scale 1.0.
        tail: silence after the last audible window, in ms; made up with zeros where the wave is shorter.
    """
    window = max(1, sample_rate_hz * WINDOW_MS // 1000)
    count = len(wave) // window
    loud = np.flatnonzero(np.abs(wave[: count * window].reshape(count, window)).max(axis=1) > ONSET_LEVEL)
    if not len(loud):
        return Trimmed(np.zeros(0, np.float32), 0, 0)
    head = sample_rate_hz * HEAD_MS // 1000
    start = max(0, int(loud[0]) * window - head)
    stop = min(len(wave), (int(loud[-1]) + 1) * window)
    keep = int(sample_rate_hz * tail / 1000)
    out = np.zeros(stop - start + keep, np.float32)
    real = wave[start : min(len(wave), stop + keep)]
    out[: len(real)] = real
    fade = min(head, len(out))
    out[:fade] *= np.linspace(0.0, 1.0, fade, dtype=np.float32)
    rest = min(len(out), sample_rate_hz * HEAD_MS // 1000, keep)
    if rest:
        out[-rest:] *= np.linspace(1.0, 0.0, rest, dtype=np.float32)
    return Trimmed(out, start, stop - start)


def proportional_words(text: str, start_s: float, end_s: float) -> list[Word]:
    """Word times by letters, for an engine that tells none."""
    words = [text[a:b] for a, b in word_spans(text)]
    weights = [1.0 + sum(c.isalnum() for c in word) for word in words]
    total = sum(weights)
    out: list[Word] = []
    at = start_s
    for word, weight in zip(words, weights, strict=True):
        length = (end_s - start_s) * weight / total
        out.append(Word(word, at, at + length))
        at += length
    return out


def shape(
    wave: Wave, text: str, words: Sequence[Word] | None, *, gain: float, rate: float, began_s: float
) -> Speech | None:
    """One piece of speech from a raw wave at 24 kHz; None if there is no sound in it.

    Args:
        wave: float32 [n] as the engine made it, full scale 1.0.
        text: what it says.
        words: times in the raw wave; None spreads them by letters.
        gain: factor that brings this engine to the common level.
        rate: speaking rate; shortens the pause.
        began_s: length of the stream's audio before this piece.
    """
    cut = trim(wave * np.float32(gain), SPEAKING_HZ, tail_ms(text, rate))
    if not len(cut.wave):
        return None
    peak = float(np.abs(cut.wave).max())
    if peak > MAX_PEAK:
        cut.wave[:] *= np.float32(MAX_PEAK / peak)
    pcm = np.round(cut.wave * 32767.0).astype(np.int16)
    length_s = cut.speech / SPEAKING_HZ
    if words is None:
        words = proportional_words(text, HEAD_MS / 1000, length_s)
    else:
        shift = cut.offset / SPEAKING_HZ
        words = [
            Word(w.text, min(max(w.start_s - shift, 0.0), length_s), min(max(w.end_s - shift, 0.0), length_s))
            for w in words
        ]
    return Speech(pcm, tuple(Word(w.text, began_s + w.start_s, began_s + w.end_s) for w in words))
