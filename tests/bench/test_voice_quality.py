"""The measure of likeness orders what listeners order, and does not mind a delay."""

from __future__ import annotations

import numpy as np
import pytest

from bench.voice_quality import likeness_db

RATE_HZ = 24_000


def voice() -> np.ndarray:
    t = np.arange(3 * RATE_HZ) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * t)) / RATE_HZ
    return (2_000 * sum(np.sin(k * phase) / k for k in range(1, 30))).astype(np.int16)


def noisy(level: float) -> np.ndarray:
    noise = np.random.default_rng(1).normal(0, level, 3 * RATE_HZ)
    return (voice() + noise).astype(np.int16)


def test_it_is_at_its_limit_for_the_same_and_falls_with_noise() -> None:
    values = [likeness_db(voice(), coded, RATE_HZ) for coded in (voice(), noisy(5), noisy(50), noisy(500))]
    assert values[0] == pytest.approx(35)
    assert values == sorted(values, reverse=True)
    assert values[0] - values[-1] > 15


def test_a_delay_changes_nothing() -> None:
    late = np.concatenate((np.zeros(156, np.int16), noisy(50)))
    assert likeness_db(voice(), late, RATE_HZ) == pytest.approx(likeness_db(voice(), noisy(50), RATE_HZ), abs=0.2)
