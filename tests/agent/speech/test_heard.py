"""What was heard of a clause, in the words of the hook."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import numpy as np
import pytest

from agent.asr.protocol import Word
from agent.media.playout import Playout
from agent.speech.chunker import Clause, ClauseChunker
from agent.speech.heard import heard_to
from agent.speech.speaker import Speaker
from agent.tts.protocol import Speech

WORD_S = 0.3


def clause_of(text: str, language: str = "en") -> Clause:
    chunker = ClauseChunker(language)
    (clause,) = (c for c in chunker.push(text) + chunker.flush() if c.spoken)
    return clause


def timed(texts: list[str]) -> list[Word]:
    return [Word(text, at * WORD_S, (at + 1) * WORD_S) for at, text in enumerate(texts)]


def heads(clause: Clause, texts: list[str]) -> list[str]:
    """What counts as heard after each of the words, beginning with none."""
    words = timed(texts)
    length_s = len(words) * WORD_S
    return [clause.text[: heard_to(clause, words, at * WORD_S, length_s)].strip() for at in range(len(words) + 1)]


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("It costs $3.50 today.", ["", "It", "It costs", "It costs $3.50", "It costs $3.50 today."]),
        ("Call 1-800-555-0199 now.", ["", "Call", "Call 1-800-555-0199", "Call 1-800-555-0199 now."]),
        ("It is 98.6°F outside.", ["", "It", "It is", "It is 98.6°F", "It is 98.6°F outside."]),
        ("Say **three words** here.", ["", "Say", "Say **three", "Say **three words**", "Say **three words** here."]),
        ("Come at 10:30 p.m. please", ["", "Come", "Come at", "Come at 10:30 p.m.", "Come at 10:30 p.m. please"]),
    ],
)
def test_a_source_word_counts_once_all_that_is_said_for_it_was_heard(text: str, steps: list[str]) -> None:
    clause = clause_of(text)
    assert list(dict.fromkeys(heads(clause, clause.spoken.split()))) == steps


def test_engines_that_leave_marks_out_or_write_small_letters_are_understood() -> None:
    clause = clause_of("Yes, Anna, it is open.")
    assert heads(clause, ["yes", "anna", "it", "is", "open"]) == [
        "",
        "Yes,",
        "Yes, Anna,",
        "Yes, Anna, it",
        "Yes, Anna, it is",
        "Yes, Anna, it is open.",
    ]


def test_an_engine_that_says_other_words_is_followed_by_their_number() -> None:
    clause = clause_of("We open at nine.")
    assert heads(clause, ["x", "x", "x", "x"]) == ["", "We", "We open", "We open at", "We open at nine."]


def test_ideographs_count_one_by_one() -> None:
    clause = clause_of("今天天气很好。", "zh")
    assert heads(clause, list("今天天气很好"))[2:5] == ["今天", "今天天", "今天天气"]
    assert heads(clause, ["今天", "天气", "很好。"]) == ["", "今天", "今天天气", "今天天气很好。"]


def test_without_words_time_tells_and_never_too_much() -> None:
    clause = clause_of("It costs $3.50 today.")
    found = [clause.text[: heard_to(clause, [], at / 100, 1.0)].strip() for at in range(101)]
    assert list(dict.fromkeys(found)) == ["", "It", "It costs", "It costs $3.50", "It costs $3.50 today."]
    assert heard_to(clause, [], 1.0, 0.0) == 0


def test_of_a_clause_that_is_still_being_made_only_what_was_told_counts() -> None:
    clause = clause_of("We open at nine in the morning.")
    assert clause.text[: heard_to(clause, timed(["We", "open"]), 9.0, 9.0)].strip() == "We open"


@pytest.mark.parametrize("cut_s", [0.05, 0.35, 0.8, 1.4, 2.0])
async def test_history_is_cut_in_the_source_and_loses_nothing_of_it(cut_s: float) -> None:
    rate = 24_000
    reply = "Dr. Lee said: **$3.50** is _fine_ for the 5th. Then call me."
    playout = Playout(rate)
    speaker = Speaker(playout, rate)
    chunker = ClauseChunker()
    for clause in chunker.push(reply) + chunker.flush():

        async def pieces(spoken: str = clause.spoken) -> AsyncGenerator[Speech]:
            for word in timed(spoken.split()):
                yield Speech(np.full(round(WORD_S * rate), 900, np.int16), (word,))

        await speaker.say(clause.text, pieces(), clause)
    for _ in range(round(cut_s / 0.02)):
        playout.read()
    heard, unheard = speaker.heard()
    assert f"{heard} {unheard}".split() == reply.split()
    assert len(heard.split()) <= cut_s / WORD_S + 1
