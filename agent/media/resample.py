"""Sample-rate conversion: whole recordings by libsoxr, live streams by a short polyphase filter of our own.

libsoxr's streams hold back 37 ms at 24 to 16 kHz and 115 ms at 8 to 16 kHz (measured, quality HQ), which a caller hears
as a slower answer. `StreamResampler` is a Kaiser-windowed sinc: passband to 0.87 of the lower Nyquist frequency
(7.0 kHz at 16 kHz, 3.5 kHz at 8 kHz) flat within 0.05 dB, stopband from 1.05 of it at -70 dB, delay 1.6 ms at 24 to
16 kHz and 3.1 ms at 8 to 16 kHz. `resample` uses soxr HQ: passband 0.91, stopband below 16-bit noise, no delay.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import soxr

from agent.errors import MediaError
from agent.media.frames import Pcm

__all__ = ["StreamResampler", "resample"]

QUALITY = "HQ"
PASS, STOP = 0.875, 1.05
"""Edges in parts of the lower Nyquist frequency; what aliases between 0.95 and 1 of it is above speech."""
STOPBAND_DB = 70.0
MAX_FACTOR = 1_000
"""Largest numerator of the rates' ratio; the filter has a phase for each."""

FEW_PHASES = 8
"""Up to here one matrix product a phase is faster than gathering every output's taps."""


def resample(pcm: Pcm, from_hz: int, to_hz: int) -> Pcm:
    """A whole recording at another rate: int16 [n] to int16 [n * to_hz / from_hz], without delay."""
    if from_hz == to_hz or not len(pcm):
        return pcm
    out: Pcm = soxr.resample(pcm, from_hz, to_hz, quality=QUALITY)
    return out


@functools.cache
def _phases(from_hz: int, to_hz: int) -> tuple[int, int, npt.NDArray[np.float32], float]:
    """(up, down, taps [up, k], delay in s): row p makes outputs that fall p/up after an input sample, newest last."""
    divisor = math.gcd(from_hz, to_hz)
    up, down = to_hz // divisor, from_hz // divisor
    if up > MAX_FACTOR:
        raise MediaError(f"cannot resample {from_hz} to {to_hz} Hz: their ratio has no small terms")
    rate = from_hz * up
    nyquist = min(from_hz, to_hz) / 2
    width = (STOP - PASS) * nyquist / rate
    # Kaiser's formulas for length and shape.
    half = math.ceil((STOPBAND_DB - 7.95) / (14.36 * width) / 2)
    beta = 0.1102 * (STOPBAND_DB - 8.7)
    at = np.arange(-half, half + 1)
    cutoff = (STOP + PASS) / 2 * nyquist / rate
    taps = 2 * cutoff * np.sinc(2 * cutoff * at) * np.kaiser(2 * half + 1, beta)
    taps *= up / taps.sum()
    taps = np.pad(taps, (0, -len(taps) % up))
    # Each phase alone must pass a constant unchanged, or it would whistle at the phase rate.
    rows = taps.reshape(-1, up).T
    rows = rows / rows.sum(axis=1, keepdims=True)
    return up, down, np.ascontiguousarray(rows[:, ::-1], np.float32), half / rate


class StreamResampler:
    """One continuous stream from one rate to another; state carries over, so pieces join without clicks."""

    def __init__(self, from_hz: int, to_hz: int) -> None:
        self.from_hz = from_hz
        self.to_hz = to_hz
        self._up, self._down, self._taps, delay = _phases(from_hz, to_hz)
        self.delay_s = 0.0 if from_hz == to_hz else delay
        """How much later a sound leaves than it came."""
        self._history = self._taps.shape[1] - 1
        self._buffer = np.zeros(self._history, np.float32)
        self._position = 0

    def push(self, pcm: Pcm, *, last: bool = False) -> Pcm:
        """What is ready after int16 [n] more: n * to / from samples, give or take one. `last` also flushes the tail."""
        if self.from_hz == self.to_hz:
            return pcm
        tail = np.zeros(self._history // 2 if last else 0, np.float32)
        buffer = np.concatenate((self._buffer, pcm.astype(np.float32), tail))
        fresh = len(buffer) - self._history
        if not fresh:
            return np.zeros(0, np.int16)
        # Output m sits at input m * down / up; `_position` is that of the next one, in 1/up of an input sample.
        count = max(0, -(-(fresh * self._up - self._position) // self._down))
        at = self._position + np.arange(count) * self._down
        # As sliding_window_view makes them, which takes longer over it than all the products.
        size = buffer.itemsize
        windows = np.ndarray((fresh, self._history + 1), buffer.dtype, buffer, 0, (size, size))
        if self._up <= FEW_PHASES:
            out = np.empty(count, np.float32)
            for first in range(min(self._up, count)):
                rows = windows[at[first] // self._up :: self._down][: len(range(first, count, self._up))]
                out[first :: self._up] = rows @ self._taps[at[first] % self._up]
        else:
            out = np.einsum("ij,ij->i", windows[at // self._up], self._taps[at % self._up])
        self._position += count * self._down - fresh * self._up
        self._buffer = buffer[fresh:]
        return np.clip(np.rint(out), -32768, 32767).astype(np.int16)

    def clear(self) -> None:
        """Forget the past: a new stream begins."""
        self._buffer = np.zeros(self._history, np.float32)
        self._position = 0
