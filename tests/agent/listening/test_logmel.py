from __future__ import annotations

import numpy as np
import pytest

from agent.listening import logmel
from agent.listening.logmel import log_mel


def tone(hz: float, seconds: float = 1.0) -> np.ndarray:
    return np.sin(2 * np.pi * hz * np.arange(int(16_000 * seconds)) / 16_000).astype(np.float32)


def test_bands_are_eighty_and_a_frame_is_ten_milliseconds() -> None:
    assert log_mel(tone(440, 8.0)).shape == (80, 800)


def test_a_higher_tone_peaks_in_a_higher_band() -> None:
    peaks = [int(log_mel(tone(hz)).mean(axis=1).argmax()) for hz in (200, 400, 1000, 2000, 4000, 7000)]
    assert peaks == sorted(set(peaks))
    # Slaney's scale is linear below 1 kHz: twice the frequency, twice the band.
    assert peaks[1] == pytest.approx(2 * peaks[0] + 1, abs=1)


def test_values_lie_within_eight_decades_below_the_loudest() -> None:
    noise = np.random.default_rng(1).standard_normal(16_000).astype(np.float32)
    noise[:8000] = 0
    spectrum = log_mel(noise)
    assert spectrum.max() - spectrum.min() <= 2.0 + 1e-5
    assert spectrum[:, :40].max() < spectrum[:, 60:].min()


@pytest.mark.parametrize("samples", [161, 320, 0])
def test_other_lengths_are_refused(samples: int) -> None:
    with pytest.raises(ValueError, match="multiple of 160"):
        log_mel(np.zeros(samples, np.float32))


def test_each_band_is_the_whole_of_its_filter() -> None:
    filters = logmel._filters()
    rebuilt = np.zeros_like(filters)
    for row, (first, weights) in zip(rebuilt, logmel._bands(), strict=True):
        row[first : first + len(weights)] = weights
    assert np.array_equal(rebuilt, filters)
