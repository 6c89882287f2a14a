"""What is shown while readings change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.asr.agreement import Agreement, shared_words, split_words


def shown(*readings: str) -> str:
    agreement = Agreement()
    for reading in readings:
        agreement.read(reading)
    return agreement.stable


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("  Well,  then. ", ["Well,", "then."]),
        ("广州市", ["广", "州", "市"]),
        ("好，我用 GitHub。", ["好，", "我", "用", "GitHub。"]),
    ],
)
def test_words_are_split_as_the_script_does(text: str, words: list[str]) -> None:
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ("the block", "The block, books", 2),
        ("the block", "the blocks", 1),
        ("", "anything", 0),
        ("希望你", "希望他", 2),
        ("... and", "? and", 0),
    ],
)
def test_shared_words_ignore_case_and_punctuation(one: str, other: str, count: int) -> None:
    assert shared_words(one, other) == shared_words(other, one) == count


def test_nothing_is_shown_after_one_reading() -> None:
    assert shown("Hello there") == ""


def test_what_two_readings_share_is_shown_without_its_last_punctuation() -> None:
    assert shown("Hello the", "Hello there.") == "Hello"
    assert shown("Hello there.", "Hello there. General") == "Hello there"


def test_inner_punctuation_follows_the_newest_reading() -> None:
    assert shown("Well then", "Well, then I", "Well then I go") == "Well then I"


def test_one_dissenting_reading_is_passed_over() -> None:
    agreement = Agreement()
    for reading in ("The Norseman", "The Norseman saw", "A horse man so"):
        agreement.read(reading)
    assert (agreement.stable, agreement.text) == ("The Norseman", "The Norseman saw")
    agreement.read("The Norseman saw it")
    assert (agreement.stable, agreement.text) == ("The Norseman", "The Norseman saw it")


def test_two_dissenting_readings_correct_what_is_shown() -> None:
    assert shown("six", "six six", "Sick spoons", "Sick spoons of") == "Sick spoons"


def test_after_a_final_reading_all_is_shown_and_more_may_follow() -> None:
    agreement = Agreement()
    agreement.settle("Hello there.")
    assert agreement.stable == "Hello there."
    agreement.read("Hello there. And")
    assert agreement.text.startswith(agreement.stable)
    agreement.read("Hello there. And you")
    assert agreement.stable == "Hello there. And"


@given(
    st.lists(st.lists(st.sampled_from(["a", "A", "b,", "b", "c.", "!", "我"]), max_size=5).map(" ".join), max_size=12)
)
def test_stable_always_opens_the_text_and_changes_only_after_two_dissents(readings: list[str]) -> None:
    agreement = Agreement()
    before = ""
    passed_over = False
    for reading in readings:
        agreement.read(reading)
        assert agreement.text.startswith(agreement.stable)
        words = len(split_words(before))
        kept = shared_words(before, agreement.stable) >= words
        assert kept or passed_over
        passed_over = shared_words(before, reading) < words and not passed_over
        before = agreement.stable
