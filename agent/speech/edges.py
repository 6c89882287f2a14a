"""Clauses that begin or end loud are faded there, so that no joint clicks. Pure.

Our own engines' clauses are silent at both ends already (agent/tts/shaping.py) and pass unchanged.
"""

from __future__ import annotations

import numpy as np

from agent.media.frames import Pcm

__all__ = ["SoftEdges", "soften"]

FADE_MS = 3
"""Shorter is heard as a click; longer takes the attack of a "t"."""

QUIET = 328
"""Of 32768, -40 dBFS: a step of this size at a joint is lost in any voice."""


class SoftEdges:
    """One clause, piece by piece; the last 3 ms (of the first piece 6) are held back until more comes.

    Args:
        rate_hz: of its samples.
    """

    def __init__(self, rate_hz: int) -> None:
        self._fade = rate_hz * FADE_MS // 1000
        self._held = np.zeros(0, np.int16)
        self._risen = False

    def push(self, pcm: Pcm) -> Pcm:
        """int16 [n] in, what is sure of it out."""
        pcm = np.concatenate([self._held, pcm]) if len(self._held) else pcm
        if not self._risen:
            if len(pcm) < 2 * self._fade:
                # Too short to tell where its rise ends and its fall begins.
                self._held = pcm
                return pcm[:0]
            self._risen = True
            pcm = _faded_in(pcm, self._fade)
        self._held = pcm[len(pcm) - self._fade :]
        return pcm[: len(pcm) - self._fade]

    def finish(self) -> Pcm:
        """The end of the clause."""
        held, self._held = self._held, np.zeros(0, np.int16)
        return _faded_out(held if self._risen else _faded_in(held, self._fade), self._fade)


def soften(pcm: Pcm, rate_hz: int) -> Pcm:
    """A whole clause, int16 [n]; itself where both ends are quiet."""
    fade = rate_hz * FADE_MS // 1000
    return _faded_out(_faded_in(pcm, fade), fade)


def _faded_in(pcm: Pcm, samples: int) -> Pcm:
    if not len(pcm) or abs(int(pcm[0])) <= QUIET:
        return pcm
    pcm = pcm.copy()
    head = pcm[:samples]
    head[:] = head * np.linspace(0.0, 1.0, len(head), dtype=np.float32)
    return pcm


def _faded_out(pcm: Pcm, samples: int) -> Pcm:
    if not len(pcm) or abs(int(pcm[-1])) <= QUIET:
        return pcm
    pcm = pcm.copy()
    tail = pcm[-samples:]
    tail[:] = tail * np.linspace(1.0, 0.0, len(tail), dtype=np.float32)
    return pcm
