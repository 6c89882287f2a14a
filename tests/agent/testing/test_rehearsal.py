"""A call in virtual time: the caller acts, the clock jumps, and what was heard is known to the word."""

from __future__ import annotations

import asyncio
import time

import pytest

from agent.events import DtmfPressed
from agent.nlu.hook import Turn
from agent.testing import ScriptedHook, Stage, VirtualCall, rehearsal, run_virtual, virtual_time

OPEN = "We open at nine in the morning."


def hook() -> ScriptedHook:
    return ScriptedHook(lambda turn: ["Hello there."] if turn.kind == "greeting" else [OPEN])


async def conversation(call: VirtualCall) -> VirtualCall:
    await call.answer()
    await call.says("what are your hours", 1.5)
    await call.hears("nine")
    await call.backchannel()
    await call.until(lambda: len(call.replies) == 2)
    await call.pause(0.5)
    await call.presses("12#")
    await call.answer()
    await call.hangs_up()
    return call


@virtual_time
async def test_a_bare_function_is_a_hook() -> None:
    async def reply(turn: Turn) -> str:
        return "Hello there."

    async with rehearsal(reply) as call:
        assert (await call.answer()).text == "Hello there."


@virtual_time
async def test_what_the_agent_said_and_when_is_known_from_what_left() -> None:
    async with rehearsal(hook()) as call:
        await call.answer()
        assert [word.text for word in call.words] == ["Hello", "there."]
        hello, there = call.words
        # The scripted voice needs 60 ms a character and one for the space.
        assert hello.end_s - hello.start_s == pytest.approx(0.36, abs=0.02)
        assert there.end_s - hello.start_s == pytest.approx(0.78, abs=0.02)
        assert call.sounds == [(hello.start_s, there.end_s)]
        assert call.audible(0.2, 0.3)
        assert not call.audible(there.end_s)
        await call.says("what are your hours", 1.5)
        spoken_until = call.now_s
        said = await call.answer()
        assert call.last_act_s == spoken_until
        assert call.response_s() == pytest.approx(said.start_s - spoken_until, abs=0.021)
        assert said.text == OPEN


@virtual_time
async def test_a_whole_call_reads_as_its_transcript() -> None:
    async with rehearsal(hook()) as call:
        await conversation(call)
    lines = [line.split("s  ", 1)[1] for line in call.transcript().splitlines()]
    assert lines == [
        "agent (completed): Hello there.",
        "caller says: what are your hours",
        "understood: what are your hours",
        f"agent (completed): {OPEN}",
        "caller says: mhm",
        "caller presses: 1",
        "caller presses: 2",
        "caller presses: #",
        f"agent ({call.replies[2].status}): {OPEN}",
        "caller hangs up",
        "ended: caller hung up",
    ]
    assert call.turns == ["what are your hours"]
    assert [event.digit for event in call.of(DtmfPressed)] == ["1", "2", "#"]
    assert [turn.kind for turn in call.asked if not turn.speculative][-1] == "dtmf"


def test_the_same_call_goes_the_same_way_to_the_millisecond() -> None:
    async def once() -> tuple[str, list[tuple[float, float]], list[object]]:
        async with rehearsal(hook()) as call:
            await conversation(call)
        return call.transcript(), call.sounds, [(word.text, word.start_s) for word in call.words]

    assert run_virtual(once()) == run_virtual(once())


def test_minutes_of_a_call_take_a_moment() -> None:
    async def long() -> float:
        async with rehearsal(hook()) as call:
            for _ in range(20):
                await call.says("what are your hours", 1.5)
                await call.answer()
                await call.pause(2)
            return call.now_s

    began = time.process_time()
    virtual_s = run_virtual(long())
    assert virtual_s > 100
    assert time.process_time() - began < virtual_s / 10


@virtual_time
async def test_what_a_thread_needs_is_waited_for_with_the_clock_standing() -> None:
    def blocking(turn: Turn) -> str:
        time.sleep(0.05)
        return "Done."

    from agent import on_turn

    async with rehearsal(on_turn(blocking)) as call:
        said = await call.answer()
        assert said.text == "Done."
        assert said.start_s < 0.05


@virtual_time
async def test_what_does_not_happen_is_told_with_the_transcript() -> None:
    async with rehearsal(hook()) as call:
        await call.answer()
        with pytest.raises(AssertionError, match=r"within 2 s:\n.*Hello there\."):
            await call.hears("never", 2)


@virtual_time
async def test_settings_language_and_state_are_the_tests_own() -> None:
    async with rehearsal(
        hook(), conversation={"greet": False}, language="zh", caller="+44", state={"tries": 2}
    ) as call:
        await call.pause(1)
        assert call.words == []
        session = call.call.session
        assert (session.language, session.caller, session.state) == ("zh", "+44", {"tries": 2})


@virtual_time
async def test_speech_noise_and_mute_reach_the_recogniser_as_they_were() -> None:
    async with rehearsal(ScriptedHook(lambda turn: [])) as call:
        await call.noise(0.5)
        await call.pause(1)
        call.begins("one two three four five six", 3.0)
        await call.pause(1.45)
        call.mutes()
        await call.pause(2)
        assert call.turns == ["one two three"]


async def test_a_stage_needs_a_virtual_loop() -> None:
    with pytest.raises(AssertionError, match="virtual"):
        Stage(hook())


def test_a_failing_test_fails_and_leaves_no_task() -> None:
    seen: list[asyncio.AbstractEventLoop] = []

    @virtual_time
    async def failing() -> None:
        seen.append(asyncio.get_running_loop())
        async with rehearsal(hook()) as call:
            call.begins("hello", 5.0)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        failing()
    assert seen[0].is_closed()
