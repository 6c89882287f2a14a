"""When the caller's turn is over: noise, hesitation, groups of digits, late and empty transcripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from agent.events import CallFault, SpeechStarted, TurnTimings, UserTranscript
from agent.media.frames import Pcm
from agent.media.g711 import mulaw_tables
from agent.media.resample import StreamResampler
from agent.nlu.hook import Listen
from agent.testing import Reading, ScriptedHook, ScriptedPort, ScriptedRecognizer, VirtualCall, virtual_time

OPEN = "We open at nine."


def asked(hook: ScriptedHook, text: str) -> list[str]:
    """Texts of the turns that hold this word, one for each wording."""
    return list(dict.fromkeys(turn.text for turn in hook.turns if text in turn.text))


@pytest.mark.parametrize("hook_s", [0.0, 0.5])
@pytest.mark.parametrize("gap_s", [0.1, 0.25, 0.45])
@virtual_time
async def test_a_cough_between_turn_and_answer_does_not_cost_the_answer(
    rehearse: Any, by_text: Any, gap_s: float, hook_s: float
) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [hook_s, OPEN]}))
    async with rehearse(hook, conversation={"filler_after_s": 0}) as call:
        await call.answer()
        await call.says("what are your hours")
        await call.pause(gap_s)
        await call.noise(0.2)
        said = await call.answer(5)
        assert (said.text, said.status) == (OPEN, "completed")
        await call.pause(3)
        assert call.turns == ["what are your hours"]
        assert [item.role for item in call.call.history.items] == ["agent", "user", "agent"]


@virtual_time
async def test_an_utterance_in_several_finals_gives_one_reply(rehearse: Any, by_text: Any) -> None:
    recognizer_finals = []
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "table": ["Done."]}, ["Go on."]))
    async with rehearse(hook) as call:
        recognizer = call.stage.recognizer
        await call.answer()
        for part in ("i would like", "to book", "a table"):
            await call.says(part)
            if part != "a table":
                await call.pause(0.3)
                recognizer_finals.append(recognizer.finals)
        said = await call.answer(5)
        assert recognizer_finals == sorted(set(recognizer_finals)), "each pause brought a final of its own"
        await call.pause(4)
        assert said.text == "Done."
        assert [said.text for said in call.replies if said.text] == ["Hi.", "Done."]
        assert call.turns == ["i would like to book a table"]


@virtual_time
async def test_a_late_transcript_does_not_end_the_next_turn(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [OPEN], "deliver": ["Every day."]}, ["Go on."]))
    async with rehearse(hook) as call:
        await call.answer()
        call.stage.recognizer.readings.append(Reading(after_s=4.6, text="what are your flowers"))
        await call.says("what are your hours")
        await call.until(lambda: any(said.text == OPEN for said in call.replies), 10)
        call.begins("and do you also deliver", 2.5)
        await call.pause(6)
        assert [said.text for said in call.replies if said.text] == ["Hi.", OPEN, "Every day."]
        assert call.turns == ["what are your hours", "and do you also deliver"]
        assert asked(hook, "flowers") == []


@virtual_time
async def test_a_microphone_muted_in_mid_speech_ends_the_turn(rehearse: Any) -> None:
    hook = ScriptedHook(lambda turn: ["Hi."] if turn.kind == "greeting" else [f"You said {turn.text}."])
    async with rehearse(hook) as call:
        await call.answer()
        call.begins("what are your opening hours today please", 3.0)
        await call.pause(1.6)
        call.mutes()
        said = await call.answer(5)
        assert said.text.startswith("You said what are your")
        assert "please" not in said.text
        await call.quiet(2)
        await call.says("and on sundays")
        assert (await call.answer(5)).text == "You said and on sundays."


class TelephonePort(ScriptedPort):
    """A caller behind a telephone network: 8 kHz, mu-law, both ways."""

    def __init__(self) -> None:
        super().__init__(8_000)
        self._down, self._up = StreamResampler(16_000, 8_000), StreamResampler(8_000, 16_000)
        self._heard = np.zeros(0, np.int16)

    def tick(self, pcm: Pcm | None = None) -> None:
        frame = np.zeros(320, np.int16) if pcm is None else pcm
        encode, decode = mulaw_tables()
        narrow = decode[encode[self._down.push(frame).view(np.uint16)]]
        self._heard = np.concatenate([self._heard, self._up.push(narrow)])
        # The resamplers hold a little back at first, as a jitter buffer would.
        ready, self._heard = self._heard[:320], self._heard[320:]
        super().tick(np.pad(ready, (0, 320 - len(ready))))


@virtual_time
async def test_a_caller_at_8_khz_has_the_same_end_of_turn(rehearse: Any, by_text: Any) -> None:
    waited = []
    for port in (ScriptedPort(), TelephonePort()):
        hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [OPEN]}))
        async with rehearse(hook, port=port, recognizer=ScriptedRecognizer(["what are your hours"])) as call:
            await call.until(lambda: call.replies)
            await call.says("what are your hours", 1.5)
            await call.until(lambda: len(call.replies) == 2)
            assert call.turns == ["what are your hours"]
            assert call.replies[1].text == OPEN
            (timings,) = call.of(TurnTimings)
            waited.append((timings.endpoint_ms, call.response_s() * 1000))
    (wide, wide_response), (narrow, narrow_response) = waited
    assert narrow == pytest.approx(wide, abs=45)
    assert narrow_response == pytest.approx(wide_response, abs=85)


@virtual_time
async def test_noise_alone_gives_no_turn(rehearse: Any) -> None:
    hook = ScriptedHook(lambda turn: ["Hi."] if turn.kind == "greeting" else ["Yes?"])
    async with rehearse(hook) as call:
        await call.answer()
        for seconds in (0.1, 0.4, 1.5):
            await call.noise(seconds)
            await call.pause(2.0)
        assert len(call.of(SpeechStarted)) >= 2, "the detector took it for speech"
        assert [turn.kind for turn in hook.turns] == ["greeting"]
        assert call.floor == "nobody"
        await call.says("hello there")
        assert (await call.answer(5)).text == "Yes?"


@virtual_time
async def test_an_empty_transcript_never_blocks_the_turn(rehearse: Any) -> None:
    hook = ScriptedHook(lambda turn: ["Hi."] if turn.kind == "greeting" else [f"You said {turn.text}."])
    async with rehearse(hook) as call:
        await call.answer()
        call.stage.recognizer.readings.extend([Reading(text="")] * 3)
        await call.says("what are your hours")
        await call.pause(4)
        assert call.floor == "nobody"
        call.stage.recognizer.readings.clear()
        await call.says("hello again")
        said = await call.until(lambda: [r for r in call.replies if r.text.endswith("hello again.")], 6)
        assert said[0].text == "You said hello again."


@pytest.mark.parametrize("reading", [Reading(fails=True), Reading(hangs=True)])
@virtual_time
async def test_a_recogniser_that_fails_or_hangs_costs_one_turn_at_most(rehearse: Any, reading: Reading) -> None:
    hook = ScriptedHook(lambda turn: ["Hi."] if turn.kind == "greeting" else [f"You said {turn.text}."])
    async with rehearse(hook) as call:
        await call.answer()
        call.stage.recognizer.readings.extend([reading] * 2)
        await call.says("what are your hours")
        said = await call.answer(10)
        assert said.text in ("You said what are your hours.", call.stage.settings.phrases.apology)
        call.stage.recognizer.readings.clear()
        await call.says("hello again")
        assert (await call.answer(6)).text == "You said hello again."
        if reading.fails:
            assert call.of(CallFault)[0].part == "asr"


@virtual_time
async def test_a_reply_begun_ahead_is_kept_when_only_case_and_marks_change(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [0.15, OPEN]}))
    async with rehearse(hook) as call:
        await call.answer()
        call.stage.recognizer.readings.append(Reading(after_s=0.1, text="What are your hours?"))
        await call.says("what are your hours")
        said = await call.answer(5)
        assert said.text == OPEN
        assert [turn.text.lower().rstrip("?") for turn in hook.turns if turn.text] == ["what are your hours"]
        assert call.turns == ["What are your hours?"]
        assert hook.turns[-1].speculative, "it was begun ahead of the decision"


@virtual_time
async def test_a_reply_begun_ahead_is_dropped_without_trace_when_the_caller_goes_on(
    rehearse: Any, by_text: Any
) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [OPEN], "sundays": ["Closed."]}))
    async with rehearse(hook) as call:
        await call.answer()
        await call.says("what are your hours")
        await call.pause(0.3)
        await call.says("on sundays")
        said = await call.answer(5)
        assert said.text == "Closed."
        assert call.heard == "Hi. Closed."
        assert [(i.role, i.text) for i in call.call.history.items] == [
            ("agent", "Hi."),
            ("user", "what are your hours on sundays"),
            ("agent", "Closed."),
        ]
        assert all(item.text != "what are your hours" for turn in hook.turns for item in turn.history)
        assert hook.closed == len(hook.turns)


@virtual_time
async def test_a_television_at_low_level_opens_no_turn_and_holds_none_open(rehearse: Any, by_text: Any) -> None:
    hook = ScriptedHook(by_text({"greeting": ["Hi."], "hours": [OPEN]}, ["What?"]))

    async def television(call: VirtualCall, seconds: float) -> None:
        await call.plays(call.lexicon.mark(np.resize(QUIET_VOICE, round(seconds * 16_000))))

    async with rehearse(hook) as call:
        await call.answer()
        await television(call, 4.0)
        assert call.of(SpeechStarted) == []
        await call.says("what are your hours?")
        spoken_at = call.now_s
        await television(call, 6.0)
        assert call.turns == ["what are your hours?"]
        assert call.replies[-1].text == OPEN
        assert call.audible(spoken_at, spoken_at + 1.0)


QUIET_VOICE = np.asarray(250 * np.sin(2 * np.pi * 180 * np.arange(16_000) / 16_000), np.int16)
"""About -45 dBFS."""


@virtual_time
async def test_yes_over_the_end_of_the_question_is_heard(rehearse: Any, by_text: Any) -> None:
    question = "Shall I put you through to a colleague now?"
    answers = {"greeting": [question, Listen("yes_no")], "yes": ["All right."]}
    hook = ScriptedHook(by_text(answers, ["What?"]))
    async with rehearse(hook) as call:
        await call.hears("colleague")
        await call.until(lambda: call.port.playout.queued_samples <= 0.2 * 24_000)
        await call.says("yes", 0.4)
        said = await call.until(lambda: [r for r in call.replies if r.text == "All right."], 5)
        assert said[0].status == "completed"
        assert call.turns == ["yes"]
        assert call.replies[0].text.startswith("Shall I put you through to a colleague")


@virtual_time
async def test_the_last_words_before_a_hang_up_reach_the_transcript(rehearse: Any) -> None:
    async with rehearse(ScriptedHook(["Hi."])) as call:
        await call.answer()
        call.begins("please cancel my order number five", 3.0)
        await call.pause(2.2)
        await call.hangs_up()
        (last,) = [event for event in call.of(UserTranscript) if event.final]
        assert last.text.startswith("please cancel my order")
        assert call.ended == "caller hung up"
