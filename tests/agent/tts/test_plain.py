"""What never reaches an engine, and how words are counted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.tts.plain import MAX_WORD_CHARS, plain_text, speakable, word_spans


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<|endofprompt|>Hello [laughter] there", "Hello there"),
        ("say [tomato](/təmˈɑːtO/) now", "say tomato now"),
        ("[docs](https://example.com/x)", "docs"),
        ("[[h@'loU]] <|<|a|>b|> {x} 5 < 10", "h@'loU x 5 10"),
        ("null\x00byte\u200bjoiner\ud800", "null bytejoiner"),
        (" a \n\n b ", "a b"),
        ("[see, this]", "see, this"),
    ],
)
def test_markup_is_taken_out(text: str, plain: str) -> None:
    assert plain_text(text) == plain


@given(text=st.text(st.sampled_from("<|>[]()/{}ab \x00\n^\\"), max_size=60))
@settings(max_examples=400, deadline=None)
def test_no_bracket_of_any_markup_is_left(text: str) -> None:
    plain = plain_text(text)
    assert not set(plain) & set("<>[]{}|\\^\x00\n")
    assert plain_text(plain) == plain


def test_very_long_words_are_broken() -> None:
    assert max(len(word) for word in plain_text("x" * 10_000).split()) == MAX_WORD_CHARS


def test_words_are_blank_separated_runs_and_single_ideographs_with_their_marks() -> None:
    text = "我用iPhone 15，好。 It's — fine."
    assert [text[a:b] for a, b in word_spans(text)] == ["我", "用", "iPhone", "15，", "好。", "It's", "—", "fine."]


@pytest.mark.parametrize(("text", "can"), [("a", True), ("5", True), ("好", True), ("🎉 …", False), ("", False)])
def test_speakable_needs_a_letter_or_digit(text: str, can: bool) -> None:
    assert speakable(text) is can
