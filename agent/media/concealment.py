"""Hiding lost packets of encodings that cannot do it themselves: the last pitch period goes on, then joins what comes.

The idea of ITU-T G.711 appendix I, at 16 kHz and without its delay: the period is found by autocorrelation, its end is
blended into its beginning so that the repetition has no edge, and the first good frame is faded in over the repetition.
Libopus has its own. Pure.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from agent.media.frames import HEARING_HZ, Pcm

__all__ = ["Concealer"]

MIN_LAG = HEARING_HZ // 400
"""Voices end at about 400 Hz."""
MAX_LAG = HEARING_HZ * 15 // 1000
"""And begin at about 66 Hz."""
WINDOW = HEARING_HZ // 100
"""Compared with its earlier self to find the period: 10 ms."""
HISTORY = MAX_LAG + WINDOW + MAX_LAG // 4
JOIN = HEARING_HZ * 4 // 1000
"""Fade from repetition to the next good frame: 4 ms, longer than the delay of the resampler before it."""


class Concealer:
    """Follows a decoded 16 kHz stream and makes up what is missing."""

    def __init__(self) -> None:
        self._past = np.zeros(HISTORY, np.float32)
        self._period: npt.NDArray[np.float32] | None = None
        self._phase = 0

    def heard(self, pcm: Pcm) -> Pcm:
        """A decoded frame, int16 [n]; returned as it is to be played, joined to the extrapolation before it."""
        if self._period is not None:
            count = min(JOIN, len(pcm))
            fade = np.linspace(0.0, 1.0, count, dtype=np.float32)
            pcm = pcm.copy()
            pcm[:count] = pcm[:count] * fade + self._repeat(count) * (1.0 - fade)
            self._period = None
        self._past = np.concatenate((self._past, pcm))[-HISTORY:].astype(np.float32, copy=False)
        return pcm

    def conceal(self, samples: int) -> Pcm:
        """What may have been there, int16 [samples], at the level of what was before."""
        if self._period is None:
            self._period, self._phase = self._find(), 0
        return self._repeat(samples).astype(np.int16)

    def _repeat(self, samples: int) -> npt.NDArray[np.float32]:
        assert self._period is not None
        at = (self._phase + np.arange(samples)) % len(self._period)
        self._phase += samples
        return self._period[at]

    def _find(self) -> npt.NDArray[np.float32]:
        past = self._past
        recent = past[-WINDOW:]
        # Row k is the stretch that ended MAX_LAG - k samples earlier.
        earlier = np.lib.stride_tricks.sliding_window_view(past[-WINDOW - MAX_LAG : -MIN_LAG], WINDOW)
        energy = np.einsum("ij,ij->i", earlier, earlier)
        likeness = (earlier @ recent) / np.sqrt(energy + 1.0)
        lag = MAX_LAG - int(np.argmax(likeness))
        period = past[-lag:].copy()
        blend = lag // 4
        fade = np.linspace(0.0, 1.0, blend, endpoint=False, dtype=np.float32)
        period[-blend:] = period[-blend:] * (1.0 - fade) + past[-lag - blend : -lag] * fade
        return period
