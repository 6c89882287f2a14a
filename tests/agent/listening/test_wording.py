from __future__ import annotations

import pytest

from agent.listening.wording import TABLES, count_digits, judge_wording


def over(text: str, language: str = "en") -> float:
    judged = judge_wording(text, language)
    assert judged is not None
    return judged


@pytest.mark.parametrize(
    "text",
    [
        "My number is",
        "I want to",
        "I'd like to order a",
        "I was there and",
        "It is because",
        "Hello, um",
        "I would like, emm",
        "I live in the",
        "Can you",
        "J, O, H",
        "zero seven nine",
        "0 7 9",
        "My number is 555",
        "I need to -- ",
        "I thought...",
        "When a man looks for something.",
        "Six spoons of.",
    ],
)
def test_an_open_english_turn_is_likelier_to_go_on(text: str) -> None:
    assert over(text) <= 0.25


@pytest.mark.parametrize(
    "text",
    [
        "Yes.",
        "no thank you",
        "That's all.",
        "Where is my order?",
        "I would like to know when my order arrives.",
        "My order number is 4 2 7 1 9 9 8 3",
        "Send it to my office, please.",
        "When it arrives, call me.",
        "When is my order coming",
        "When will it be there tomorrow?",
    ],
)
def test_a_whole_english_turn_is_likelier_to_be_over(text: str) -> None:
    assert over(text) > 0.5


@pytest.mark.parametrize(
    "text",
    ["where is my order", "what are your opening hours", "are you open on sunday", "tell me what delivery costs"],
)
def test_a_question_is_one_though_its_recogniser_writes_no_marks(text: str) -> None:
    assert over(text) >= 0.7
    # One that writes marks would have written this one.
    assert over(text.capitalize()) < 0.6


@pytest.mark.parametrize(
    "text", ["where is my", "can you tell", "what is the price of", "when a man looks for something"]
)
def test_half_a_question_without_marks_is_likelier_to_go_on(text: str) -> None:
    assert over(text) < 0.5


@pytest.mark.parametrize(
    "text", ["我的号码是", "我想要", "嗯", "因为", "我要订一张票和", "幺三八", "我想问一下那个", "如果明天下雨的话"]
)
def test_an_open_mandarin_turn_is_likelier_to_go_on(text: str) -> None:
    assert over(text, "zh") <= 0.3


@pytest.mark.parametrize(
    "text", ["好的", "不用了", "你能帮我吗？", "我的订单什么时候到呢", "我想查一下我的订单。", "谢谢"]
)
def test_a_whole_mandarin_turn_is_likelier_to_be_over(text: str) -> None:
    assert over(text, "zh-CN") > 0.5


def test_a_recogniser_that_writes_no_marks_is_judged_by_words() -> None:
    assert over("i want to") == over("I want to.")
    assert over("i would like to know when my order arrives") > 0.5


def test_a_single_unknown_word_is_mostly_a_beginning() -> None:
    assert over("Five.") < over("I have five of them at home.")


@pytest.mark.parametrize(("text", "language"), [("", "en"), (" ... ", "en"), ("Ich möchte", "de")])
def test_no_words_and_no_table_say_nothing(text: str, language: str) -> None:
    assert judge_wording(text, language) is None


@pytest.mark.parametrize(
    ("text", "language", "digits"),
    [
        ("zero seven nine, 4 6", "en", 5),
        ("double five, twenty-one", "en", 4),
        ("no digits here", "en", 0),
        ("幺三八 0012", "zh", 7),
        ("null 4 2", "de", 2),
    ],
)
def test_digits_are_counted_as_they_are_said(text: str, language: str, digits: int) -> None:
    assert count_digits(text, language) == digits


def test_table_words_are_written_as_recognised_words_are_compared() -> None:
    for tables in TABLES.values():
        for name in tables.__slots__:
            for phrase in getattr(tables, name):
                assert phrase == tuple(word.lower().strip(".,?! ") for word in phrase), (name, phrase)
