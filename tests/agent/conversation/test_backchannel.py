from __future__ import annotations

import pytest

from agent.conversation.backchannel import BACKCHANNELS, asks, is_backchannel


@pytest.mark.parametrize(
    "text",
    [
        "Mhm.",
        "uh-huh",
        "Okay!",
        "mm-hmm",
        "I see.",
        "  RIGHT ",
        "Yeah, yeah.",
        "Yeah, okay.",
        "mhm mhm",
        "Oh wow, great",
    ],
)
def test_a_listeners_response_is_a_backchannel(text: str) -> None:
    assert is_backchannel(text)


@pytest.mark.parametrize(
    "text",
    ["", "yes", "no", "stop", "okay but wait", "I see a problem", "right now please", "I", "yeah no", "what", "wait"],
)
def test_words_with_a_will_of_their_own_are_not(text: str) -> None:
    assert not is_backchannel(text)


@pytest.mark.parametrize(
    "word", ["no", "stop", "wait", "what", "why", "help", "nein", "stopp", "non", "不", "不要", "停", "等等"]
)
def test_no_language_takes_an_objection_for_one(word: str) -> None:
    assert not [language for language in BACKCHANNELS if is_backchannel(word, language)]


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("嗯。", "zh"),
        ("嗯嗯", "zh-CN"),
        ("对对对，好的", "zh"),
        ("OK，好", "zh"),
        ("Ach so, alles klar", "de"),
        ("D'accord", "fr-CA"),
        ("ya veo", "es"),
        ("va bene, certo", "it"),
        ("tá bom", "pt-BR"),
        ("oké", "nl"),
        ("はい、そうですか".removeprefix("はい、"), "ja"),
    ],
)
def test_other_languages_have_their_own(text: str, language: str) -> None:
    assert is_backchannel(text, language)


def test_language_decides() -> None:
    assert not is_backchannel("嗯。", "en")
    assert not is_backchannel("mhm", "tlh")
    assert not is_backchannel("好的我要退货", "zh")


@pytest.mark.parametrize(
    ("text", "language"),
    [("Shall I book it?", "en"), ('Did you say "yes?"', "en"), ("要预订吗？", "zh"), ("好吗。", "zh")],
)
def test_questions_are_known(text: str, language: str) -> None:
    assert asks(text, language)


def test_statements_are_no_questions() -> None:
    assert not asks("We open at nine.")
    assert not asks("")
    assert not asks("我们九点开门。", "zh")
