from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.odds import log_odds, probability


@given(st.floats(0.006, 0.994))
def test_log_odds_and_probability_undo_each_other(value: float) -> None:
    assert probability(log_odds(value)) == pytest.approx(value)


def test_certainty_is_held_so_that_other_evidence_can_outvote_it() -> None:
    assert log_odds(1.0) == log_odds(0.995) == -log_odds(0.0)


def test_odds_of_any_size_give_a_probability() -> None:
    assert probability(-1e4) == 0.0
    assert probability(1e4) == 1.0
    assert probability(0.0) == 0.5
