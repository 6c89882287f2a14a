from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from agent.listening.pauses import PauseTracker


def test_nothing_is_typical_before_the_first_pause() -> None:
    assert PauseTracker().typical_ms is None


def test_the_first_pause_is_typical_and_later_ones_move_it() -> None:
    pauses = PauseTracker()
    pauses.turn_went_on(400)
    assert pauses.typical_ms == 400
    pauses.turn_went_on(800)
    assert pauses.typical_ms is not None
    assert 400 < pauses.typical_ms < 800


def test_closures_inside_words_and_nonsense_are_no_pauses() -> None:
    pauses = PauseTracker()
    for nonsense in (0, 100, -5, math.nan):
        pauses.turn_went_on(nonsense)
    assert pauses.typical_ms is None


@given(st.lists(st.floats(-1e6, 1e6), max_size=30))
def test_the_average_stays_within_its_bounds(heard: list[float]) -> None:
    pauses = PauseTracker()
    for pause_ms in heard:
        pauses.turn_went_on(pause_ms)
    assert pauses.typical_ms is None or 149.9 <= pauses.typical_ms <= 2000.1
