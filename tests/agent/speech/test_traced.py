"""Where each character and each word of a rewritten text came from."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.speech.normalize import normalize, read_aloud
from agent.speech.traced import TracedText, words_of


def test_what_a_rule_leaves_keeps_its_place() -> None:
    draft = TracedText("Order #A1 now")
    draft.sub(re.compile(r"Order #(\w+)"), lambda m: "Order number A one")
    assert draft.text == "Order number A one now"
    assert draft.source(0, 5) == (0, 5)
    assert draft.source(6, 12) == (6, 9)
    assert draft.source(19, 22) == (10, 13)


def test_a_group_of_a_template_keeps_its_place() -> None:
    draft = TracedText("go [see here](url) now")
    draft.sub(re.compile(r"\[([^\]]*)\]\([^)]*\)"), r"\1")
    assert draft.text == "go see here now"
    assert draft.source(7, 11) == (8, 12)
    assert draft.source(12, 15) == (19, 22)


def test_an_unmatched_group_of_a_template_is_nothing() -> None:
    draft = TracedText("ab")
    draft.sub(re.compile(r"(x)?b"), r"\1c")
    assert (draft.text, draft.source(1, 2)) == ("ac", (1, 2))


def test_inserted_text_stands_where_it_was_put() -> None:
    draft = TracedText("a1")
    draft.sub(re.compile(r"(?<=a)(?=1)"), " ")
    draft.sub(re.compile(r"$"), "!")
    assert draft.text == "a 1!"
    assert [draft.source(at, at + 1) for at in range(4)] == [(0, 1), (1, 1), (1, 2), (2, 2)]


def test_letters_and_accents_become_one() -> None:
    draft = TracedText("cafe\u0301s")
    draft.compose()
    assert draft.text == "cafés"
    assert draft.source(3, 4) == (3, 5)


def test_windows_of_a_text_join_again() -> None:
    one, two = TracedText("one two").pieces([3, 7])
    two.strip()
    one.append(two, " ")
    assert one.text == "one two"
    assert one.source(4, 7) == (4, 7)


def test_marks_belong_to_the_word_they_touch_and_ideographs_stand_alone() -> None:
    words = words_of(TracedText("« Hé, 你好！ »"), offset=10)
    assert [word.text for word in words] == ["Hé,", "你", "好"]
    assert [(word.start, word.end) for word in words] == [(12, 14), (16, 17), (17, 18)]


@pytest.mark.parametrize(
    ("language", "text", "sources"),
    [
        ("en", "It is $3.50 now", ["It", "is", "$3.50", "$3.50", "$3.50", "$3.50", "$3.50", "now"]),
        ("en", "**Bold** AT&T", ["Bold", "AT&T", "AT&T", "AT&T", "AT&T"]),
        ("en", "the 1st of May", ["the", "1st", "of", "May"]),
        ("zh", "价格¥5", ["价", "格", "¥5", "¥5"]),
        ("fr", "Il est 10 h.", ["Il", "est", "10 h", "10 h"]),
    ],
)
def test_each_spoken_word_names_its_source(language: str, text: str, sources: list[str]) -> None:
    found = [text[word.start : word.end] for word in read_aloud(text, language).words]
    assert all(whole in text and (source in whole) for source, whole in zip(found, sources, strict=True))


@pytest.mark.parametrize("language", ["en", "zh", "de", "ko"])
@given(text=st.text(st.sampled_from("0159.,:/-$%°F#x@a Bpm()*_|<>[]`\n元年é\u0301✅。，"), max_size=60))
@settings(max_examples=200, deadline=None)
def test_the_words_are_the_spoken_text_and_lie_within_the_source(language: str, text: str) -> None:
    said = read_aloud(text, language)
    assert said.text == normalize(text, language)
    at = 0
    for word in said.words:
        assert said.text[word.spoken_start : word.spoken_end].startswith(word.text)
        assert not any(char.isalnum() for char in said.text[at : word.spoken_start])
        assert 0 <= word.start <= word.end <= len(text)
        at = word.spoken_end
    assert not any(char.isalnum() for char in said.text[at:])
