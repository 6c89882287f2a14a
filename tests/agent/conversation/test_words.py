from __future__ import annotations

import pytest

from agent.conversation.words import count_words, fold, same_words, words


def test_words_are_counted_in_any_script() -> None:
    assert words("Don't STOP, it's 9 a.m.!") == ["dont", "stop", "its", "9", "a", "m"]
    assert count_words("你好，请等一下") == 6
    assert count_words("我要2个 iPhone") == 5
    assert count_words(" ...!? ") == 0


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("where is my order", "Where is my order?"),
        ("don't", "Don’t!"),
        ("check-in please", "check in, please"),
        ("你好 请问", "你好，请问？"),
        ("Ｈｅｌｌｏ", "hello"),
    ],
)
def test_case_and_punctuation_change_no_meaning(one: str, other: str) -> None:
    assert same_words(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("it is 3.5", "it is 35"),
        ("at 10:30", "at 1030"),
        ("-2 degrees", "2 degrees"),
        ("5%", "5"),
        ("$5", "€5"),
        ("five", "nine"),
        ("yes", "yes please"),
        ("一二", "一三"),
    ],
)
def test_what_changes_a_number_or_a_word_does(one: str, other: str) -> None:
    assert not same_words(one, other)


def test_folding_is_stable() -> None:
    for text in ("Well -- it's -3.5%, OK?", "你好。ABC 好"):
        assert fold(fold(text)) == fold(text)
