"""Replies begun before the turn was surely over: adopted in one step, or dropped without trace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from agent.events import (
    AgentText,
    CallFault,
    ClientData,
    PlayoutStarted,
    ReplyFinished,
    ReplyStarted,
    TurnTimings,
    UserTranscript,
)
from agent.nlu.hook import (
    Dtmf,
    Hangup,
    Listen,
    Send,
    Session,
    SwitchVoice,
    Turn,
    Uninterruptible,
)
from agent.speculation import MAX_VALUES, NotPlain, Premise, copied_session, plain_copy
from agent.tts.protocol import Style, Voice
from tests.agent.test_call import stage
from tests.agent.virtual import VirtualStage, virtual

HOURS = "what are your hours"
ANSWER = "We open at nine in the morning. We close at six in the evening."


def staged(*replies: Any, texts: tuple[str, ...] = (HOURS,), **conversation: Any) -> Any:
    # From probability 1.0 on: the turn machine itself guesses nothing, so that the test can.
    return stage(
        [], *replies, texts=texts, kind=VirtualStage, **{"speculate": True, "speculate_from": 1.0} | conversation
    )


async def ask(s: VirtualStage) -> None:
    """The caller asks; at the end a reply is guessed and has had time to be made."""
    await s.speak(1.5)
    await s.guess(HOURS)
    await s.quiet(0.1)


def sound(s: VirtualStage) -> np.ndarray:
    return np.concatenate([frame for frame in s.port.sent if frame is not None] or [np.zeros(0, np.int16)])


@virtual
async def test_an_adopted_reply_is_in_the_playout_within_the_step_that_decides() -> None:
    async with staged([ANSWER]) as s:
        s.parts.synthesizer.first_s = 0.05
        await ask(s)
        before = len(s.events)
        assert s.port.playout.queued_samples == 0
        assert s.hook.turns[1].speculative
        assert s.hook.turns[1].text == HOURS
        queued: list[int] = []
        start = s.call._speaking.ask

        def spy(ask: Any) -> None:
            start(ask)
            queued.append(s.port.playout.queued_samples)

        s.call._speaking.ask = spy  # type: ignore[method-assign]
        await s.until(lambda: queued)
        assert queued[0] > 24_000, "a clause is there before anything else can run"
        await s.until(lambda: s.of(PlayoutStarted))
        kinds = [type(event) for event in s.events[before:]]
        order = [UserTranscript, ReplyStarted, AgentText, PlayoutStarted]
        assert [kind for kind in kinds if kind in order][:3] == order[:3]
        assert not any(kind in (ReplyStarted, AgentText) for kind in kinds[: kinds.index(UserTranscript)])
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == ANSWER
        assert len(s.hook.turns) == 2
        (timings,) = s.of(TurnTimings)
        assert (timings.nlu_first_ms, timings.tts_first_ms) == (0, 0)
        assert timings.playout_ms <= 20.1
        assert timings.response_ms == pytest.approx(500, abs=60)
        assert [(i.role, i.text) for i in s.call.history.items] == [("user", HOURS), ("agent", ANSWER)]
        assert s.speculations("used") == 1
        assert s.parts.metrics.value("voice_speculation_seconds_total", result="used") == pytest.approx(0.05, abs=0.01)


@virtual
async def test_only_one_clause_is_made_ahead_and_all_of_it_is_heard_once_and_in_order() -> None:
    async with staged([ANSWER]) as s:
        await ask(s)
        assert s.parts.synthesizer.spoken == ["We open at nine in the morning."]
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.parts.synthesizer.spoken == [
            "We open at nine in the morning.",
            "We close at six in the evening.",
        ]
        seconds = sum(len(word) + 1 for word in ANSWER.split()) * 0.06
        assert len(sound(s)) / 24_000 == pytest.approx(seconds, abs=0.02)


@virtual
async def test_a_dropped_reply_leaves_no_trace() -> None:
    def reply(turn: Turn) -> list[Any]:
        turn.session.state["guesses"] = turn.session.state.get("guesses", 0) + 1
        return [Send({"page": 1}), Uninterruptible(), ANSWER, Listen("digits", 4)]

    async with staged(reply, ["Good."]) as s:
        s.parts.synthesizer.first_s = 0.05
        before = [event for event in s.events if not isinstance(event, UserTranscript)]
        history = s.call.history.items
        await s.guess(HOURS)
        await s.quiet(0.5)
        assert len(s.hook.turns) == 2
        await s.drop()
        assert s.hook.closed == 2
        await s.quiet(0.5)
        assert [event for event in s.events if not isinstance(event, UserTranscript)] == before
        assert len(sound(s)) == 0
        assert s.call.history.items == history
        assert dict(s.call.session.state) == {}
        assert s.call._speaking.running is None
        assert s.speculations("wasted") == 1
        assert s.parts.metrics.value("voice_speculation_seconds_total", result="wasted") == pytest.approx(0.05)
        assert s.parts.metrics.value("voice_nlu_first_text_seconds_count") == 0
        await s.speak(1.5)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "Good."


@virtual
async def test_actions_wait_for_the_turn_and_keep_their_places() -> None:
    reply = [
        Send({"page": 1}),
        "Look at this page. ",
        Send({"page": 2}),
        "And press one.",
        Dtmf("12"),
        Listen("digits", 4),
    ]
    async with staged(reply) as s:
        await ask(s)
        assert s.of(ClientData) == []
        await s.until(lambda: s.of(ReplyStarted)[1:])
        await s.until(lambda: s.of(ClientData))
        assert [e.data["page"] for e in s.of(ClientData)] == [1]
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert [e.data["page"] for e in s.of(ClientData)] == [1, 2]
        assert s.port.dtmf == "12"
        assert s.call._machine.expect == Listen("digits", 4)


@virtual
async def test_what_changes_the_voice_or_ends_the_call_waits_for_the_turn() -> None:
    async with staged([SwitchVoice("other"), "Goodbye now. ", Hangup()]) as s:
        await ask(s)
        assert s.call.voice == "heart"
        assert s.parts.synthesizer.spoken == []
        assert s.call.end_reason is None
        await s.until(lambda: s.call.end_reason)
        assert s.call.voice == "other"
        assert s.of(ReplyFinished)[1].heard == "Goodbye now."


@virtual
async def test_a_state_written_ahead_counts_once_the_reply_is_adopted() -> None:
    async def reply(turn: Turn) -> AsyncIterator[str]:
        turn.session.state["asked"] = [*turn.session.state.get("asked", []), turn.text]
        yield "We open at nine. "
        turn.session.state["nested"] = {"count": 1}
        yield "We close at six. "
        await asyncio.sleep(1.0)
        turn.session.state["nested"]["count"] += 1

    async with staged(texts=(HOURS, "thanks")) as s:
        s.hook.reply = reply  # type: ignore[method-assign]
        s.call.session.state["kept"] = True
        await ask(s)
        assert dict(s.call.session.state) == {"kept": True}
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert dict(s.call.session.state) == {"kept": True, "asked": [HOURS], "nested": {"count": 2}}
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 3)
        assert s.call.session.state["asked"] == [HOURS, "thanks"]


@virtual
async def test_a_state_that_changed_meanwhile_asks_anew() -> None:
    async with staged(["Old answer."], ["New answer."]) as s:
        s.call.session.state["basket"] = ["tea"]
        await ask(s)
        s.call.session.state["basket"].append("milk")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "New answer."
        assert s.hook.closed == 3
        assert not s.hook.turns[2].speculative
        assert s.hook.turns[2].session.state == {"basket": ["tea", "milk"]}
        assert s.speculations("wasted") == 1


@virtual
async def test_a_voice_that_was_switched_meanwhile_asks_anew() -> None:
    async with staged(["Old answer."], ["New answer."]) as s:
        await ask(s)
        s.call.configure(voice="other")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "New answer."


@pytest.mark.parametrize("broken", ["hook", "voice"])
@virtual
async def test_a_guess_that_failed_is_no_fault_and_the_turn_is_asked_anew(broken: str) -> None:
    first: list[Any] = [RuntimeError("boom")] if broken == "hook" else ["Never."]
    async with staged(first, ["All good."]) as s:
        s.parts.synthesizer.broken = broken == "voice"
        await ask(s)
        s.parts.synthesizer.broken = False
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "All good."
        assert s.of(CallFault) == []
        assert s.parts.metrics.value("voice_errors_total", part="nlu", type="HookError") == 0


@virtual
async def test_a_hook_that_fails_behind_the_first_clause_is_covered_as_ever() -> None:
    async with staged(["We open at nine. We close at six. ", RuntimeError("boom")]) as s:
        await ask(s)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        finished = s.of(ReplyFinished)[1]
        assert finished.heard.startswith("We open at nine. We close at six.")
        assert "something went wrong" in finished.heard
        assert len(s.of(CallFault)) == 1


@virtual
async def test_a_slow_hook_is_covered_from_the_end_of_the_turn_on() -> None:
    async with staged([1.5, "At nine."]) as s:
        await s.speak(1.5)
        await s.guess(HOURS)
        await s.until(lambda: s.of(ReplyStarted)[1:])
        began = s.now
        await s.until(lambda: s.of(AgentText))
        assert s.of(AgentText)[0].text == "One moment, please."
        assert s.now - began == pytest.approx(0.7, abs=0.05)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "One moment, please. At nine."


@virtual
async def test_a_hook_that_says_nothing_ahead_says_nothing() -> None:
    async with staged([]) as s:
        await ask(s)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == ""
        assert s.floor == "nobody"
        assert len(s.hook.turns) == 2


@pytest.mark.parametrize("why", ["hook", "load", "state", "setting"])
@virtual
async def test_a_guess_can_be_declined(why: str) -> None:
    async with staged(["At nine."], speculate=why != "setting") as s:
        if why == "hook":
            s.hook.speculate = False  # type: ignore[attr-defined]
        elif why == "load":
            parts = replace(s.parts, load=lambda: 0.9)
            s.call._speaking._parts = parts
        elif why == "state":
            s.call.session.state["lock"] = asyncio.Lock()
        await ask(s)
        assert len(s.hook.turns) == 1
        assert s.speculations("declined") == 1
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "At nine."
        assert not s.hook.turns[1].speculative


@virtual
async def test_whoever_hangs_up_during_a_guess_leaves_no_hook_open() -> None:
    silent = asyncio.Event()
    async with staged([silent]) as s:
        await ask(s)
        assert s.hook.closed == 1
        s.call.hangup("caller hung up")
        await s.call.wait_ended()
        assert s.hook.closed == 2
        assert s.speculations("wasted") == 1


@virtual
async def test_typed_text_takes_nothing_that_was_guessed_from_speech() -> None:
    async with staged(["Guessed."], ["Typed."]) as s:
        await s.guess(HOURS)
        await s.quiet(0.1)
        s._guessed = 0
        s.call.type_text("something else")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "Typed."
        assert s.hook.closed == 3


@virtual
async def test_a_guess_of_a_turn_that_goes_on_knows_its_beginning_only_once() -> None:
    silent = asyncio.Event()
    async with staged([silent], ["Hello John Doe."], texts=("my name is John", "Doe from York"), filler_after_s=0) as s:
        await s.speak(1.0)
        await s.until(lambda: len(s.hook.turns) == 2)
        await s.speak(1.0)
        await s.guess("my name is John Doe from York")
        assert s.hook.turns[2].history == ()
        await s.until(lambda: s.of(ReplyFinished)[-1].heard)
        assert len(s.hook.turns) == 3
        assert [i.text for i in s.call.history.items] == ["my name is John Doe from York", "Hello John Doe."]
        assert s.speculations("used") == 1


@virtual
async def test_a_guess_that_nobody_decides_on_is_closed() -> None:
    async with staged(["At nine."], max_call_s=10_000) as s:
        await s.guess(HOURS)
        await s.quiet(11.0)
        assert s.hook.closed == 2
        assert s.call._speaking._ahead is not None
        assert s.call._speaking._ahead.answer.reply.failed


@virtual
async def test_the_turn_machine_guesses_and_a_slow_hook_and_voice_cost_the_caller_nothing() -> None:
    async with staged([0.1, ANSWER], speculate_from=0.3) as s:
        s.parts.synthesizer.first_s = 0.1
        await s.speak(1.5)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert [turn.speculative for turn in s.hook.turns[1:]] == [True]
        (timings,) = s.of(TurnTimings)
        assert timings.response_ms == pytest.approx(timings.endpoint_ms, abs=21)
        assert s.of(ReplyFinished)[1].heard == ANSWER
        assert s.speculations("used") == 1


@virtual
async def test_whoever_goes_on_after_a_guess_is_answered_as_a_whole() -> None:
    def reply(turn: Turn) -> list[str]:
        return ["Both then."] if turn.text.endswith("milk") else ["Never."]

    async with staged(*[reply] * 4, texts=("tea please and also some milk",), speculate_from=0.3) as s:
        await s.speak(1.0)
        await s.quiet(0.3)
        assert s.hook.turns[1].speculative
        await s.speak(1.0)
        await s.until(lambda: s.of(ReplyFinished)[-1].heard)
        assert s.of(ReplyFinished)[-1].heard == "Both then."
        assert len(s.of(ReplyStarted)) == 2, "the greeting's and this one's"
        assert (s.speculations("used"), s.speculations("wasted")) == (1, 2)
        assert "Never." not in [event.text for event in s.of(AgentText)]
        assert [i.text for i in s.call.history.items] == ["tea please and also some milk", "Both then."]


def test_plain_data_is_copied_and_nothing_else() -> None:
    value = {"a": [1, 2.5, {"b": ("c", None)}], 3: {4, 5}, "raw": b"x"}
    copy = plain_copy(value)
    assert copy == value
    copy["a"][2]["b"] = ()
    copy[3].add(6)
    assert value == {"a": [1, 2.5, {"b": ("c", None)}], 3: {4, 5}, "raw": b"x"}

    class Mine(dict[str, int]):
        pass

    for refused in (object(), Mine(), [asyncio.Event], {"x": range(3)}, [0] * MAX_VALUES):
        with pytest.raises(NotPlain):
            plain_copy(refused)


def test_a_state_that_holds_itself_is_refused() -> None:
    ring: list[Any] = []
    ring.append(ring)
    with pytest.raises(NotPlain):
        plain_copy(ring)


def test_a_premise_holds_until_something_of_it_changes() -> None:
    session = Session("c", "browser", state={"a": [1]})
    turn = Turn(session, "speech", "hello")
    manner = (Voice(), Style())
    premise = Premise.of(turn, manner)
    assert premise.holds(turn, manner)
    assert premise.holds(replace(turn, text="Hello.", confidence=0.5), manner)
    assert not premise.holds(replace(turn, language="zh"), manner)
    assert not premise.holds(turn, (Voice("other"), Style()))
    copy = copied_session(session)
    copy.state["a"].append(2)
    assert premise.holds(turn, manner)
    session.state["a"].append(2)
    assert not premise.holds(turn, manner)
