"""A turn that seemed over and goes on: slow speakers, numbers in groups, a name in two parts."""

from __future__ import annotations

from typing import Any

import pytest

from agent.events import UserTranscript
from agent.nlu.hook import Listen
from agent.testing import ScriptedHook, VirtualCall, virtual_time


def spoken(call: VirtualCall) -> list[str]:
    return [word.text.strip(",.").lower() for word in call.words]


@pytest.mark.parametrize("hook_s", [0.0, 0.3])
@virtual_time
async def test_a_name_that_goes_on_over_the_reply_is_one_new_turn(rehearse: Any, by_text: Any, hook_s: float) -> None:
    answers = {"greeting": ["Hi."], "john": [hook_s, "Nice to meet you, John."], "doe": ["Good day, John Doe."]}
    hook = ScriptedHook(by_text(answers))
    async with rehearse(hook) as call:
        await call.answer()
        await call.says("my name is John", 1.0)
        await call.hears("nice")
        await call.says("Doe", 0.5)
        said = await call.until(lambda: [r for r in call.replies if "Doe" in r.text])
        assert said[0].text == "Good day, John Doe."
        committed = [turn for turn in hook.turns if turn.text.endswith("Doe")]
        assert {turn.text for turn in committed} == {"my name is John Doe"}
        assert [item.text for item in committed[-1].history if item.role == "user"] == []
        assert call.turns[-1] == "my name is John Doe"
        items = [item.text for item in call.call.history.items if item.role == "user"]
        assert items == ["my name is John Doe"]
        finals = [event for event in call.of(UserTranscript) if event.final]
        assert finals[-1].text == "my name is John Doe"
        assert len({event.item_id for event in finals}) == 1, "the client shows one contribution"
        assert "john" not in spoken(call)[:4], "the first reply stopped before its end"


@pytest.mark.parametrize("mark", ["", "."], ids=["no marks", "a recogniser that ends each reading with a full stop"])
@virtual_time
async def test_a_slow_speaker_who_says_emmm_is_not_cut_off(rehearse: Any, by_text: Any, mark: str) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "street": ["Thank you."]}, ["Go on."]))
    async with rehearse(hook) as call:
        await call.answer()
        await call.pause(0.1)
        began = call.now_s
        await call.says(f"my address is emmm{mark}")
        await call.pause(1.0)
        await call.says(f"uhh{mark}", 0.4)
        await call.pause(1.0)
        await call.says("twelve market street")
        ended = call.now_s
        assert not call.audible(began, ended)
        said = await call.answer(5)
        assert said.text == "Thank you."
        assert call.turns == [f"my address is emmm{mark} uhh{mark} twelve market street"]


@virtual_time
async def test_a_phone_number_in_three_groups_is_one_turn(rehearse: Any, by_text: Any) -> None:
    answers = {"greeting": ["What's your number?", Listen("digits", min_digits=10)], "seven": ["Thank you."]}
    hook = ScriptedHook(by_text(answers, ["Go on."]))
    async with rehearse(hook) as call:
        await call.answer()
        await call.pause(0.1)
        began = call.now_s
        for group in ("zero seven seven", "one two three", "four five six seven"):
            await call.says(group)
            await call.pause(1.0 if group != "four five six seven" else 0.02)
        assert not call.audible(began)
        said = await call.answer(5)
        assert said.text == "Thank you."
        assert call.turns == ["zero seven seven one two three four five six seven"]
        assert call.response_s() < 0.8, "all ten are there: nothing to wait for"
