"""The shared list of texts that must be right: each row is spoken as it says, however it arrives."""

from __future__ import annotations

import codecs
import csv
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from agent.speech.chunker import Clause, ClauseChunker

FILE = Path(os.environ.get("REJOINDER_CASES") or Path(__file__).parents[4] / "shared" / "cases") / "tts_text.tsv"


@dataclass(frozen=True)
class Expected:
    """The spoken clauses of a row, silent ones left out."""

    language: str
    spoken: tuple[str, ...]


EXPECTED = {
    "It costs $3.5 today.": Expected("en", ("It costs three dollars and fifty cents today.",)),
    "The fever was 98.6°F.": Expected("en", ("The fever was ninety-eight point six degrees Fahrenheit.",)),
    "Pay $100,000 by 10:30 p.m. on Friday.": Expected(
        "en", ("Pay one hundred thousand dollars by ten thirty p m on Friday.",)
    ),
    "Call 1-800-555-0199 now.": Expected("en", ("Call one, eight zero zero, five five five, zero one nine nine now.",)),
    "5 < 10 and I <3 it": Expected("en", ("five is less than ten and I heart it",)),
    "AT&T and R&D": Expected("en", ("A T and T and R and D",)),
    "**Bold** and *this* and `code`": Expected("en", ("Bold and this and code",)),
    "# Title": Expected("en", ("Title",)),
    "- first item": Expected("en", ("first item",)),
    "✅ Done 🎉": Expected("en", ("Done",)),
    "🎉🎉": Expected("en", ()),
    "| a | b |\n|---|---|\n| 1 | 2 |": Expected("en", ("a, b", "one, two")),
    "Dr. Smith lives on 5th St. near No. 7.": Expected(
        "en", ("Doctor Smith lives on fifth Street near Number seven.",)
    ),
    "e.g. the U.S.A. office": Expected("en", ("for example the U S A office",)),
    "Comment ça va ? Très bien !": Expected("fr", ("Comment ça va?", "Très bien!")),
    "你好！今天天气怎么样？很好。": Expected("zh", ("你好！", "今天天气怎么样？", "很好。")),
    "您好，订单号A12345已发货，预计3月5日送达。": Expected(
        "zh", ("您好，", "订单号A幺二三四五已发货，", "预计三月五日送达。")
    ),
    "价格是¥1,299.50，打8折。": Expected("zh", ("价格是一千二百九十九点五元，", "打八折。")),
    "请拨打400-810-1234转2。": Expected("zh", ("请拨打四零零，八幺零，幺二三四转二。",)),
    "我用iPhone15 Pro Max，在Wi-Fi下很快。": Expected("zh", ("我用iPhone 十五 Pro Max，", "在Wi-Fi下很快。")),
    "百分之50还是50%？": Expected("zh", ("百分之五十还是百分之五十？",)),
    "<|endofprompt|>Hello [laughter] there": Expected("en", ("Hello there",)),
    "https://example.com/a?b=1": Expected("en", ("example dot com",)),
    "me@example.com": Expected("en", ("me at example dot com",)),
    "3/4 of users, 1st of May, 2nd try": Expected("en", ("three quarters of users, the first of May, second try",)),
    "-5°C to +3°C": Expected("en", ("minus five degrees Celsius to plus three degrees Celsius",)),
    "ok": Expected("en", ("ok",)),
    "A": Expected("en", ("A",)),
}


def rows() -> list[str]:
    with FILE.open(encoding="utf-8", newline="") as file:
        # `\n` stands for a line end in this file.
        return [
            row["input"].replace("\\n", "\n")
            for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            if row["input"]
        ]


def spoken(language: str, pieces: list[str]) -> tuple[str, ...]:
    chunker = ClauseChunker(language)
    clauses: list[Clause] = [clause for piece in pieces for clause in chunker.push(piece)]
    return tuple(clause.spoken for clause in clauses + chunker.flush() if clause.spoken)


def test_every_row_of_the_list_is_expected_here() -> None:
    assert set(rows()) == set(EXPECTED)


@pytest.mark.parametrize("text", EXPECTED)
def test_a_row_is_spoken_as_it_must_be(text: str) -> None:
    expected = EXPECTED[text]
    assert spoken(expected.language, [text]) == expected.spoken


@pytest.mark.parametrize("text", EXPECTED)
def test_a_row_is_spoken_the_same_in_any_pieces(text: str) -> None:
    expected = EXPECTED[text]
    for at in range(len(text) + 1):
        for end in range(at, len(text) + 1):
            assert spoken(expected.language, [text[:at], text[at:end], text[end:]]) == expected.spoken


@pytest.mark.parametrize("text", EXPECTED)
def test_a_row_decoded_from_bytes_one_by_one_is_spoken_the_same(text: str) -> None:
    expected = EXPECTED[text]
    decoder = codecs.getincrementaldecoder("utf-8")()
    pieces = [decoder.decode(bytes([byte])) for byte in text.encode()]
    assert spoken(expected.language, pieces) == expected.spoken
