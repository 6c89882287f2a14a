"""The caller speaks over the agent: what stops it, what does not, and what counts as heard."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from agent.events import CallFault, OutputCleared, OutputPaused
from agent.nlu.hook import Turn
from agent.testing import Making, ScriptedHook, ScriptedSynthesizer, VirtualCall, virtual_time

HOURS = "We open at nine in the morning and close at six in the evening on every day of the week."
NUMBERS = "one two three four five six seven eight nine ten".split() + (
    "eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty".split()
)
COUNT = ", ".join(NUMBERS) + "."


async def asks_hours(call: VirtualCall) -> None:
    """To the first word of the long answer."""
    await call.answer()
    await call.pause(0.3)
    await call.says("what are your hours")
    await call.hears("we")


def spoken(call: VirtualCall) -> list[str]:
    return [word.text.strip(",.").lower() for word in call.words]


@pytest.mark.parametrize("word", ["mhm", "uh-huh", "okay"])
@virtual_time
async def test_a_backchannel_does_not_stop_the_agent(rehearse: Any, by_text: Any, word: str) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [HOURS]}, ["What was that?"]))
    async with rehearse(hook) as call:
        await asks_hours(call)
        await call.hears("nine")
        await call.backchannel(word, 0.4)
        ended = call.now_s
        said = await call.answer()
        assert (said.text, said.status) == (HOURS, "completed")
        assert spoken(call)[1:] == [w.strip(".").lower() for w in HOURS.split()]
        assert call.audible(ended, ended + 1.0), "it went on within a second"
        await call.pause(3)
        assert call.turns == ["what are your hours"]


@virtual_time
async def test_the_agent_counts_on_after_okay_and_not_from_one(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "twenty": [COUNT]}))
    async with rehearse(hook) as call:
        await call.answer()
        await call.says("count to twenty")
        await call.hears("five")
        await call.pause(0.2)
        await call.backchannel("okay", 0.4)
        await call.answer()
        assert spoken(call)[1:] == NUMBERS


@virtual_time
async def test_audio_that_was_thrown_away_is_not_heard(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [HOURS], "else": ["Sure."]}))
    async with rehearse(hook) as call:
        await asks_hours(call)
        await call.hears("close")
        await call.says("no wait something else", 1.4)
        await call.answer()
        cut = next(said for said in call.replies if said.status == "cancelled")
        left = spoken(call)[1:-1]
        assert f"{cut.text} {cut.unheard}" == HOURS
        told = [word.strip(".").lower() for word in cut.text.split()]
        assert told == left[: len(told)]
        assert len(left) - 1 <= len(told) <= len(left), "a word cut before its middle was not heard"
        turn = hook.turns[-1]
        assert turn.interrupted is not None
        assert (turn.interrupted.heard, turn.interrupted.unheard) == (cut.text, cut.unheard)
        item = turn.history[-1]
        assert (item.text, item.unheard, item.interrupted) == (cut.text, cut.unheard, True)


@virtual_time
async def test_a_reply_cut_before_its_first_frame_is_not_in_history(rehearse: Any, by_text: Any) -> None:
    synthesizer = ScriptedSynthesizer()
    hook = ScriptedHook(by_text({"greeting": ["Hello there."], "hours": [HOURS], "saturdays": ["Until four."]}))
    async with rehearse(hook, synthesizer=synthesizer) as call:
        await call.answer()
        synthesizer.makings.extend([Making(first_s=3.0)] * 3)
        await call.says("what are your hours")
        await call.until(lambda: HOURS in synthesizer.spoken or any(t.text.endswith("hours") for t in hook.turns))
        await call.pause(0.6)
        synthesizer.makings.clear()
        await call.says("i mean on saturdays")
        said = await call.answer()
        assert said.text == "Until four."
        turn = hook.turns[-1]
        assert turn.text.endswith("i mean on saturdays")
        assert [item.text for item in turn.history if item.role == "agent"] == ["Hello there."]
        assert not any(item.unheard for item in turn.history)
        assert spoken(call) == ["hello", "there", "until", "four"]


@virtual_time
async def test_clearing_while_the_last_clause_is_made_leaks_nothing(rehearse: Any, by_text: Any) -> None:
    synthesizer = ScriptedSynthesizer()
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [HOURS, " Goodbye then"], "else": ["Sure thing."]}))
    async with rehearse(hook, synthesizer=synthesizer) as call:
        await call.answer()
        synthesizer.makings.extend([Making(word_s=0.3)] * 2)
        await call.says("what are your hours")
        await call.hears("nine")
        closed = hook.closed
        await call.says("no wait something else", 1.4)
        await call.answer()
        await call.pause(8)
        told = spoken(call)
        assert told[-2:] == ["sure", "thing"]
        assert "goodbye" not in told
        assert "evening" not in told
        assert hook.closed > closed or closed == 2
        cut = next(said for said in call.replies if said.status == "cancelled")
        assert HOURS.startswith(cut.text)


@pytest.mark.parametrize("offset_s", [0.0, 0.06, 0.12, 0.18, 0.24, 0.32, 0.5, 1.1, 2.0])
@pytest.mark.parametrize("words_known", ["at once", "in the end"])
@virtual_time
async def test_after_barge_in_there_is_no_sound(rehearse: Any, by_text: Any, offset_s: float, words_known: str) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [HOURS, " ", HOURS]}, [2.5, "Sure."]))
    async with rehearse(hook, conversation={"filler_after_s": 0}) as call:
        await asks_hours(call)
        await call.pause(offset_s)
        call.stage.recognizer.partials = words_known == "at once"
        began = call.now_s
        await call.says("no wait something else entirely please", 2.2)
        await call.until(lambda: call.replies[-1].status == "cancelled")
        paused = call.times(OutputPaused)[0] if call.of(OutputPaused) else call.times(OutputCleared)[0]
        # The detector needs two windows, the rule 120 ms of speech; after its decision one frame fades out.
        assert paused - began <= 0.25
        await call.pause(2.0)
        assert not call.audible(paused + 0.1)


@virtual_time
async def test_barge_in_works_after_the_hook_has_ended(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [HOURS], "else": ["Sure."]}))
    async with rehearse(hook) as call:
        await asks_hours(call)
        assert hook.closed == len(hook.turns), "the hook has ended"
        assert call.port.playout.queued_samples > 0
        await call.says("no wait something else", 1.4)
        said = await call.answer()
        assert said.text == "Sure."
        assert call.replies[-2].status == "cancelled"
        assert "week" not in spoken(call)


@virtual_time
async def test_ten_rapid_turns_before_any_text_leak_nothing(rehearse: Any) -> None:
    hook = ScriptedHook(lambda turn: ["Hi."] if turn.kind == "greeting" else [0.5, f"You said {turn.text}."])
    async with rehearse(hook) as call:
        await call.answer()
        for number in NUMBERS[:11]:
            await call.types(number)
            await call.pause(0.1)
        said = await call.answer()
        assert said.text == "You said eleven."
        await call.pause(5)
        assert spoken(call) == ["hi", "you", "said", "eleven"]
        assert hook.closed == len(hook.turns)
        assert call.of(CallFault) == []


@virtual_time
async def test_ten_spoken_interruptions_before_any_text_leak_nothing(rehearse: Any) -> None:
    hook = ScriptedHook(lambda turn: ["Hi."] if turn.kind == "greeting" else [1.5, f"You said {turn.text}."])
    async with rehearse(hook, conversation={"filler_after_s": 0}) as call:
        await call.answer()
        for number in NUMBERS[:11]:
            await call.says(f"number {number}", 0.6)
            await call.pause(0.8)
        said = await call.answer()
        assert said.text.endswith("number eleven.")
        assert said.text.count("You said") == 1
        assert hook.closed == len(hook.turns)
        assert call.of(CallFault) == []
        assert [item.role for item in call.call.history.items] == ["agent", "user", "agent"]


@virtual_time
async def test_interrupting_a_finished_reply_does_nothing(rehearse: Any) -> None:
    async with rehearse(ScriptedHook(["Hello there."])) as call:
        await call.answer()
        await call.quiet()
        before = len(call.events)
        call.call.cancel_reply()
        await call.pause(1)
        assert call.events[before:] == []


class Stubborn:
    """Yields once more when it is closed."""

    def __init__(self) -> None:
        self.stubborn = 0

    async def reply(self, turn: Turn) -> AsyncIterator[str]:
        if turn.kind == "greeting":
            yield "Hi."
            return
        if "else" in turn.text:
            yield "Sure."
            return
        try:
            yield HOURS
            yield f" {HOURS}"
            yield f" {HOURS}"
        finally:
            self.stubborn += 1
            yield "never said"


@virtual_time
async def test_a_hook_that_yields_after_being_closed_says_no_more(rehearse: Any) -> None:
    hook = Stubborn()
    async with rehearse(hook, conversation={"speculate": False}) as call:
        await asks_hours(call)
        await call.says("no wait something else", 1.4)
        said = await call.answer()
        assert said.text == "Sure."
        await call.pause(5)
        assert hook.stubborn == 1
        assert "never" not in spoken(call)
