from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.conversation.said import ECHO_DELAY_S, ECHO_MEMORY_S, MAX_CHARS, Said, _best_match

OPENING = ("We open at nine in the morning,", "and close at half past five.", "Would you like to book a table?")


def spoken(*clauses: str) -> Said:
    said = Said()
    for clause in clauses or OPENING:
        said.says(1, clause)
    said.audible(1)
    return said


@pytest.mark.parametrize(
    "text",
    [
        "we open at nine",
        "open at nine in the mourning",  # a recogniser's mistake
        "at nine in the morning and close",
        "half past fife",
        "would you like to book",
        "morning",
        "nin the morning",  # a first word cut by the detector
    ],
)
def test_our_own_words_are_known_again(text: str) -> None:
    assert spoken().reads_like(text, None)


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "stop",
        "wait a moment",
        "I would like to talk to somebody",
        "when do you close",
        "yes please",
        "",
        "book it",
    ],
)
def test_other_words_are_the_callers(text: str) -> None:
    assert not spoken().reads_like(text, None)


def test_a_word_inside_another_is_no_echo() -> None:
    assert not spoken("You know it now.").reads_like("no", None)
    assert not spoken("It is in the shop.").reads_like("stop", None)


def test_chinese_is_compared_by_character() -> None:
    said = spoken("我们早上九点开门，", "请问要预订吗？")
    assert said.reads_like("早上九点开门", None)
    assert said.reads_like("早上就点开门", None)
    assert not said.reads_like("我要退货", None)


def test_an_echo_that_outlasts_the_reply_holds_its_end() -> None:
    said = spoken("Would you like the red one", "or the blue one over there?")
    said.ended(10.0, in_full=True)
    assert said.reads_like("blue one over there", 10.2)
    assert not said.reads_like("red one", 10.2)
    assert said.reads_like("red one", 9.5)


def test_only_sound_that_began_in_time_can_be_an_echo() -> None:
    said = spoken()
    assert said.could_echo(5.0)
    said.ended(10.0, in_full=True)
    assert said.could_echo(10.0 + ECHO_DELAY_S / 2)
    assert not said.could_echo(10.0 + ECHO_DELAY_S)
    assert not Said().could_echo(0.0)


def test_what_nobody_heard_yet_has_no_echo() -> None:
    said = spoken()
    said.says(2, "Nice to meet you, John.")
    assert not said.reads_like("John", None)
    assert said.reads_like("we open at nine", None)
    said.audible(2)
    assert said.reads_like("John", None)
    assert not said.reads_like("we open at nine", None)


def test_a_reply_that_was_cut_asked_nothing() -> None:
    said = spoken()
    said.ended(10.0, in_full=False)
    assert (said.asked, said.cut) == ("", True)
    said = spoken()
    said.ended(10.0, in_full=True)
    assert said.asked.endswith("Would you like to book a table?")


def test_what_is_kept_is_bounded() -> None:
    said = spoken(*(f"Clause number {number} of a very long story." for number in range(1000)))
    assert sum(map(len, said._clauses)) <= MAX_CHARS
    assert "number 999" in said.so_far


def test_a_line_with_echo_is_remembered_for_a_while() -> None:
    said = Said()
    assert not said.echoes(0.0)
    said.echoed(5.0)
    assert said.echoes(5.0 + ECHO_MEMORY_S / 2)
    assert not said.echoes(5.0 + ECHO_MEMORY_S)


def slow_best_match(pattern: str, text: str, ends_within: int | None) -> int:
    """Sellers' dynamic programme, the definition of what the fast one computes."""
    row = list(range(len(pattern) + 1))
    best = row[-1]
    for index, char in enumerate(text):
        new = [0]
        for at, wanted in enumerate(pattern, 1):
            new.append(min(row[at - 1] + (char != wanted), row[at] + 1, new[at - 1] + 1))
        row = new
        if ends_within is None or index >= len(text) - ends_within:
            best = min(best, row[-1])
    return best


@given(
    st.text("ab c", min_size=1, max_size=12),
    st.text("ab c", max_size=40),
    st.none() | st.integers(min_value=0, max_value=40),
)
def test_the_fast_comparison_equals_the_slow_one(pattern: str, text: str, ends_within: int | None) -> None:
    assert _best_match(pattern, text, ends_within) == slow_best_match(pattern, text, ends_within)
