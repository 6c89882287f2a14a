"""Hooks and voices that misbehave, keys beside words, another language, two callers: the call lives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.events import CallFault, ClientData
from agent.nlu.hook import Send, SwitchLanguage, Turn
from agent.testing import Making, ScriptedHook, ScriptedSynthesizer, Stage, VirtualCall, virtual_time

OPEN = "We open at nine."


async def goes_on(call: VirtualCall) -> None:
    """The next question is answered."""
    await call.quiet(5)
    await call.says("what are your hours")
    said = await call.until(lambda: [r for r in call.replies if r.text == OPEN], 8)
    assert said[-1].status == "completed"


@pytest.mark.parametrize(
    ("answer", "phrase"),
    [
        ([RuntimeError("boom")], "apology"),
        ([KeyboardInterrupt()], "apology"),
        ([3600.0], "apology"),
        ([], None),
        ([Send({"page": 2})], None),
        ([b"bytes"], "apology"),
    ],
    ids=["crashes", "is interrupted", "hangs", "says nothing", "only acts", "yields something else"],
)
@virtual_time
async def test_whatever_a_hook_does_the_call_lives_and_says_the_right_thing(
    rehearse: Any, by_text: Any, answer: list[Any], phrase: str | None
) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "trouble": answer, "hours": [OPEN]}))
    async with rehearse(hook) as call:
        phrases = call.stage.settings.phrases
        await call.answer()
        await call.says("make some trouble")
        if phrase is not None:
            said = await call.answer(20)
            assert said.text.endswith(getattr(phrases, phrase))
            assert said.status == "failed"
            assert [event.part for event in call.of(CallFault)] == ["nlu"]
        else:
            await call.until(lambda: call.turns and call.floor == "nobody", 5)
            assert call.heard == "Hi."
            assert call.of(CallFault) == []
        assert len(call.of(ClientData)) == (1 if answer and isinstance(answer[0], Send) else 0)
        await goes_on(call)


@virtual_time
async def test_a_slow_hook_is_covered_once_by_a_filler_then_by_the_holding_phrase(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [6.0, OPEN]}))
    async with rehearse(hook) as call:
        phrases = call.stage.settings.phrases
        await call.answer()
        await call.says("what are your hours")
        said = await call.answer()
        assert said.text == f"{phrases.filler} {phrases.hold} {OPEN}"


@pytest.mark.parametrize("text", ["***", "   ", "()", "\u200b", "…"])
@virtual_time
async def test_text_that_normalises_to_nothing_leaves_no_one_waiting(rehearse: Any, by_text: Any, text: str) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "nothing": [text], "hours": [OPEN]}))
    async with rehearse(hook) as call:
        await call.answer()
        await call.says("say nothing")
        await call.until(lambda: call.turns and call.floor == "nobody", 5)
        assert call.heard == "Hi."
        await goes_on(call)


@pytest.mark.parametrize(
    "making",
    [
        Making(words=0),
        Making(words=2, fails=True),
        Making(words=2, hangs=True),
        Making(first_s=3.0),
        Making(extra_s=40.0),
    ],
    ids=["makes no sound", "fails in the middle", "hangs in the middle", "is slow", "makes too much"],
)
@virtual_time
async def test_whatever_a_voice_does_the_call_lives(rehearse: Any, by_text: Any, making: Making) -> None:
    synthesizer = ScriptedSynthesizer()
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "order": ["Your order has left us."], "hours": [OPEN]}))
    async with rehearse(hook, synthesizer=synthesizer) as call:
        await call.answer()
        # As often as a voice may be asked for it: a reply that is begun ahead and fails is asked for again.
        synthesizer.makings.extend([making] * 4)
        await call.says("where is my order")
        await call.until(lambda: len(call.replies) >= 2)
        if making.fails or making.hangs:
            assert call.replies[-1].text.endswith(call.stage.settings.phrases.apology)
            assert call.heard.startswith("Hi. Your order")
            assert [event.part for event in call.of(CallFault)] == ["tts"]
        elif making.words is None:
            assert call.heard == "Hi. Your order has left us."
        synthesizer.makings.clear()
        await goes_on(call)


@virtual_time
async def test_a_language_switch_takes_effect_at_the_next_clause_without_a_gap(rehearse: Any, by_text: Any) -> None:
    synthesizer = ScriptedSynthesizer()
    hook = ScriptedHook(
        by_text(
            {"greeting": ["Hi."], "chinese": ["Sure, of course. ", SwitchLanguage("zh"), "你好，请说。"]}, ["好的。"]
        )
    )
    async with rehearse(hook, synthesizer=synthesizer) as call:
        await call.answer()
        await call.says("speak chinese")
        asked_at = call.now_s
        await call.answer()
        said = list(zip(synthesizer.spoken, synthesizer.asked_as, strict=True))
        languages = {text: voice.language for text, (voice, _) in said}
        assert languages["Sure, of course."] == "en"
        assert {lang for text, lang in languages.items() if not text.isascii()} == {"zh"}
        spans = [span for span in call.sounds if span[0] > asked_at]
        assert len(spans) == 1, f"one stretch of sound, not {spans}"
        await call.says("你好", 0.8)
        await call.answer(5)
        assert call.stage.recognizer.streams[-1].language == "zh"
        assert hook.turns[-1].language == "zh"


class Counting:
    """Counts each caller's turns in that caller's own state."""

    async def reply(self, turn: Turn) -> AsyncIterator[str]:
        count = turn.session.state["count"] = turn.session.state.get("count", 0) + 1
        yield f"{turn.session.caller} {count}: {turn.text or 'welcome'}."


@virtual_time
async def test_two_callers_at_once_share_no_state() -> None:
    async with Stage(Counting()) as stage:
        ann, bob = await stage.call(caller="Ann"), await stage.call(caller="Bob")

        async def talk(call: VirtualCall, words: list[str], gap_s: float) -> None:
            await call.quiet()
            await call.until(lambda: call.replies)
            for word in words:
                await call.says(f"this is {word}")
                await call.answer(5)
                await call.pause(gap_s)

        await asyncio.gather(talk(ann, ["red", "green"], 0.2), talk(bob, ["one", "two", "three"], 0.05))
        assert [said.text for said in ann.replies] == [
            "Ann 1: welcome.",
            "Ann 2: this is red.",
            "Ann 3: this is green.",
        ]
        assert [said.text for said in bob.replies] == [
            "Bob 1: welcome.",
            "Bob 2: this is one.",
            "Bob 3: this is two.",
            "Bob 4: this is three.",
        ]
        assert not set(ann.turns) & set(bob.turns)
        assert "Bob" not in ann.heard
        assert "Ann" not in bob.heard
