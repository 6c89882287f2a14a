from __future__ import annotations

import pytest

from agent.listening.endpoint import Evidence
from agent.listening.recognised import judge_recogniser


def test_the_recognisers_own_probability_is_taken() -> None:
    assert judge_recogniser(Evidence(text="one", stable="one", end_of_turn=0.7)) == pytest.approx(0.7)


def test_a_text_that_still_changes_is_less_likely_to_be_over() -> None:
    settled = judge_recogniser(Evidence(text="one two", stable="one two", end_of_turn=0.7))
    moving = judge_recogniser(Evidence(text="one two", stable="one", end_of_turn=0.7))
    unknown = judge_recogniser(Evidence(text="one two", stable="one"))
    assert settled is not None
    assert moving is not None
    assert unknown is not None
    assert moving < settled
    assert unknown < 0.5


def test_a_settled_text_of_a_recogniser_without_an_opinion_says_nothing() -> None:
    assert judge_recogniser(Evidence(text="one", stable="one")) is None
    assert judge_recogniser(Evidence()) is None
