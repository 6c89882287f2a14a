"""What a caller hears of an agent that is slow, interrupted, guarded, silent or about to hang up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from agent.call import Call
from agent.conversation import protocol as turns
from agent.errors import NotInterruptible
from agent.events import (
    AgentText,
    CallEnded,
    CallFault,
    OutputCleared,
    OutputPaused,
    OutputResumed,
    PlayoutStarted,
    ReplyFinished,
    ReplyStarted,
    TurnTimings,
    UserTranscript,
)
from agent.nlu.hook import Listen, Play, Session, SwitchLanguage, Turn, Uninterruptible
from agent.testing import ScriptedPort
from agent.tts.protocol import Voice
from tests.agent.test_call import stage
from tests.agent.virtual import VirtualStage, virtual

LONG = "We open at nine in the morning and close at six in the evening on every day of the week."
FILLER = "One moment, please."
HOLD = "I'm still looking into that. Please stay on the line."


def staged(*replies: Any, **options: Any) -> Any:
    return stage(*replies, kind=VirtualStage, **options)


def gaps(s: VirtualStage) -> int:
    """Frames of silence between the first and the last sound."""
    heard = [index for index, frame in enumerate(s.port.sent) if frame is not None]
    return heard[-1] - heard[0] + 1 - len(heard) if heard else 0


# -- a slow hook -------------------------------------------------------------------------------------------------------


@virtual
async def test_a_filler_is_said_once_and_the_answer_follows_it_without_a_pause() -> None:
    async with staged([], [1.0, "We open at nine."]) as s:
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == f"{FILLER} We open at nine."
        assert [event.text for event in s.of(AgentText)] == [FILLER, "We open at nine."]
        assert gaps(s) == 0


@virtual
async def test_an_answer_that_comes_as_the_filler_is_about_to_start_takes_its_place() -> None:
    async with staged([], [0.71, "We open at nine."], filler_after_s=0.705) as s:
        await s.quiet(0.02)
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "We open at nine."
        assert [event.text for event in s.of(AgentText)] == ["We open at nine."]


@virtual
async def test_an_answer_whose_voice_is_slow_gets_no_filler() -> None:
    async with staged([], [0.65, "We open at nine."]) as s:
        s.parts.synthesizer.first_s = 0.5
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "We open at nine."


@virtual
async def test_a_hook_that_hangs_is_covered_three_times_and_the_call_lives_on() -> None:
    async with staged([], [asyncio.Event()], ["Fine."]) as s:
        began = s.now
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        apology = s.parts.settings.phrases.apology
        assert s.of(ReplyFinished)[1].heard == f"{FILLER} {HOLD} {apology}"
        assert s.of(ReplyFinished)[1].status == "failed"
        assert 10 < s.now - began < 17
        assert s.hook.closed == 2
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 3)
        assert s.of(ReplyFinished)[2].heard == "Fine."


@virtual
async def test_a_clip_before_the_first_word_covers_the_hook_while_it_plays() -> None:
    clip = np.full(24_000 * 12, 500, np.int16)
    async with staged([], [Play("music"), 11.5, "Thanks for waiting."], clips={"music": clip}) as s:
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "Thanks for waiting."
        assert s.of(CallFault) == []
        assert gaps(s) == 0


@virtual
async def test_after_the_clip_a_hook_that_is_still_silent_is_covered() -> None:
    clip = np.full(24_000 * 2, 500, np.int16)
    async with staged([], [Play("music"), 3.5, "Thanks for waiting."], clips={"music": clip}) as s:
        s.call.type_text("hours")
        await s.until(lambda: s.of(AgentText))
        silence = gaps(s) * 0.02
        assert s.of(AgentText)[0].text == FILLER
        assert silence == pytest.approx(0.7, abs=0.05)


@virtual
async def test_a_greeting_that_is_late_is_not_filled() -> None:
    async with staged([2.0, "Hello."]) as s:
        await s.until(lambda: s.of(ReplyFinished))
        assert s.of(ReplyFinished)[0].heard == "Hello."


# -- odd hooks ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [[], [Listen("digits", 4)], ["***"], ["\n\n"], [SwitchLanguage("zh")]])
@virtual
async def test_a_hook_without_a_word_leaves_the_floor_to_the_caller(reply: list[Any]) -> None:
    async with staged([], reply, ["Yes."], texts=("hello",)) as s:
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(PlayoutStarted) == []
        assert s.floor == "nobody"
        assert s.of(CallFault) == []
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 3)
        assert s.of(ReplyFinished)[2].heard == "Yes."


@virtual
async def test_a_hook_that_speaks_after_it_was_closed_is_not_heard() -> None:
    async def reply(turn: Turn) -> AsyncIterator[str]:
        if turn.text == "again":
            yield "Here I am."
            return
        try:
            yield "This is a long answer to a short question. "
            await asyncio.Event().wait()
        finally:
            yield "Never."

    async with staged() as s:
        s.hook.reply = reply  # type: ignore[method-assign]
        s.call.type_text("hours")
        await s.until(lambda: s.of(PlayoutStarted))
        s.call.cancel_reply()
        await s.quiet(2.0)
        s.call.type_text("again")
        await s.until(lambda: s.of(ReplyFinished)[-1].heard == "Here I am.")
        assert "Never." not in s.parts.synthesizer.spoken
        assert s.of(CallFault) == []


@virtual
async def test_a_language_switched_in_mid_reply_is_spoken_from_the_next_clause_on_without_a_gap() -> None:
    reply = ["It is 5 o'clock. ", SwitchLanguage("zh"), "现在5点。", "还有15分钟。"]
    async with staged([], reply) as s:
        s.call.type_text("time")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.parts.synthesizer.spoken == ["It is five o'clock.", "现在五点。", "还有十五分钟。"]
        assert s.call.language == "zh"
        assert gaps(s) == 0


# -- interruption ------------------------------------------------------------------------------------------------------


@virtual
async def test_after_a_cough_the_reply_goes_on_with_the_word_that_was_cut() -> None:
    async with staged([LONG], texts=("",)) as s:
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(0.9)
        await s.speak(0.4)
        assert s.of(OutputPaused)
        speaker = s.call._speaking.running.speaker  # type: ignore[union-attr]
        stopped = s.port.playout.position
        await s.until(lambda: s.of(OutputResumed))
        ends = np.cumsum([0, *((len(word) + 1) * 0.06 * 24_000 for word in LONG.split())]).round()
        start = max(end for end in ends if end <= stopped)
        assert s.port.playout.position - start in (0, 480), "at its first sample, or a frame after it"
        assert speaker is s.call._speaking.running.speaker  # type: ignore[union-attr]
        await s.until(lambda: s.of(ReplyFinished))
        assert s.of(ReplyFinished)[0].heard == LONG
        loudest = [int(np.abs(frame).max()) for frame in s.port.sent if frame is not None]
        assert min(loudest) > 0


@pytest.mark.parametrize("how", ["speech", "typed", "client", "key"])
@virtual
async def test_once_a_reply_is_given_up_not_a_sound_of_it_is_left_after_100_ms(how: str) -> None:
    async with staged(
        [LONG + " " + LONG], [asyncio.Event()], texts=("no wait stop please now",), filler_after_s=0
    ) as s:
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(1.0)
        match how:
            case "speech":
                await s.speak(1.2)
            case "typed":
                s.call.type_text("stop")
            case "client":
                s.call.cancel_reply()
            case "key":
                s.call.press("1")
        assert s.of(OutputCleared)
        before = len(s.port.sent)
        await s.quiet(1.0)
        assert [frame for frame in s.port.sent[before + 5 :] if frame is not None] == []
        if how != "speech":
            assert sum(frame is not None for frame in s.port.sent[before:]) <= 1, "a fade of 5 ms"
        assert s.of(ReplyFinished)[0].unheard


@virtual
async def test_a_reply_can_be_cut_though_its_hook_is_done() -> None:
    async with staged([LONG], ["Sure."], texts=("no wait stop please now",)) as s:
        await s.until(lambda: s.hook.closed)
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(0.5)
        await s.speak(1.2)
        assert s.of(ReplyFinished)[0].status == "cancelled"
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == "Sure."


@virtual
async def test_what_the_agent_says_is_told_to_whoever_judges_echo() -> None:
    async with staged([], [1.0, "We open at nine. ", "We close at six."]) as s:
        await s.quiet(0.1)
        told = s.told()
        s.call.type_text("hours")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        said = [event for event in told if isinstance(event, turns.AgentSays)]
        assert {event.revision for event in said} == {s.call._machine.revision}
        assert [event.text.strip() for event in said] == [FILLER, "We open at nine.", "We close at six."]


@virtual
async def test_an_uninterruptible_reply_refuses_the_client_from_there_on() -> None:
    more = asyncio.Event()
    async with staged(
        ["This call may be recorded. ", more, Uninterruptible(), "Please listen to this."], ["Now?"]
    ) as s:
        told = s.told()
        await s.until(lambda: s.of(PlayoutStarted))
        assert not s.call._speaking.guarded
        more.set()
        await s.settle()
        assert turns.ReplyGuarded(s.call._machine.revision) in told
        with pytest.raises(NotInterruptible, match="cannot be interrupted"):
            s.call.cancel_reply()
        await s.until(lambda: s.of(ReplyFinished))
        assert s.of(ReplyFinished)[0].heard == "This call may be recorded. Please listen to this."
        assert s.of(OutputCleared) == []
        s.call.type_text("next")
        await s.until(lambda: len(s.of(PlayoutStarted)) == 2)
        s.call.cancel_reply()
        assert s.of(ReplyFinished)[1].status == "cancelled"


@virtual
async def test_a_greeting_that_is_to_be_heard_refuses_the_client() -> None:
    async with staged(["Welcome to the shop."], greeting_interruptible=False) as s:
        await s.until(lambda: s.of(PlayoutStarted))
        with pytest.raises(NotInterruptible):
            s.call.cancel_reply()
        await s.until(lambda: s.of(ReplyFinished))
        s.call.cancel_reply()


@virtual
async def test_cancelling_while_nobody_speaks_is_nothing() -> None:
    async with staged([]) as s:
        await s.until(lambda: s.of(ReplyFinished))
        s.call.cancel_reply()
        assert s.of(OutputCleared) == []


@virtual
async def test_a_reply_cut_before_its_first_frame_leaves_neither_a_sound_nor_a_word() -> None:
    async with staged([], ["Something to say."]) as s:
        await s.quiet(0.02)
        s.call.type_text("hours")
        await s.settle()
        assert s.port.playout.queued_samples > 0
        s.call.cancel_reply()
        await s.quiet(0.5)
        assert [frame for frame in s.port.sent if frame is not None] == []
        assert [i.text for i in s.call.history.items] == ["hours"]


@virtual
async def test_history_says_when_it_was_said() -> None:
    async with staged(["Hello."], ["We open at nine."], texts=("hours",)) as s:
        await s.until(lambda: s.of(ReplyFinished))
        await s.quiet(1.0)
        spoke = s.now - 100.0
        await s.speak(1.5)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        hello, hours, answer = s.call.history.items
        assert 0 <= hello.at_s < hello.end_s <= spoke
        assert (hours.at_s, hours.end_s) == (pytest.approx(spoke, abs=0.1), pytest.approx(spoke + 1.5, abs=0.1))
        assert hours.end_s < answer.at_s
        seconds = sum(len(word) + 1 for word in "We open at nine.".split()) * 0.06
        assert answer.end_s - answer.at_s == pytest.approx(seconds, abs=0.05)
        assert answer.end_s == pytest.approx(s.now - 100.0, abs=0.05)


# -- the agent's own words ---------------------------------------------------------------------------------------------


@virtual
async def test_a_silent_caller_is_asked_and_at_last_bidden_goodbye() -> None:
    async with staged([], still_there_after_s=3.0, still_there_times=2) as s:
        await s.until(lambda: s.call.end_reason)
        phrases = s.parts.settings.phrases
        said = [event.heard for event in s.of(ReplyFinished)[1:]]
        assert said == [phrases.still_there, phrases.still_there, phrases.goodbye]
        assert s.call.end_reason == "silence"
        assert len(s.hook.turns) == 1
        assert s.of(TurnTimings) == []


@virtual
async def test_the_last_words_refuse_the_client() -> None:
    async with staged([], max_call_s=60.0, still_there_after_s=0) as s:
        goodbye = s.parts.settings.phrases.goodbye
        await s.until(lambda: any(event.text == goodbye for event in s.of(AgentText)), 70)
        with pytest.raises(NotInterruptible):
            s.call.cancel_reply()
        await s.until(lambda: s.call.end_reason == "maximum call time")
        assert s.of(ReplyFinished)[-1].heard == goodbye


@virtual
async def test_a_caller_who_answers_the_goodbye_into_the_silence_keeps_the_call() -> None:
    async with staged([], ["Good."], texts=("wait I am here",), still_there_after_s=3.0, still_there_times=1) as s:
        goodbye = s.parts.settings.phrases.goodbye
        await s.until(lambda: len(s.of(PlayoutStarted)) == 2)
        await s.quiet(0.5)
        await s.speak(1.0)
        await s.until(lambda: s.of(ReplyFinished)[-1].heard == "Good.")
        assert s.call.end_reason is None
        cut, answer, good = s.call.history.items[1:]
        assert goodbye.startswith(cut.text)
        assert cut.interrupted
        assert (answer.text, good.text) == ("wait I am here", "Good.")


@virtual
async def test_a_goodbye_that_could_not_be_made_still_ends_the_call() -> None:
    async with staged([], still_there_after_s=3.0, still_there_times=1) as s:
        s.parts.phrases._ready.clear()
        await s.until(lambda: s.call.end_reason == "silence")


@virtual
async def test_the_end_of_a_long_call_is_announced() -> None:
    async with staged([], max_call_s=60.0, end_warning_s=50.0, still_there_after_s=0) as s:
        await s.until(lambda: s.call.end_reason, 100)
        phrases = s.parts.settings.phrases
        assert [event.heard for event in s.of(ReplyFinished)[1:]] == [phrases.time_warning, phrases.goodbye]
        assert s.call.end_reason == "maximum call time"


@virtual
async def test_all_phrases_are_made_at_the_start() -> None:
    async with staged([]) as s:
        for name in ("filler", "hold", "apology", "still_there", "goodbye", "time_warning"):
            assert s.parts.phrases.phrase(name, Voice()) is not None


@virtual
async def test_the_hook_may_break_the_silence() -> None:
    async with staged([], [1.5, "Anything else?"], still_there_after_s=3.0, on_silence="hook") as s:
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert (s.hook.turns[1].kind, s.hook.turns[1].text) == ("silence", "")
        assert s.of(ReplyFinished)[1].heard == "Anything else?", "and nobody was asked for a moment"
        assert s.of(UserTranscript) == []
        assert s.of(TurnTimings) == []
        assert [i.text for i in s.call.history.items] == ["Anything else?"]


# -- the end of a call -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("final_s", "broken", "expected"),
    [
        (0.3, False, "please cancel my order today"),
        (5.0, False, "please cancel my"),
        (0.0, True, "please cancel my"),
    ],
)
@virtual
async def test_a_caller_who_hangs_up_in_mid_sentence_is_read_to_the_end_or_as_far_as_known(
    final_s: float, broken: bool, expected: str
) -> None:
    async with staged([], texts=("please cancel my order today",)) as s:
        await s.speak(1.0)
        s.recognizer.final_s, s.recognizer.broken = final_s, broken
        began = s.now
        s.port.sink.on_closed("peer closed")  # type: ignore[union-attr]
        await s.call.wait_ended()
        assert s.now - began < 1.1
        assert [e.text for e in s.of(UserTranscript) if e.final] == [expected]
        kinds = [type(event) for event in s.events]
        assert kinds.index(CallEnded) == len(kinds) - 1


@virtual
async def test_a_caller_who_hangs_up_before_the_first_reading_is_there_is_read() -> None:
    async with staged([], texts=("please cancel my order today",)) as s:
        s.recognizer.partials = False
        s.recognizer.final_s = 0.3
        await s.speak(1.0)
        await s.quiet(0.2)
        s.port.sink.on_closed("peer closed")  # type: ignore[union-attr]
        await s.call.wait_ended()
        assert [e.text for e in s.of(UserTranscript) if e.final] == ["please cancel my order today"]


@virtual
async def test_the_agents_own_voice_is_no_last_word_of_the_caller() -> None:
    async with staged([], [LONG], texts=("hours", LONG)) as s:
        await s.speak(1.0)
        await s.until(lambda: s.of(PlayoutStarted))
        await s.quiet(1.0)
        await s.speak(0.6)
        s.call.hangup("caller hung up")
        await s.call.wait_ended()
        assert [e.text for e in s.of(UserTranscript) if e.final] == ["hours"]


@virtual
async def test_last_words_that_go_on_with_an_unanswered_turn_are_one_contribution() -> None:
    async with staged([], [asyncio.Event()], texts=("my name is John", "Doe from York"), filler_after_s=0) as s:
        await s.speak(1.0)
        await s.until(lambda: len(s.hook.turns) == 2)
        await s.speak(1.0)
        s.port.sink.on_closed("peer closed")  # type: ignore[union-attr]
        await s.call.wait_ended()
        finals = [event for event in s.of(UserTranscript) if event.final]
        assert [event.text for event in finals] == ["my name is John", "my name is John Doe from York"]
        assert len({event.item_id for event in finals}) == 1


@virtual
async def test_a_click_on_hanging_up_is_no_last_word() -> None:
    async with staged([], texts=("thank you for watching",)) as s:
        await s.speak(0.1)
        s.port.sink.on_closed("peer closed")  # type: ignore[union-attr]
        await s.call.wait_ended()
        assert s.of(UserTranscript) == []


@virtual
async def test_the_agent_falls_silent_before_the_last_words_are_read() -> None:
    async with staged([], [LONG], texts=("hours", "and on")) as s:
        await s.speak(1.0)
        await s.until(lambda: s.of(PlayoutStarted))
        s.recognizer.final_s = 0.5
        s.call.hangup("caller hung up")
        await s.settle()
        assert s.of(ReplyFinished)[-1].status == "cancelled"
        await s.call.wait_ended()


# -- two callers -------------------------------------------------------------------------------------------------------


@virtual
async def test_two_callers_at_once_share_no_state() -> None:
    def reply(turn: Turn) -> list[Any]:
        turn.session.state.setdefault("said", []).append(turn.text or turn.kind)
        return [f"You are {turn.session.id}."]

    async with staged(*[reply] * 5) as s:
        port, told = ScriptedPort(), []
        other = Call(s.parts, port=port, session=Session("call_2", "browser"), observer=told.append)
        running = asyncio.create_task(other.run())
        await s.settle()
        await s.guess("mine")
        s._guessed = 0
        other.type_text("theirs")
        s.call.type_text("ours")
        for _ in range(200):
            port.tick()
            await s.quiet(0.02)
        assert s.call.session.state == {"said": ["greeting", "ours"]}
        assert other.session.state == {"said": ["greeting", "theirs"]}
        assert {e.heard for e in s.of(ReplyFinished) if e.status == "completed"} == {"You are call_1."}
        assert {e.heard for e in told if isinstance(e, ReplyFinished) and e.heard} == {"You are call_2."}
        assert len(s.of(ReplyStarted)) == 2
        other.hangup("test over")
        await running
