from __future__ import annotations

import pytest

from agent.listening.endpoint import Evidence
from agent.listening.expecting import judge_expectation, wanted


def test_a_number_said_in_groups_is_not_over_before_its_last_digit() -> None:
    groups = ["zero seven nine", "zero seven nine, four six one", "zero seven nine, four six one, two two eight five"]
    judged = [judge_expectation(Evidence(text=text, expect="digits", min_digits=10)) for text in groups]
    assert judged[0] is not None
    assert judged[0] == judged[1] < 0.05
    assert judged[2] is not None
    assert judged[2] > 0.9


def test_digits_without_a_number_of_them_are_waited_for_until_a_long_one() -> None:
    few = judge_expectation(Evidence(text="4 2", expect="digits"))
    many = judge_expectation(Evidence(text="4 2 7 1 9 9 8 3", expect="digits"))
    assert few is not None
    assert many is not None
    assert few < 0.3 < many


def test_something_else_than_digits_is_left_to_its_words() -> None:
    assert judge_expectation(Evidence(text="I don't have it.", expect="digits", min_digits=6)) is None


@pytest.mark.parametrize(("text", "language"), [("Yes.", "en"), ("no", "en"), ("好的", "zh"), ("不是", "zh")])
def test_yes_or_no_answers_a_yes_no_question(text: str, language: str) -> None:
    judged = judge_expectation(Evidence(text=text, expect="yes_no", language=language))
    assert judged is not None
    assert judged > 0.9


def test_more_than_yes_is_left_to_its_words() -> None:
    assert judge_expectation(Evidence(text="yes but I also", expect="yes_no")) is None


def test_a_first_name_leaves_room_for_the_family_name() -> None:
    first = judge_expectation(Evidence(text="My name is John.", expect="name"))
    whole = judge_expectation(Evidence(text="My name is John Doe.", expect="name"))
    assert first is not None
    assert whole is not None
    assert first < 0.5 < whole


@pytest.mark.parametrize(
    ("asked", "language", "found"),
    [
        ("I see. Is that correct?", "en", "yes_no"),
        ("It is the blue one, right?", "en", "yes_no"),
        ("What is your order number?", "en", "digits"),
        ("Could you spell that for me?", "en", "spelling"),
        ("What is your name?", "en", "name"),
        ("How can I help you?", "en", "free"),
        ("Is it? Tell me.", "en", "free"),
        ("您的电话号码是多少？", "zh", "digits"),
        ("这样可以吗？", "zh", "yes_no"),
        ("您贵姓？", "zh", "name"),
        ("Ist das so?", "de", "free"),
        ("", "en", "free"),
    ],
)
def test_the_agents_last_question_says_what_is_wanted(asked: str, language: str, found: str) -> None:
    assert wanted(Evidence(asked=asked, language=language)) == found


def test_the_hooks_word_counts_more_than_the_question() -> None:
    assert wanted(Evidence(expect="digits", asked="Is that right?")) == "digits"


def test_nothing_said_and_nothing_expected_say_nothing() -> None:
    assert judge_expectation(Evidence(expect="digits", min_digits=4)) is None
    assert judge_expectation(Evidence(text="Where is my order?")) is None


def test_letters_may_go_on() -> None:
    judged = judge_expectation(Evidence(text="J O H", asked="Could you spell it?"))
    assert judged is not None
    assert judged < 0.3
