"""What the agent says by itself is ready in every voice and language of the settings before the first call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import numpy as np
import pytest

from agent.config import PhraseSettings, Settings
from agent.errors import ConfigError
from agent.nlu.function import FunctionNlu
from agent.nlu.rules import RulesNlu
from agent.speech import phrases as module
from agent.speech.normalize import normalize
from agent.speech.phrases import PHRASES, PhraseBook, configured_voices, greetings_of
from agent.testing import ScriptedSynthesizer
from agent.testing.synthesizer import Making
from agent.tts.protocol import Speech, Style, Voice

ZH = Voice("heart", "zh")


async def made(engine: ScriptedSynthesizer, **groups: object) -> PhraseBook:
    settings = Settings.model_validate(groups)
    book = PhraseBook(settings.phrases, engine, settings.tts.language)
    await book.make(configured_voices(settings, engine), Style())
    return book


async def test_every_voice_has_every_phrase_in_every_language_of_the_settings() -> None:
    engine = ScriptedSynthesizer()
    book = await made(engine, tts={"voices": ["other"]}, asr={"language": "zh"})
    assert len(engine.spoken) == 4 * len(PHRASES)
    assert engine.asked_as[0] == (Voice(), Style())
    for name in PHRASES:
        for voice in ("heart", "other"):
            english, chinese = book.phrase(name, Voice(voice, "en-GB")), book.phrase(name, Voice(voice, "zh-CN"))
            assert english is not None
            assert chinese is not None
            assert english.text == getattr(PhraseSettings(), name)
            assert any("\u4e00" <= c <= "\u9fff" for c in chinese.text)
            assert len(chinese.speech.pcm)


def test_languages_that_no_voice_speaks_are_left_out() -> None:
    settings = Settings.model_validate({"phrases": {"languages": {"fr": {}, "zh-TW": {}}}})
    assert configured_voices(settings, ScriptedSynthesizer()) == [Voice(), Voice("heart", "zh-TW")]


def test_a_voice_that_there_is_not_is_named() -> None:
    with pytest.raises(ConfigError, match=r"tts\.voices: scripted has no voice 'nobody'; there is heart, other"):
        configured_voices(Settings.model_validate({"tts": {"voices": ["nobody"]}}), ScriptedSynthesizer())


def test_the_operators_words_go_before_ours() -> None:
    settings = PhraseSettings.model_validate(
        {"filler": "Just a second.", "languages": {"zh": {"hold": "等一等。"}, "nl": {"filler": "Een ogenblik."}}}
    )
    book = PhraseBook(settings, ScriptedSynthesizer())
    assert book.text("filler") == book.text("filler", "en-US") == "Just a second."
    assert book.text("hold", "zh-CN") == "等一等。"
    assert book.text("filler", "zh") == "请稍等。"
    assert book.text("filler", "nl") == "Een ogenblik."
    # Nobody has these words in that language: another language is better than silence.
    assert book.text("hold", "nl") == settings.hold
    with pytest.raises(KeyError):
        book.text("languages")


def test_an_agent_of_another_language_says_our_words_in_it_unless_it_has_its_own() -> None:
    book = PhraseBook(PhraseSettings(goodbye="Tschüss."), ScriptedSynthesizer(), "de-AT")
    assert book.text("goodbye") == "Tschüss."
    assert book.text("filler") == "Einen Moment, bitte."
    assert book.text("filler", "en") == PhraseSettings().filler


@pytest.mark.parametrize("language", sorted({"en", *module._TEXTS}))
def test_each_language_has_all_phrases_and_all_of_them_can_be_read(language: str) -> None:
    book = PhraseBook(PhraseSettings(), ScriptedSynthesizer())
    texts = {book.text(name, language) for name in PHRASES}
    assert len(texts) == len(PHRASES)
    assert all(normalize(text, language) for text in texts)
    if language != "en":
        assert not texts & {str(text) for text in PhraseSettings().model_dump().values()}


async def test_what_a_voice_has_not_comes_from_another_voice_then_from_another_language() -> None:
    engine = ScriptedSynthesizer()
    engine.makings.append(Making(words=0))
    book = await made(engine, tts={"voices": ["other"]})
    filler = book.phrase("filler", Voice())
    assert filler is not None
    assert filler is book.phrase("filler", Voice("other"))
    chinese = book.phrase("hold", ZH)
    assert chinese is not None
    assert chinese.text == PhraseSettings().hold
    assert PhraseBook(PhraseSettings(), engine).phrase("hold", ZH) is None


async def test_a_dead_engine_costs_only_its_phrases(caplog: pytest.LogCaptureFixture) -> None:
    engine = ScriptedSynthesizer()
    engine.broken = True
    book = await made(engine)
    assert book.phrase("apology", Voice()) is None
    assert caplog.text.count("was not made") == len(PHRASES)


async def test_a_voice_that_hangs_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAKE_DEADLINE_S", 0.05)
    hung = asyncio.Event()

    class Hanging(ScriptedSynthesizer):
        async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
            self.spoken.append(voice.name)
            if voice.name == "other":
                await hung.wait()
            yield Speech(np.ones(100, np.int16))

    engine = Hanging()
    book = await made(engine, tts={"voices": ["other"]})
    assert engine.spoken.count("other") == 1
    assert book.phrase("apology", Voice("other")) is book.phrase("apology", Voice()) is not None


async def test_progress_is_told_while_it_takes_long(caplog: pytest.LogCaptureFixture) -> None:
    settings = Settings()
    book = PhraseBook(settings.phrases, ScriptedSynthesizer())
    clock = iter(range(100))
    with caplog.at_level(logging.INFO):
        await book.make([Voice()], Style(), now=lambda: next(clock) / 2)
    lines = [record.getMessage() for record in caplog.records]
    assert lines[-1] == "6 of 6 phrases are ready"
    assert "phrases: 4 of 6" in lines


def test_the_hook_tells_what_it_greets_with() -> None:
    class Shop:
        greeting = ("Hello there! How are you?", 7)

        async def reply(self, turn: object) -> AsyncIterator[str]:
            yield ""

    settings = Settings.model_validate({"recording": {"announcement": "This call is recorded."}})
    assert greetings_of(FunctionNlu(Shop().reply, owner=Shop()), settings) == [
        "This call is recorded.",
        "Hello there!",
        "How are you?",
    ]
    assert greetings_of(RulesNlu(), Settings())[0] == "Hello!"
    assert greetings_of(FunctionNlu(lambda turn: None), Settings()) == []


async def test_greetings_are_made_in_the_first_voice_as_they_will_be_asked_for() -> None:
    engine = ScriptedSynthesizer()
    book = PhraseBook(PhraseSettings(), engine)
    await book.make([Voice(), ZH], Style(), greetings=["Hello!"])
    assert [as_ for text, as_ in zip(engine.spoken, engine.asked_as, strict=True) if text == "Hello!"] == [
        (Voice(), Style())
    ]
    assert book.phrase("greeting", Voice()) is None
