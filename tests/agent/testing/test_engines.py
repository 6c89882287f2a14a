"""The scripted recogniser, synthesiser and hook do what is written down, in virtual time."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from agent.errors import EngineError
from agent.nlu.hook import Hangup, Session, Turn
from agent.testing import (
    Lexicon,
    Making,
    Reading,
    ScriptedHook,
    ScriptedRecognizer,
    ScriptedSynthesizer,
    virtual_time,
    voice,
)
from agent.tts.protocol import Speech, Style, Voice


async def test_texts_are_revealed_word_by_word_one_a_stream() -> None:
    recognizer = ScriptedRecognizer(["one two three", "four"])
    stream = recognizer.stream(language="en")
    shown = []
    for _ in range(3):
        stream.push(voice(0.33))
        shown.append(stream.partial().text)
    assert shown == ["one", "one two", "one two three"]
    assert (await recognizer.stream(language="en").final()).text == "four"
    assert (await recognizer.stream(language="en").final()).text == ""


async def test_words_are_revealed_when_most_of_their_sound_came() -> None:
    lexicon = Lexicon()
    stream = ScriptedRecognizer(lexicon=lexicon).stream(language="en")
    pcm = lexicon.speech("aaaa bbbb cccc", 1.5, voice(1.0))
    shown = []
    for start in range(0, len(pcm), 1_600):
        stream.push(pcm[start : start + 1_600])
        shown.append(stream.partial().text)
    assert list(dict.fromkeys(shown)) == ["", "aaaa", "aaaa bbbb", "aaaa bbbb cccc"]
    assert shown.index("aaaa bbbb") >= 7
    revisions = [stream.partial().revision]
    stream.push(lexicon.speech("dddd", 0.5, voice(1.0)))
    revisions.append(stream.partial().revision)
    assert revisions[0] < revisions[1]


@virtual_time
async def test_finals_come_late_empty_other_not_at_all_and_then_well_again() -> None:
    loop = asyncio.get_running_loop()
    recognizer = ScriptedRecognizer(["hello there"], final_s=0.5)
    stream = recognizer.stream(language="en")
    recognizer.readings.extend(
        [Reading(after_s=2.0), Reading(text=""), Reading(text="else", end_of_turn=0.9), Reading(fails=True)]
    )
    recognizer.readings.append(Reading(hangs=True))
    began = loop.time()
    assert (await stream.final()).text == "hello there"
    assert loop.time() - began == pytest.approx(2.5)
    assert (await stream.final()).text == ""
    other = await stream.final()
    assert (other.text, other.end_of_turn) == ("else", 0.9)
    with pytest.raises(EngineError):
        await stream.final()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(100):
            await stream.final()
    assert (await stream.final()).text == "hello there"
    assert recognizer.finals == 6


async def pieces(synthesizer: ScriptedSynthesizer, text: str) -> list[Speech]:
    return [piece async for piece in synthesizer.stream(text, Voice(), Style())]


async def test_a_voice_takes_a_persons_time_and_times_its_words() -> None:
    synthesizer = ScriptedSynthesizer()
    made = await pieces(synthesizer, "we open at nine")
    assert [word.text for piece in made for word in piece.words] == ["we", "open", "at", "nine"]
    assert sum(len(piece.pcm) for piece in made) / 24_000 == pytest.approx(made[-1].words[-1].end_s)
    assert [synthesizer.lexicon.word(n).text for piece in made for n in synthesizer.lexicon.read(piece.pcm)] == [  # type: ignore[union-attr]
        "we",
        "open",
        "at",
        "nine",
    ]
    assert synthesizer.spoken == ["we open at nine"]


@virtual_time
async def test_a_voice_is_slow_stops_fails_and_goes_on_too_long_as_written() -> None:
    loop = asyncio.get_running_loop()
    synthesizer = ScriptedSynthesizer()
    synthesizer.makings.extend([Making(first_s=1.0, word_s=0.5), Making(words=0), Making(extra_s=2.0)])
    began = loop.time()
    assert len(await pieces(synthesizer, "one two three")) == 3
    assert loop.time() - began == pytest.approx(2.0)
    assert await pieces(synthesizer, "one two three") == []
    assert len((await pieces(synthesizer, "one"))[-1].pcm) == 48_000
    synthesizer.makings.append(Making(words=1, fails=True))
    failing = synthesizer.stream("one two", Voice(), Style())
    assert np.abs((await anext(failing)).pcm).max() > 5_000
    with pytest.raises(EngineError):
        await anext(failing)


def turn(text: str = "") -> Turn:
    return Turn(Session("call_1", "browser"), "speech" if text else "greeting", text)


@virtual_time
async def test_a_hook_waits_yields_acts_and_raises_as_written() -> None:
    hook = ScriptedHook(["Hi. ", 2.0, Hangup(), ValueError("boom")], lambda turn: [turn.text])
    began = asyncio.get_running_loop().time()
    items = hook.reply(turn())
    assert [await anext(items), await anext(items)] == ["Hi. ", Hangup()]
    with pytest.raises(ValueError, match="boom"):
        await anext(items)
    assert asyncio.get_running_loop().time() - began == pytest.approx(2.0)
    assert [item async for item in hook.reply(turn("a"))] == ["a"]
    assert [item async for item in hook.reply(turn("b"))] == ["b"]
    assert (hook.closed, [t.text for t in hook.turns]) == (3, ["", "a", "b"])
