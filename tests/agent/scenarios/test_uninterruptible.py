"""What is to be heard in full is heard in full, whoever speaks, presses or cancels."""

from __future__ import annotations

from typing import Any

import pytest

from agent.errors import NotInterruptible
from agent.events import OutputCleared, OutputPaused
from agent.nlu.hook import Listen, Uninterruptible
from agent.testing import ScriptedHook, VirtualCall, virtual_time

HOURS = "We open at nine in the morning and close at six in the evening on every day of the week."


async def asks_hours(call: VirtualCall) -> None:
    """To the first word of the long answer."""
    await call.answer()
    await call.pause(0.3)
    await call.says("what are your hours")
    await call.hears("we")


def spoken(call: VirtualCall) -> list[str]:
    return [word.text.strip(",.").lower() for word in call.words]


@virtual_time
async def test_an_uninterruptible_reply_is_heard_in_full(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [Uninterruptible(), HOURS]}, ["Sure."]))
    async with rehearse(hook) as call:
        await asks_hours(call)
        with pytest.raises(NotInterruptible):
            call.call.cancel_reply()
        await call.presses("5")
        await call.says("no wait something else", 1.4)
        await call.until(lambda: any(said.text == HOURS for said in call.replies))
        (said,) = [said for said in call.replies if said.text == HOURS]
        assert said.status == "completed"
        assert call.of(OutputPaused) == call.of(OutputCleared) == []
        told = spoken(call)[1 : 1 + len(HOURS.split())]
        assert told == [word.strip(".").lower() for word in HOURS.split()]


@virtual_time
async def test_a_greeting_may_be_uninterruptible(rehearse: Any) -> None:
    hook = ScriptedHook([HOURS])
    async with rehearse(hook, conversation={"greeting_interruptible": False}) as call:
        await call.hears("nine")
        await call.says("hello can you hear me", 1.4)
        await call.until(lambda: call.replies)
        assert (call.replies[0].text, call.replies[0].status) == (HOURS, "completed")


@virtual_time
async def test_keys_do_not_stop_a_reply_that_takes_keys_without(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": [Listen("digits", 2, dtmf_barge_in=False), HOURS], "12": ["Thanks."]}))
    async with rehearse(hook) as call:
        await call.hears("nine")
        await call.presses("12")
        await call.until(lambda: len([said for said in call.replies if said.text]) == 2)
        assert [(said.text, said.status) for said in call.replies if said.text] == [
            (HOURS, "completed"),
            ("Thanks.", "completed"),
        ]
