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


def test_halves_of_a_surrogate_pair_become_one_character() -> None:
    whole = chunk("𠮷野家へ。", "ja")
    assert chunk("", "ja", ["\ud842", "\udfb7野家へ。"]) == whole
    assert chunk("", "ja", ["\ud842\udfb7野家", "へ。"]) == whole
    assert [clause.text for clause in chunk("", "en", ["a\udfb7 b", " c\ud842"])] == ["a\ufffd b c\ufffd"]


def test_the_language_can_change_in_the_middle_of_a_reply() -> None:
    chunker = ClauseChunker("en")
    clauses = chunker.push("It is 5. In Chinese: ")
    assert chunker.pending == " In Chinese: "
    chunker.language = "zh-CN"
    assert chunker.pending == " In Chinese: "
    clauses += chunker.push("是5个。") + chunker.push("好")
    assert chunker.language == "zh-CN"
    clauses += chunker.flush()
    assert [(c.language, c.spoken) for c in clauses] == [
        ("en", "It is five."),
        ("en", "In Chinese:"),
        ("zh-CN", "是五个。"),
        ("zh-CN", "好"),
    ]
    assert [c.start for c in clauses] == [0, *[c.end for c in clauses[:-1]]]


def test_a_language_set_again_changes_nothing() -> None:
    chunker = ClauseChunker("en")
    assert chunker.push("It costs $3.") == []
    chunker.language = "en"
    assert [c.spoken for c in chunker.push("50. ")] == ["It costs three dollars and fifty cents."]


def test_a_known_tag_is_kept_for_its_engine() -> None:
    chunker = ClauseChunker("en", tags={"laughter"})
    assert [c.spoken for c in chunker.push("Ha [laughter] well [cough]. ")] == ["Ha [laughter] well."]


@pytest.mark.parametrize(
    ("language", "text", "heard", "kept"),
    [
        ("en", "It costs $3.50 today.", 1, "It "),
        ("en", "It costs $3.50 today.", 2, "It costs "),
        ("en", "It costs $3.50 today.", 3, "It costs "),
        ("en", "It costs $3.50 today.", 6, "It costs "),
        ("en", "It costs $3.50 today.", 7, "It costs $3.50 "),
        ("en", "It costs $3.50 today.", 8, "It costs $3.50 today."),
        ("en", "It costs $3.50 today.", 99, "It costs $3.50 today."),
        ("en", "It costs $3.50 today.", 0, ""),
        ("en", "**Bold** AT&T", 3, "**Bold** "),
        ("en", "Code A12345 now", 2, "Code "),
        ("en", "the [see here](http://x.y) end", 2, "the [see "),
        ("zh", "价格是¥1,299.50元", 3, "价格是"),
        ("zh", "价格是¥1,299.50元", 5, "价格是"),
        ("zh", "他说“好”吧", 2, "他说“"),
        ("zh", "我用iPhone15很好", 3, "我用"),
        ("de", "Am 3. Mai ist es", 2, "Am 3. "),
    ],
)
def test_history_is_cut_at_the_word_that_was_heard(language: str, text: str, heard: int, kept: str) -> None:
    (clause,) = chunk(text, language)
    assert text[: clause.source_after(heard)] == kept


def test_history_can_be_cut_by_spoken_characters() -> None:
    (clause,) = chunk("It costs $3.50 today.")
    spoken = "It costs three dollars and fifty cents today."
    assert clause.spoken == spoken
    assert clause.source_after_chars(spoken.index("dollars") + 7) == len("It costs ")
    assert clause.source_after_chars(spoken.index(" today")) == len("It costs $3.50 ")
    assert clause.source_after_chars(len(spoken)) == clause.end


def test_words_point_into_the_whole_reply() -> None:
    text = "Hello there. It is $5. Bye."
    for clause in chunk(text):
        assert clause.words
        for word in clause.words:
            assert clause.start <= word.start < word.end <= clause.end
            assert clause.spoken[word.spoken_start : word.spoken_end].strip().startswith(word.text)
    assert [text[w.start : w.end] for w in chunk(text)[1].words] == ["It", "is", "$5", "$5"]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("unit", ["(", "1", "[", "<|", "字", "a. ", "```\n", "1,2", "。", "\n", "e.g. ", "🎉"])
@pytest.mark.parametrize("language", ["en", "zh"])
def test_hostile_characters_without_end_are_cut_and_covered(unit: str, language: str) -> None:
    text = (unit * 100_000)[: 100_000 if unit in "(1" else 25_000]
    clauses = chunk(text, language)
    assert "".join(c.text for c in clauses) == text
    assert max(len(c.text) for c in clauses) < 5000


def test_ten_thousand_characters_of_prose_lose_no_word() -> None:
    text = "We open at nine, and the shop is on Main Street. " * 205
    assert len(text) > 10_000
    clauses = chunk(text)
    assert " ".join(c.spoken for c in clauses if c.spoken).split() == text.split()


@pytest.mark.parametrize("language", ["en", "zh", "de", "fr", "ja", "ko"])
def test_what_waits_is_bounded_in_every_language(language: str) -> None:
    for unit in ("word ", "字", "(", "[a", "<|", "12 ", "z. B. "):
        chunker = ClauseChunker(language)
        for _ in range(600):
            chunker.push(unit * 3)
            assert len(chunker.pending) < 1500


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
        "«",
        " » ",
        "z. B. ",
        "10 p. m. ",
        "3. ",
        "は。",
        "long" * 30,
        "字" * 20,
    ]
)


@given(parts=st.lists(FRAGMENTS, max_size=60), cuts=st.lists(st.integers(0, 400), max_size=12))
@pytest.mark.parametrize("language", ["en", "zh", "fr", "de", "ja"])
@settings(max_examples=250, deadline=None)
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
