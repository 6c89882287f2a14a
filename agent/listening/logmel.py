"""Log-mel spectra as Whisper computes them, in numpy: what sound models built on its encoder read. Pure.

Source: Radford et al., "Robust Speech Recognition via Large-Scale Weak Supervision" (2022), section 2.2; mel scale of
Slaney, Auditory Toolbox (1998), as librosa's default.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

from agent.media.frames import HEARING_HZ

__all__ = ["HOP_SAMPLES", "log_mel"]

Float32 = npt.NDArray[np.float32]

FFT_SAMPLES = 400
"""25 ms at 16 kHz."""

HOP_SAMPLES = 160
"""10 ms."""

BANDS = 80

RANGE_DECADES = 8.0
"""Anything fainter than the loudest point by more than this is clamped."""


def log_mel(samples: Float32) -> Float32:
    """Samples float32 [n] at 16 kHz to bands float32 [80, n // 160].

    Raises:
        ValueError: n is no multiple of 160, or shorter than a window.
    """
    if samples.ndim != 1 or len(samples) % HOP_SAMPLES or len(samples) < FFT_SAMPLES:
        raise ValueError(f"expected [n], n a multiple of {HOP_SAMPLES}, at least 480; got {list(samples.shape)}")
    padded = np.pad(samples, FFT_SAMPLES // 2, mode="reflect")
    # The last window of the centred transform is dropped, as in the original.
    frames = np.lib.stride_tricks.sliding_window_view(padded, FFT_SAMPLES)[:-1:HOP_SAMPLES]
    spectrum = np.fft.rfft(frames * _window(), axis=1)
    power = np.ascontiguousarray((spectrum.real**2 + spectrum.imag**2).T, dtype=np.float32)
    # Band by band, not as one product of matrices: numpy's BLAS gives that to threads, which spin on for 50 ms.
    bands = np.empty((BANDS, power.shape[1]), np.float32)
    for band, (first, weights) in zip(bands, _bands(), strict=True):
        np.einsum("f,ft->t", weights, power[first : first + len(weights)], out=band)
    logs = np.log10(np.maximum(bands, 1e-10))
    logs = np.maximum(logs, logs.max() - RANGE_DECADES)
    return np.ascontiguousarray((logs + 4.0) / 4.0, dtype=np.float32)


@cache
def _window() -> Float32:
    """The periodic Hann window."""
    return (0.5 - 0.5 * np.cos(2 * np.pi * np.arange(FFT_SAMPLES) / FFT_SAMPLES)).astype(np.float32)


@cache
def _bands() -> tuple[tuple[int, Float32], ...]:
    """What is not zero of each filter, and the bin where it begins."""
    found = [(int(np.flatnonzero(row)[0]), row[row > 0]) for row in _filters()]
    return tuple(found)


@cache
def _filters() -> Float32:
    """Triangles float32 [80, 201], each of the same area."""
    edges = _mel_to_hz(np.linspace(0.0, _hz_to_mel(HEARING_HZ / 2), BANDS + 2))
    bins = np.fft.rfftfreq(FFT_SAMPLES, 1 / HEARING_HZ)
    rise = (bins - edges[:-2, None]) / np.diff(edges)[:-1, None]
    fall = (edges[2:, None] - bins) / np.diff(edges)[1:, None]
    triangles = np.maximum(0.0, np.minimum(rise, fall))
    return (triangles * (2.0 / (edges[2:] - edges[:-2]))[:, None]).astype(np.float32)


# Linear up to 1 kHz, logarithmic above.
_LINEAR_HZ = 200.0 / 3
_LOG_FROM_HZ = 1000.0
_LOG_FROM_MEL = _LOG_FROM_HZ / _LINEAR_HZ
_LOG_STEP = np.log(6.4) / 27.0


def _hz_to_mel(hz: float) -> float:
    """For frequencies in the logarithmic part."""
    return float(_LOG_FROM_MEL + np.log(hz / _LOG_FROM_HZ) / _LOG_STEP)


def _mel_to_hz(mels: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    above = _LOG_FROM_HZ * np.exp(_LOG_STEP * (np.maximum(mels, _LOG_FROM_MEL) - _LOG_FROM_MEL))
    return np.where(mels < _LOG_FROM_MEL, mels * _LINEAR_HZ, above)
