"""Where a reply is cut, and that the cuts do not depend on how it arrives."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.speech.chunker import Clause, ClauseChunker


def chunk(text: str, language: str = "en", pieces: list[str] | None = None) -> list[Clause]:
    chunker = ClauseChunker(language)
    out: list[Clause] = []
    for piece in pieces if pieces is not None else [text]:
        out += chunker.push(piece)
    return out + chunker.flush()


def texts(text: str, language: str = "en") -> list[str]:
    return [clause.text.strip() for clause in chunk(text, language)]


CASES = [
    ("en", "It costs $3.5 today.", ["It costs $3.5 today."]),
    ("en", "The fever was 98.6°F. It is 3.14.", ["The fever was 98.6°F.", "It is 3.14."]),
    ("en", "Pay $100,000 by 10:30 p.m. on Friday.", ["Pay $100,000 by 10:30 p.m. on Friday."]),
    ("en", "We close at 10:30 p.m. Please come.", ["We close at 10:30 p.m.", "Please come."]),
    ("en", "Open at 9 a.m. Monday. Bye.", ["Open at 9 a.m. Monday.", "Bye."]),
    ("en", "Dr. Smith lives on 5th St. near No. 7.", ["Dr. Smith lives on 5th St. near No. 7."]),
    ("en", "No. I do not. Nos. 7 and 8.", ["No.", "I do not.", "Nos. 7 and 8."]),
    ("en", "e.g. the U.S.A. office is open.", ["e.g. the U.S.A. office is open."]),
    ("en", "In the U.S. The shop is J. K. Rowling's.", ["In the U.S.", "The shop is J. K. Rowling's."]),
    (
        "en",
        "See https://example.com/a?b=1. Or me@example.com!",
        ["See https://example.com/a?b=1.", "Or me@example.com!"],
    ),
    ("en", 'He said "Hi." Then left... and came.', ['He said "Hi."', "Then left... and came."]),
    ("en", "# Title\n- one\n- two", ["# Title", "- one", "- two"]),
    ("en", "1. First. 2. Second.", ["1. First.", "2. Second."]),
    ("en", "Hello. <|a. b|>World [see. this](x. y) ok.", ["Hello.", "<|a. b|>World [see. this](x. y) ok."]),
    ("en", "Met on July 4, 2024, in Rome, Italy.", ["Met on July 4, 2024,", "in Rome, Italy."]),
    ("en", "ok", ["ok"]),
    ("en", "A", ["A"]),
    ("fr", "Comment ça va ? Très bien !", ["Comment ça va ?", "Très bien !"]),
    ("zh", "你好！今天天气怎么样？很好。", ["你好！", "今天天气怎么样？", "很好。"]),
    ("zh", "您好，订单号A12345已发货，预计3月5日送达。", ["您好，", "订单号A12345已发货，", "预计3月5日送达。"]),
    ("zh", "价格是¥1,299.50，打8折。", ["价格是¥1,299.50，", "打8折。"]),
]


@pytest.mark.parametrize(("language", "text", "clauses"), CASES)
def test_clauses_end_where_a_speaker_would_pause(language: str, text: str, clauses: list[str]) -> None:
    assert texts(text, language) == clauses


@pytest.mark.parametrize(("language", "text", "clauses"), CASES)
def test_a_piece_boundary_anywhere_changes_nothing(language: str, text: str, clauses: list[str]) -> None:
    whole = chunk(text, language)
    for at in range(len(text) + 1):
        assert chunk(text, language, [text[:at], text[at:]]) == whole
    assert chunk(text, language, list(text)) == whole


def test_the_first_clause_comes_at_the_first_comma_after_three_words() -> None:
    chunker = ClauseChunker()
    assert chunker.push("Sure, I can help") == []
    assert [c.spoken for c in chunker.push(" you, and then")] == ["Sure, I can help you,"]
    assert chunker.pending == " and then"


def test_later_clauses_are_longer_than_the_first() -> None:
    first, *later = texts("One two three, four five six, seven eight nine, ten eleven twelve, thirteen.")
    assert first == "One two three,"
    assert later[0] == "four five six, seven eight nine, ten eleven twelve,"


def test_a_full_stop_waits_for_what_follows() -> None:
    chunker = ClauseChunker()
    assert chunker.push("It costs $3.") == []
    assert chunker.push("5 today. ")[0].text == "It costs $3.5 today."


def test_a_sentence_end_is_spoken_as_soon_as_a_blank_follows() -> None:
    chunker = ClauseChunker()
    assert [c.text for c in chunker.push("Sure thing. ")] == ["Sure thing."]


def test_text_without_marks_is_cut_at_a_word_before_a_joint() -> None:
    clauses = chunk(
        "I think that the best way to go about this is to open the settings page and then choose the account tab"
    )
    assert [c.text.split()[0] for c in clauses] == ["I", "and"]


@pytest.mark.parametrize(
    "text", ["word " * 4000, "字" * 10_000, "a" * 10_000, "1,2" * 3000, "(" * 10_000, "[" * 10_000]
)
def test_endless_text_never_piles_up(text: str) -> None:
    chunker = ClauseChunker()
    clauses: list[Clause] = []
    for at in range(0, len(text), 50):
        clauses += chunker.push(text[at : at + 50])
        assert len(chunker.pending) < 1500
    clauses += chunker.flush()
    assert "".join(c.text for c in clauses) == text


def test_words_are_not_broken_by_the_length_bound() -> None:
    assert all(c.text.split() == ["word"] * len(c.text.split()) for c in chunk("word " * 500))


def test_code_blocks_are_covered_and_silent() -> None:
    clauses = chunk("Run this:\n```py\nprint('hi. there')\n```\nThat is all.")
    assert [c.spoken for c in clauses if c.spoken] == ["Run this:", "That is all."]


def test_text_with_nothing_to_say_is_one_silent_clause() -> None:
    assert [(c.text, c.spoken) for c in chunk("🎉🎉")] == [("🎉🎉", "")]


def test_flush_with_nothing_pending_gives_nothing() -> None:
    chunker = ClauseChunker()
    assert chunker.flush() == []
    assert [c.text for c in chunker.push("Hi there. ")] == ["Hi there."]
    assert [c.spoken for c in chunker.flush()] == [""]
    assert chunker.flush() == []


def test_offsets_go_on_after_a_flush() -> None:
    chunker = ClauseChunker()
    first = chunker.push("One.") + chunker.flush()
    second = chunker.push("Two.") + chunker.flush()
    assert [(c.start, c.end) for c in first + second] == [(0, 4), (4, 8)]


FRAGMENTS = st.sampled_from(
    [
        *"a1.,!?;:… \n\"'()[]<>|*_`~-#。，！？、”你好Dr",
        "Dr. ",
        "p.m. ",
        "e.g. ",
        "No. ",
        "U.S. ",
        "The ",
        "$3.50",
        "```",
        "\n```\n",
        "<|x|>",
        "[t]",
        "[a](b)",
        "word ",
        "and ",
        "https://a.com/b?c",
        "🎉",
        "e\u0301",
        "long" * 30,
        "字" * 20,
    ]
)


@given(parts=st.lists(FRAGMENTS, max_size=60), cuts=st.lists(st.integers(0, 400), max_size=12))
@pytest.mark.parametrize("language", ["en", "zh"])
@settings(max_examples=400, deadline=None)
def test_any_split_gives_the_same_clauses_and_they_cover_the_text(
    language: str, parts: list[str], cuts: list[int]
) -> None:
    text = "".join(parts)
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    whole = chunk(text, language)
    assert chunk(text, language, pieces) == whole
    assert chunk(text, language, list(text)) == whole
    assert "".join(c.text for c in whole) == text
    at = 0
    for clause in whole:
        assert clause.start == at
        assert clause.text == text[clause.start : clause.end]
        assert clause.end > clause.start
        at = clause.end


def test_the_language_of_a_reply_can_change_between_two_clauses() -> None:
    chunker = ClauseChunker("en")
    first = [*chunker.push("It is 5 o'clock. "), *chunker.flush()]
    chunker.language = "zh"
    second = [*chunker.push("现在5点。"), *chunker.flush()]
    assert [clause.spoken for clause in first if clause.spoken] == ["It is five o'clock."]
    assert [clause.spoken for clause in second] == ["现在五点。"]
