"""Calls that outlive their connection, on scripted engines: the test is the clock."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from agent.errors import CallGone, MediaError
from agent.events import (
    AgentText,
    CallFault,
    CallResumed,
    CallSuspended,
    ClientData,
    PlayoutStarted,
    ReplyFinished,
    ReplyStarted,
    TurnTimings,
    UserTranscript,
)
from agent.line import CallClock
from agent.nlu.hook import Dtmf, Hangup, Send
from agent.testing import ScriptedPort
from tests.agent.test_call import Stage, stage

LONG = "We open at nine in the morning and close at six in the evening on every day of the week."


async def lose(s: Stage, *, reason: str = "peer vanished", silent_s: float = 0.0) -> None:
    port = s.port
    assert isinstance(port, ScriptedPort)
    port.peer_silence_s = silent_s
    port.closed = True
    assert port.sink is not None
    port.sink.on_closed(reason)
    await s.settle()


async def come_back(s: Stage) -> ScriptedPort:
    """Another connection is attached; returns the old port."""
    old, s.port = s.port, ScriptedPort()
    s.call.attach_port(s.port)
    await s.settle()
    return old


def sound(port: ScriptedPort) -> np.ndarray:
    return np.concatenate([frame for frame in port.sent if frame is not None] or [np.zeros(0, np.int16)])


async def test_without_leave_to_resume_a_vanished_peer_ends_the_call() -> None:
    async with stage(["Hello."]) as s:
        await lose(s)
        assert await asyncio.wait_for(s.call.wait_ended(), 5) == "peer vanished"
        with pytest.raises(CallGone):
            s.call.attach_port(ScriptedPort())


async def test_a_lost_call_waits_and_a_listening_one_goes_on_listening() -> None:
    async with stage(["Hello."], ["Until six."], texts=("when do you close",)) as s:
        assert s.call.allow_resume() == 30.0
        await s.until(lambda: s.of(ReplyFinished))
        await lose(s)
        assert s.call.suspended
        assert s.of(CallSuspended) == [CallSuspended("peer vanished", 30.0)]
        s.now += 25
        old = await come_back(s)
        assert old.closed
        assert s.call.suspended, "it is resumed by the first frame, not by the request"
        await s.speak(1.5)
        assert not s.call.suspended
        assert s.of(CallResumed)[0].away_s == pytest.approx(25, abs=0.1)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert [(i.role, i.text) for i in s.call.history.items] == [
            ("agent", "Hello."),
            ("user", "when do you close"),
            ("agent", "Until six."),
        ]
        assert len(s.of(TurnTimings)) == 1


async def test_a_reply_goes_on_at_the_word_it_broke_off_at() -> None:
    async with stage([LONG]) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(2.03)
        await lose(s)
        heard = s.call._speaking.running.speaker.heard()[0]  # type: ignore[union-attr]
        assert LONG.startswith(heard)
        assert heard.split()
        s.now += 12
        old = await come_back(s)
        await s.until(lambda: s.of(ReplyFinished))
        finished = s.of(ReplyFinished)[0]
        assert (finished.status, finished.heard, finished.unheard) == ("completed", LONG, "")
        assert len(s.of(ReplyStarted)) == 1
        whole = sum(len(word) + 1 for word in LONG.split()) * 60 * 24
        said = len(sound(old)) + len(sound(s.port))
        cut_word_s = (said - whole) / 24_000
        assert 0 <= cut_word_s < 0.75, "no more than the word that was cut is said twice"
        unbroken = len(heard.split())
        rest = sum(len(word) + 1 for word in LONG.split()[unbroken:]) * 60 * 24
        assert len(sound(s.port)) == pytest.approx(rest, abs=480)


async def test_what_left_for_a_peer_that_was_gone_already_is_said_again() -> None:
    async with stage([LONG]) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(4.0)
        await lose(s, silent_s=2.5)
        heard = s.call._speaking.running.speaker.heard()[0]  # type: ignore[union-attr]
        assert heard == "We open at nine in the", "1.5 s of it, without the word that was cut"
        s.call.hangup("test over")
        await asyncio.wait_for(s.call.wait_ended(), 5)
        finished = s.of(ReplyFinished)[0]
        assert finished.heard == heard
        assert f"{finished.heard} {finished.unheard}" == LONG
        assert s.call.history.items[-1].text == heard


@pytest.mark.parametrize(("policy", "again"), [("repeat", True), ("silent", False)])
async def test_the_policy_decides_what_becomes_of_a_broken_reply(policy: str, *, again: bool) -> None:
    async with stage([LONG], resume_policy=policy) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(2.0)
        await lose(s)
        await come_back(s)
        await s.until(lambda: s.of(ReplyFinished))
        finished = s.of(ReplyFinished)[0]
        if again:
            assert finished.heard == LONG
            whole = sum(len(word) + 1 for word in LONG.split()) * 60 * 24
            assert len(sound(s.port)) == pytest.approx(whole, abs=480)
        else:
            assert finished.status == "cancelled"
            assert finished.unheard
            assert len(sound(s.port)) < 24_000 * 0.1
            assert s.floor == "nobody"


async def test_speech_that_was_cut_off_is_read_and_belongs_to_the_turn() -> None:
    async with stage([], ["At nine."], texts=("when do you open",)) as s:
        s.call.allow_resume()
        await s.speak(1.5)
        await lose(s)
        assert len(s.hook.turns) == 1, "a turn is decided on when the caller is there"
        s.now += 20
        await come_back(s)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.hook.turns[1].text == "when do you open"
        assert s.of(TurnTimings)[0].response_ms < 1500


async def test_a_caller_lost_while_the_turn_is_being_decided_is_answered_after_coming_back() -> None:
    async with stage([], ["At nine."], texts=("when do you open",)) as s:
        s.call.allow_resume()
        await s.speak(1.5)
        await s.quiet(0.34)
        await lose(s)
        await come_back(s)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "At nine."


async def test_a_hook_that_answers_meanwhile_is_heard_after_coming_back() -> None:
    answer = asyncio.Event()
    async with stage(["Hi."], [answer, Send({"order": 7}), "It is on its way."], texts=("where is my order",)) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(ReplyFinished))
        await s.speak(1.5)
        await s.until(lambda: len(s.hook.turns) == 2)
        await lose(s)
        await asyncio.sleep(0.8)
        answer.set()
        await s.settle()
        assert s.of(ClientData) == [], "nobody is there to be sent anything"
        assert [e.text for e in s.of(AgentText)] == ["Hi.", "It is on its way."], "no filler for somebody who is away"
        s.now += 10
        await come_back(s)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "It is on its way."
        assert s.of(ClientData) == [ClientData({"order": 7})]
        assert s.of(TurnTimings) == [], "times of the network are not those of the answer"
        assert s.of(CallFault) == []


async def test_a_hook_that_hangs_up_meanwhile_waits_for_its_caller() -> None:
    answer = asyncio.Event()
    async with stage([], [answer, Dtmf("5"), Hangup()], texts=("goodbye then",)) as s:
        s.call.allow_resume()
        await s.speak(1.0)
        await s.until(lambda: len(s.hook.turns) == 2)
        await lose(s)
        answer.set()
        await s.settle()
        assert s.call.end_reason is None
        await come_back(s)
        await s.until(lambda: s.call.end_reason)
        assert s.call.end_reason == "agent hung up"
        assert s.port.dtmf == "5"


@pytest.mark.parametrize("policy", ["continue", "repeat", "silent"])
async def test_last_words_are_said_whatever_the_policy(policy: str) -> None:
    async with stage(["Goodbye and have a very nice day.", Hangup()], resume_policy=policy) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(0.5)
        await lose(s)
        await come_back(s)
        await s.until(lambda: s.call.end_reason)
        await asyncio.wait_for(s.call.wait_ended(), 5)
        assert s.call.end_reason == "agent hung up"
        assert s.of(ReplyFinished)[0].heard == "Goodbye and have a very nice day."


async def test_a_reply_paused_for_a_cough_goes_on() -> None:
    async with stage([LONG], texts=("",)) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(1.0)
        await s.speak(0.3)
        await lose(s)
        s.now += 5
        await come_back(s)
        await s.until(lambda: s.of(ReplyFinished))
        assert s.of(ReplyFinished)[0].heard == LONG


async def test_words_over_the_reply_just_before_the_loss_are_answered() -> None:
    async with stage([LONG], ["Of course."], texts=("no stop please wait",)) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(1.0)
        await s.speak(0.6)
        await lose(s)
        await come_back(s)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[0].status == "cancelled"
        assert s.hook.turns[1].text == "no stop please wait"
        assert [e.text for e in s.of(UserTranscript) if e.final] == ["no stop please wait"]


@pytest.mark.parametrize(
    ("reason", "end", "outcome"),
    [("peer vanished", "not resumed", "lost"), ("peer closed", "peer closed", "hung_up")],
)
async def test_a_call_nobody_comes_back_to_ends(reason: str, end: str, outcome: str) -> None:
    async with stage([LONG], resume_s=0.02) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(1.0)
        await lose(s, reason=reason)
        assert await asyncio.wait_for(s.call.wait_ended(), 5) == end
        assert s.parts.metrics.value("voice_calls_total", channel="browser", outcome=outcome) == 1
        with pytest.raises(CallGone):
            s.call.attach_port(ScriptedPort())


async def test_zero_seconds_switch_it_off() -> None:
    async with stage(["Hello."], resume_s=0) as s:
        assert s.call.allow_resume() == 0.0
        await lose(s)
        assert await asyncio.wait_for(s.call.wait_ended(), 5) == "peer vanished"


async def test_a_call_is_resumed_as_often_as_it_is_lost() -> None:
    async with stage([LONG]) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        for _ in range(3):
            await s.quiet(1.0)
            await lose(s)
            await come_back(s)
        await s.until(lambda: s.of(ReplyFinished))
        assert s.of(ReplyFinished)[0].heard == LONG
        assert len(s.of(CallSuspended)) == len(s.of(CallResumed)) == 3


async def test_a_client_that_notices_first_takes_the_call_along_and_the_old_port_is_mute() -> None:
    async with stage([LONG], ["Two."]) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(1.0)
        old = await come_back(s)
        assert old.closed
        assert s.of(CallSuspended)[0].reason == "replaced"
        assert old.sink is not None
        before = list(s.events)
        old.sink.on_audio(np.zeros(320, np.int16))
        old.sink.on_dtmf("7")
        old.sink.on_closed("peer vanished")
        await s.settle()
        assert s.events == before
        assert s.call.suspended
        await s.until(lambda: s.of(ReplyFinished))
        assert s.of(ReplyFinished)[0].heard == LONG


async def test_an_attempt_that_does_not_connect_leaves_the_call_waiting_for_the_next() -> None:
    async with stage(["Hello."]) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(ReplyFinished))
        await lose(s)
        await come_back(s)
        await lose(s, reason="not connected")
        assert len(s.of(CallSuspended)) == 1
        await come_back(s)
        await s.quiet(0.1)
        assert not s.call.suspended
        assert len(s.of(CallResumed)) == 1


async def test_hanging_up_ends_a_suspended_call_at_once() -> None:
    async with stage(["Hello."]) as s:
        s.call.allow_resume()
        await lose(s)
        s.call.hangup("caller hung up")
        assert await asyncio.wait_for(s.call.wait_ended(), 5) == "caller hung up"


async def test_leave_to_resume_can_be_taken_back() -> None:
    async with stage(["Hello."]) as s:
        s.call.allow_resume()
        await lose(s)
        s.call.forbid_resume("server stopped")
        assert await asyncio.wait_for(s.call.wait_ended(), 5) == "server stopped"


async def test_a_port_of_another_rate_is_refused_and_the_call_is_as_before() -> None:
    async with stage([LONG]) as s:
        s.call.allow_resume()
        await s.until(lambda: s.of(PlayoutStarted))
        with pytest.raises(MediaError, match="8000"):
            s.call.attach_port(ScriptedPort(8000))
        assert not s.call.suspended
        await s.until(lambda: s.of(ReplyFinished))


async def test_time_away_is_no_idleness_but_counts_towards_the_longest_call() -> None:
    async with stage([], idle_s=5.0) as s:
        s.call.allow_resume()
        await s.quiet(1.0)
        await lose(s)
        s.now += 20
        await come_back(s)
        await s.quiet(1.0)
        assert s.call.end_reason is None
    async with stage([], max_call_s=0.001) as s:
        s.call.allow_resume()
        await asyncio.sleep(0.002)
        with pytest.raises(CallGone):
            s.call.attach_port(ScriptedPort())


def test_a_stopped_clock_stands_still_and_goes_on_from_there() -> None:
    now = 10.0
    clock = CallClock(lambda: now)
    assert clock() == 10.0
    clock.stop()
    now = 14.0
    clock.stop()
    assert clock() == 10.0
    now = 17.0
    assert clock.go_on() == 7.0
    assert clock() == 10.0
    now = 18.5
    assert clock() == 11.5
    assert clock.go_on() == 0.0
