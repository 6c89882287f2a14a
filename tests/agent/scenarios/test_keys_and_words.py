"""Keys and words in one turn."""

from __future__ import annotations

from typing import Any

from agent.nlu.hook import Listen
from agent.testing import ScriptedHook, virtual_time

WORDS = {"three": "3", "four": "4"}


def digits_of(text: str) -> str:
    return "".join(WORDS.get(part, part) for part in text.split())


@virtual_time
async def test_digits_by_key_and_by_voice_combine_in_order(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(
        lambda turn: ["Your number?", Listen("digits", min_digits=6)] if turn.kind == "greeting" else ["Thank you."]
    )
    async with rehearse(hook) as call:
        await call.answer()
        await call.presses("12")
        await call.says("three four", 0.9)
        await call.presses("56")
        await call.answer(8)
        asked = [turn for turn in hook.turns if turn.kind != "greeting" and not turn.speculative]
        assert len(asked) == 1
        assert digits_of(asked[0].text) == "123456"
