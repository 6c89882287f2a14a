"""Which text never leaves memory."""

from __future__ import annotations

import pytest

from agent.voicecache.names import names_in
from agent.voicecache.privacy import Privacy

PUBLIC = ["One moment, please.", "Of course, I can help you with that.", "Is there anything else?", "I'm on it."]
FIGURES = ["Your code is 4711.", "It costs twenty dollars.", "Press one, one, two.", "Room 5."]
NAMES = ["Thank you, Anna.", "Mr. Kowalski called.", "Is that Dr. Singh?", "Anna, one moment."]


@pytest.mark.parametrize("text", PUBLIC)
def test_common_sentences_may_be_kept(text: str) -> None:
    assert not Privacy("names").private(text, "en-US")


@pytest.mark.parametrize("text", FIGURES)
def test_figures_are_private_unless_nothing_is(text: str) -> None:
    assert Privacy("names").private(text, "en")
    assert Privacy("digits").private(text, "en")
    assert not Privacy("none").private(text, "en")


@pytest.mark.parametrize("text", NAMES)
def test_names_are_private_by_the_policy_for_names_only(text: str) -> None:
    assert Privacy("names").private(text, "en")
    assert not Privacy("digits").private(text, "en")


def test_what_the_hook_marks_is_private_under_any_policy() -> None:
    assert Privacy("none").private("Fine.", "en", marked=True)


def test_the_operators_words_are_nobodys_name() -> None:
    text = "Thank you for calling Northbank."
    assert Privacy("names").private(text, "en")
    assert not Privacy("names", ["Northbank"]).private(text, "en")


def test_other_languages_have_no_rule_for_names_so_all_is_private() -> None:
    assert Privacy("names").private("好的。", "zh")
    assert not Privacy("digits").private("好的，请稍等一下。", "zh")
    assert Privacy("digits").private("一共三百元。", "zh")


def test_places_that_are_left_open_are_no_names() -> None:
    assert not Privacy("names").private("Thank you, {name}.", "en")


def test_names_by_their_capitals() -> None:
    assert names_in("I spoke with Maria O'Neill on Monday.") == ["Maria", "O'Neill"]
    assert names_in("Please wait. Thanks.") == []
