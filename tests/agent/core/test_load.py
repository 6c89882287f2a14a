from __future__ import annotations

import math

import pytest

from agent.core.load import LOAD_S, LoadGauge


def test_the_share_follows_what_is_in_use_with_its_time_constant() -> None:
    gauge = LoadGauge(2, 1000.0)
    assert gauge.read(1005.0) == 0.0
    gauge.change(1, 1005.0)
    assert gauge.read(1005.0) == 0.0
    assert gauge.read(1005.0 + LOAD_S) == pytest.approx(0.5 * (1 - math.exp(-1)))
    assert gauge.read(1100.0) == pytest.approx(0.5)
    gauge.change(2, 1100.0)
    assert gauge.read(1200.0) == pytest.approx(1.0)
    gauge.change(0, 1200.0)
    assert gauge.read(1200.0 + LOAD_S) == pytest.approx(math.exp(-1))


def test_a_short_job_weighs_little_and_reading_changes_nothing() -> None:
    gauge = LoadGauge(1, 0.0)
    gauge.change(1, 10.0)
    gauge.change(0, 10.05)
    assert gauge.read(10.05) == pytest.approx(0.05, abs=0.003)
    assert gauge.read(10.05) == gauge.read(10.05)
