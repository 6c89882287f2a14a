from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.nlu.phrases import words_of
from agent.nlu.spoken_digits import digit_runs, read_digits, spell


@pytest.mark.parametrize(
    ("said", "digits"),
    [
        ("four two seven one", "4271"),
        ("Four, two, seven, one.", "4271"),
        ("4271", "4271"),
        ("4,271", "4271"),
        ("4 2 7 1", "4271"),
        ("42-71", "4271"),
        ("forty-two seventy-one", "4271"),
        ("forty two, seven one", "4271"),
        ("four thousand two hundred and seventy one", "4271"),
        ("four thousand and five", "4005"),
        ("forty two hundred", "4200"),
        ("my order number is four two seven one, please", "4271"),
        ("uh four, um, two seven one", "4271"),
        ("double nine oh two", "9902"),
        ("nine nine O two", "9902"),
        ("triple five six", "5556"),
        ("oh seven two one", "0721"),
        ("four to seven one", "4271"),
        ("four two seven two, no, four two seven one", "4271"),
        ("four two and then seven one", "4271"),
        ("nought seven zero one", "0701"),
    ],
)
def test_a_four_digit_number_is_read_as_people_say_it(said: str, digits: str) -> None:
    assert read_digits(words_of(said), 4, 4) == digits


@pytest.mark.parametrize(
    ("said", "runs"),
    [
        ("i want one", ["1"]),
        ("i want to go for it", []),
        ("oh dear", []),
        ("double glazing", []),
        ("double five", ["55"]),
        ("nineteen ninety", ["1990"]),
        ("one hundred", ["100"]),
        ("", []),
    ],
)
def test_words_that_only_sound_like_digits_need_digits_beside_them(said: str, runs: list[str]) -> None:
    assert digit_runs(words_of(said)) == runs


@given(st.text("0123456789", min_size=1, max_size=12))
def test_spelling_and_reading_are_inverse(digits: str) -> None:
    assert read_digits(words_of(spell(digits)), len(digits), len(digits)) == digits


@given(st.lists(st.sampled_from("double hundred thousand and oh to ten forty 7 12 one uh x".split()), max_size=12))
def test_any_order_of_number_words_is_read_without_a_fault(words: list[str]) -> None:
    assert all(run.isdigit() for run in digit_runs(words))
