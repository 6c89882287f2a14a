"""Estimated frequencies."""

from __future__ import annotations

import pytest

from agent.voicecache.sketch import FrequencySketch
from tests.agent.voicecache.support import key_of


def test_counts_are_never_too_low_before_ageing() -> None:
    sketch = FrequencySketch(256)
    for i in range(100):
        for _ in range(i % 7):
            sketch.add(key_of(str(i)).digest)
    assert all(sketch.estimate(key_of(str(i)).digest) >= i % 7 for i in range(100))
    assert sum(sketch.estimate(key_of(str(i)).digest) == i % 7 for i in range(100)) > 80


def test_what_was_popular_long_ago_fades() -> None:
    sketch = FrequencySketch(1024)
    for _ in range(12):
        sketch.add(key_of("old").digest)
    assert sketch.estimate(key_of("old").digest) == 12
    # A sample is ten requests a column; each halves all counters.
    for i in range(2 * 10 * 1024):
        sketch.add(key_of(f"{i % 5}").digest)
    assert sketch.estimate(key_of("old").digest) <= 6


def test_a_width_that_is_no_power_of_two_is_refused() -> None:
    with pytest.raises(ValueError, match="power of two"):
        FrequencySketch(100)
