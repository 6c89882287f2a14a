"""The agent hears itself: its own voice coming back is not the caller."""

from __future__ import annotations

from typing import Any

import pytest

from agent.events import OutputPaused, OutputResumed
from agent.testing import Echo, ScriptedHook, VirtualCall, virtual_time

HOURS = "We open at nine in the morning and close at six in the evening on every day of the week."


async def asks_hours(call: VirtualCall) -> None:
    """To the first word of the long answer."""
    await call.answer()
    # The greeting's echo is over: what is said right into it is one stretch of sound with it.
    await call.pause(0.8)
    await call.says("what are your hours")
    await call.hears("we")


@pytest.mark.parametrize(("level_db", "delay_s"), [(-20.0, 0.15), (-20.0, 0.3), (-14.0, 0.15)])
@virtual_time
async def test_the_agents_own_echo_does_not_interrupt_it(
    rehearse: Any, by_text: Any, level_db: float, delay_s: float
) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hello there, how can I help you?"], "hours": [HOURS]}, ["Sure."]))
    async with rehearse(hook) as call:
        call.echo = Echo(level_db, delay_s)
        await asks_hours(call)
        said = await call.answer()
        assert (said.text, said.status) == (HOURS, "completed")
        await call.pause(3)
        assert call.turns == ["what are your hours"]
        # Paused now and then, perhaps; but not so that a listener would lose the thread.
        assert said.end_s - said.start_s < len(HOURS) * 0.06 * 1.5
        assert len(call.of(OutputPaused)) == len(call.of(OutputResumed))


@virtual_time
async def test_real_words_interrupt_in_spite_of_an_echo(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(
        by_text({"greeting": ["Hello there, how can I help you?"], "hours": [HOURS], "else": ["Sure."]})
    )
    async with rehearse(hook) as call:
        call.echo = Echo()
        await asks_hours(call)
        await call.hears("morning")
        await call.says("no wait something else", 1.4)
        said = await call.until(lambda: [r for r in call.replies if r.text == "Sure."])
        assert said[0].status == "completed"
        assert any(said.status == "cancelled" for said in call.replies)
