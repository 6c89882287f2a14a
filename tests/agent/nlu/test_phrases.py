from __future__ import annotations

from typing import Any

import pytest

from agent.nlu.linear_regex import PatternError
from agent.nlu.phrases import MAX_TEXT_CHARS, Pattern, Utterance, likeness, words_of

SETS = {"opening": ["open", "opening hours"], "day": ["monday", "sunday"]}


def score(pattern: str, text: str, has_slot: Any = lambda name, utterance: False) -> float:
    compiled = Pattern(pattern, SETS, ["number"])
    return compiled.score(Utterance(words_of(text), frozenset(compiled.keywords)), has_slot)


@pytest.mark.parametrize(
    ("heard", "keyword"),
    [
        ("ours", "hours"), ("retuns", "return"), ("delivry", "delivery"), ("parsel", "parcel"), ("opening", "open"),
        ("closes", "close"), ("closing", "close"), ("returned", "return"), ("orders", "order"), ("odrer", "order"),
    ],
)  # fmt: skip
def test_inflections_and_slips_are_taken_for_the_keyword(heard: str, keyword: str) -> None:
    assert likeness(heard, keyword) > 0


@pytest.mark.parametrize(
    ("heard", "keyword"),
    [("four", "hour"), ("hop", "shop"), ("sunday", "monday"), ("three", "there"), ("seven", "several"), ("a", "as")],
)
def test_short_words_digits_and_other_words_are_not(heard: str, keyword: str) -> None:
    assert likeness(heard, keyword) == 0


def test_a_word_that_is_itself_a_keyword_is_never_taken_for_another() -> None:
    assert likeness("store", "story", frozenset({"store"})) == 0
    assert likeness("store", "story") > 0


def test_words_fold_case_punctuation_width_and_apostrophes() -> None:
    assert words_of("What’s, my ＯＲＤＥＲ-number?! Ça") == ("whats", "my", "order", "number", "ça")


def test_texts_are_bounded() -> None:
    assert len(" ".join(words_of("word " * 10_000))) <= MAX_TEXT_CHARS
    assert len("".join(words_of("ﷺ" * 10_000))) <= MAX_TEXT_CHARS  # one character that folds to eighteen


@pytest.mark.parametrize(
    ("pattern", "text", "matches"),
    [
        ("opening hours", "what are your opening hours", True),
        ("opening hours", "what are you opening ours", True),
        ("opening hours", "opening in two hours", False),
        ("when + <opening>", "when do you open", True),
        ("when + <opening>", "open when", True),
        ("when + <opening>", "open", False),
        ("<opening> + <day>", "are you open on sunday", True),
        (r"/\bwhen\b.*\bopen\b/", "so when d'you open", True),
        (r"/\bwhen\b.*\bopen\b/", "open when", False),
    ],
)
def test_patterns(pattern: str, text: str, matches: bool) -> None:
    assert bool(score(pattern, text)) is matches


def test_a_slot_part_asks_for_a_value() -> None:
    assert score("order + {number}", "order 42", lambda name, _: name == "number") == 2
    assert score("order + {number}", "order 42") == 0


def test_more_words_score_higher_and_slips_lower() -> None:
    assert score("opening hours", "opening hours") > score("<opening>", "open")
    assert score("opening hours", "opening hours") > score("opening hours", "opening ours")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "without words"),
        ("a + ", "without words"),
        ("<absent>", "not one of the sets"),
        ("{absent}", "not one of the slots"),
        ("/(/", "not closed"),
        ("/.*/", "matches the empty text"),
    ],
)
def test_a_pattern_that_means_nothing_is_refused(pattern: str, reason: str) -> None:
    with pytest.raises(PatternError, match=reason):
        Pattern(pattern, SETS, ["number"])
