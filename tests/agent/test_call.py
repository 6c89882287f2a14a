"""A whole call on scripted engines: the test is the clock."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from agent.call import Call
from agent.config import Settings
from agent.errors import EngineError, ProtocolError
from agent.events import (
    AgentText,
    CallEnded,
    CallEvent,
    CallFault,
    ClientData,
    FloorChanged,
    MediaResumed,
    MediaStalled,
    OutputCleared,
    OutputPaused,
    OutputResumed,
    PlayoutStarted,
    ReplyFinished,
    SpeechStarted,
    SpeechStopped,
    TransferRequested,
    TurnTimings,
    UserTranscript,
)
from agent.nlu.hook import (
    Dtmf,
    Hangup,
    Listen,
    Play,
    Send,
    Session,
    SwitchLanguage,
    SwitchVoice,
    Transfer,
    Turn,
)
from agent.observe.metrics import Metrics
from agent.parts import CallParts
from agent.speech.phrases import PhraseBook
from agent.testing import ScriptedPort, ScriptedRecognizer, ScriptedSynthesizer, ScriptedVad, voice
from agent.testing.fakes import ScriptedStream
from agent.tts.protocol import Speech, Style, Voice

FRAME = 320


class Hook:
    """Answers with what the test gave it, or what that makes of the turn; remembers turns and that it was closed."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.turns: list[Turn] = []
        self.closed = 0

    async def reply(self, turn: Turn) -> AsyncIterator[Any]:
        self.turns.append(turn)
        reply = self.replies.pop(0) if self.replies else []
        if callable(reply):
            reply = reply(turn)
        try:
            for item in reply:
                if isinstance(item, float):
                    await asyncio.sleep(item)
                elif isinstance(item, Exception):
                    raise item
                elif isinstance(item, asyncio.Event):
                    await item.wait()
                else:
                    yield item
        finally:
            self.closed += 1


class Stage:
    """A running call, its caller and its clock."""

    def __init__(self, parts: CallParts, hook: Hook, recognizer: ScriptedRecognizer) -> None:
        self.parts, self.hook, self.recognizer = parts, hook, recognizer
        self.events: list[CallEvent] = []
        self.port = ScriptedPort()
        self.now = 50.0
        self.call = Call(
            parts,
            port=self.port,
            session=Session("call_1", "browser"),
            observer=self.events.append,
            now=lambda: self.now,
        )

    async def settle(self) -> None:
        """Let everything that is ready run."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def hear(self, pcm: np.ndarray) -> None:
        for start in range(0, len(pcm) - FRAME + 1, FRAME):
            self.now += 0.02
            self.port.tick(pcm[start : start + FRAME])
            await self.settle()

    async def quiet(self, seconds: float) -> None:
        await self.hear(np.zeros(round(seconds * 16_000), np.int16))

    async def speak(self, seconds: float) -> None:
        await self.hear(voice(seconds))

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        for _ in range(int(seconds / 0.02)):
            if condition():
                return
            await self.quiet(0.02)
        raise AssertionError(f"did not happen; {self.events[-10:]}")

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    @property
    def floor(self) -> str:
        return str(self.of(FloorChanged)[-1].floor)

    def audible(self, frames: int = 5) -> bool:
        return any(frame is not None and np.abs(frame).max() > 0 for frame in self.port.sent[-frames:])


@asynccontextmanager
async def stage(
    *replies: Any,
    texts: tuple[str, ...] = (),
    clips: Any = None,
    kind: type[Stage] = Stage,
    **conversation: Any,
) -> AsyncIterator[Stage]:
    # Replies begun ahead have tests of their own.
    settings = Settings(conversation={"speculate": False} | conversation, listening={"endpoint": "silence"})
    synthesizer = ScriptedSynthesizer()
    recognizer = ScriptedRecognizer(texts)
    phrases = PhraseBook(settings.phrases, synthesizer)
    await phrases.make([Voice()], Style())
    synthesizer.spoken.clear()
    hook = Hook(*replies)
    parts = CallParts(
        settings=settings,
        nlu=hook,
        recognizer=recognizer,
        synthesizer=synthesizer,
        vad=ScriptedVad(),
        phrases=phrases,
        clips=clips or {},
        metrics=Metrics(),
        voices=lambda: synthesizer.info.voices,
    )
    one = kind(parts, hook, recognizer)
    task = asyncio.create_task(one.call.run())
    await one.settle()
    try:
        yield one
    finally:
        one.call.hangup("test over")
        await asyncio.wait_for(task, 5)
        assert one.port.closed
        assert all(stream.closed for stream in recognizer.streams)
        assert one.parts.metrics.value("voice_calls_active", channel="browser") == 0
        others = [t for t in asyncio.all_tasks() if t is not asyncio.current_task() and "call_1" in t.get_name()]
        assert others == []
        assert one.of(CallEnded) == [CallEnded(one.call.end_reason or "")]


async def test_a_call_greets_listens_answers_and_times_the_answer() -> None:
    async with stage(["Hello there."], ["We open at nine."], texts=("what are your hours",)) as s:
        await s.until(lambda: s.of(ReplyFinished))
        assert s.hook.turns[0].kind == "greeting"
        await s.speak(1.5)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        turn = s.hook.turns[1]
        assert (turn.kind, turn.text) == ("speech", "what are your hours")
        assert [(i.role, i.text) for i in turn.history] == [("agent", "Hello there.")]
        finals = [e.text for e in s.of(UserTranscript) if e.final]
        assert finals == ["what are your hours"]
        partials = [e.text for e in s.of(UserTranscript) if not e.final]
        assert partials[0] == "what"
        assert len({e.item_id for e in s.of(UserTranscript)} | {s.of(SpeechStarted)[0].item_id}) == 1
        assert s.of(SpeechStopped)[0].audio_ms - s.of(SpeechStarted)[0].audio_ms == pytest.approx(1500, abs=70)
        assert s.of(ReplyFinished)[1].heard == "We open at nine."
        (timings,) = s.of(TurnTimings)
        assert timings.endpoint_ms == pytest.approx(500, abs=60)
        assert timings.response_ms == pytest.approx(500, abs=120)
        assert s.floor == "nobody"


async def test_a_reply_is_spoken_while_the_hook_still_writes() -> None:
    more = asyncio.Event()
    async with stage(["This is the first clause. ", more, "And this is the second."]) as s:
        await s.until(lambda: s.of(AgentText))
        await s.until(lambda: s.audible())
        assert s.hook.closed == 0
        more.set()
        await s.until(lambda: s.of(ReplyFinished))
        assert s.of(ReplyFinished)[0].heard == "This is the first clause. And this is the second."


async def test_barge_in_silences_within_200_ms_and_history_keeps_what_was_heard() -> None:
    long = "We open at nine in the morning and close at six in the evening on every day of the week."
    async with stage(["Hi."], [long], ["Sure."], texts=("hours", "no wait stop please now")) as s:
        await s.until(lambda: s.of(ReplyFinished))
        await s.speak(1.0)
        await s.until(lambda: len(s.of(PlayoutStarted)) == 2)
        await s.quiet(1.0)
        await s.speak(0.22)
        assert not s.audible(1)
        await s.speak(1.2)
        cleared = s.of(OutputCleared)
        assert len(cleared) == 1
        finished = s.of(ReplyFinished)[1]
        assert finished.status == "cancelled"
        assert finished.heard
        assert finished.unheard
        assert " ".join([finished.heard, finished.unheard]) == long
        await s.until(lambda: len(s.hook.turns) == 3)
        turn = s.hook.turns[2]
        assert turn.interrupted is not None
        assert turn.interrupted.heard == finished.heard
        assert turn.history[-1].unheard == finished.unheard
        assert s.hook.closed >= 2


async def test_a_cough_pauses_and_the_same_word_goes_on() -> None:
    long = "We open at nine in the morning and close at six in the evening."
    async with stage(["Hi."], [long], texts=("hours", "")) as s:
        await s.until(lambda: s.of(ReplyFinished))
        await s.speak(1.0)
        await s.until(lambda: len(s.of(PlayoutStarted)) == 2)
        await s.quiet(0.5)
        await s.speak(0.4)
        assert not s.audible()
        await s.until(lambda: s.audible(), 1.5)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == long
        assert s.of(OutputCleared) == []
        response_id = s.of(ReplyFinished)[1].response_id
        assert s.of(OutputPaused) == [OutputPaused(response_id)]
        assert s.of(OutputResumed) == [OutputResumed(response_id)]


async def test_what_the_caller_adds_before_the_first_sound_is_one_turn() -> None:
    silent = asyncio.Event()
    async with stage(
        ["Hi."],
        [silent, "never said"],
        ["Hello John Doe."],
        texts=("my name is John", "Doe from York"),
        filler_after_s=0,
    ) as s:
        await s.until(lambda: s.of(ReplyFinished))
        await s.speak(1.0)
        await s.until(lambda: len(s.hook.turns) == 2)
        await s.speak(1.0)
        await s.until(lambda: len(s.hook.turns) == 3)
        assert s.hook.turns[2].text == "my name is John Doe from York"
        assert [i.text for i in s.hook.turns[2].history if i.role == "user"] == []
        told = s.of(UserTranscript)
        assert len({event.item_id for event in told}) == 1
        assert [event.text for event in told if event.final] == ["my name is John", "my name is John Doe from York"]
        assert {event.text for event in told if not event.final} >= {"my name is", "my name is John Doe from York"}
        await s.until(lambda: len(s.of(ReplyFinished)) == 3)
        assert "never said" not in s.parts.synthesizer.spoken  # type: ignore[attr-defined]


@pytest.mark.parametrize("fault", [RuntimeError("boom"), ValueError()])
async def test_a_hook_that_crashes_is_covered_by_the_apology(fault: Exception) -> None:
    async with stage(["Hi."], ["Let me see. ", fault], ["All good."], texts=("hours", "hello")) as s:
        await s.until(lambda: s.of(ReplyFinished))
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        finished = s.of(ReplyFinished)[1]
        assert finished.status == "failed"
        assert finished.heard.startswith("Let me see.")
        assert "something went wrong" in finished.heard
        assert s.of(CallFault)[0].part == "nlu"
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 3)
        assert s.of(ReplyFinished)[2].heard == "All good."


async def test_a_dead_voice_is_covered_by_the_stored_apology() -> None:
    async with stage(["Hi."], ["We open at nine."], texts=("hours",)) as s:
        await s.until(lambda: s.of(ReplyFinished))
        s.parts.synthesizer.broken = True  # type: ignore[attr-defined]
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert "something went wrong" in s.of(ReplyFinished)[1].heard
        assert s.of(CallFault)[0].part == "tts"


async def test_a_dead_recogniser_is_covered_by_the_stored_apology() -> None:
    async with stage(["Hi."], texts=("hours",)) as s:
        await s.until(lambda: s.of(ReplyFinished))
        s.recognizer.broken = True
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert "something went wrong" in s.of(ReplyFinished)[1].heard
        assert s.of(CallFault)[0].part == "asr"


async def test_a_slow_hook_is_covered_by_filler_then_hold_then_apology() -> None:
    async with stage(
        ["Hi."], [30.0], filler_after_s=0.02, hold_after_s=0.06, apologise_after_s=0.12, texts=("hours",)
    ) as s:
        real = asyncio.get_running_loop().time
        ahead = s.now - real()  # the loop's clock counts from the machine's start, which may be long ago
        s.call._now._now = lambda: real() + ahead  # deadlines of the hook are on the real clock here
        await s.until(lambda: s.of(ReplyFinished))
        s.call.type_text("hours")

        async def wait() -> None:
            while len(s.of(ReplyFinished)) < 2:
                s.port.tick()
                await asyncio.sleep(0.001)

        await asyncio.wait_for(wait(), 20)
        heard = s.of(ReplyFinished)[1].heard
        settings = s.parts.settings.phrases
        assert [heard.index(p) for p in (settings.filler, settings.hold, settings.apology)] == sorted(
            heard.index(p) for p in (settings.filler, settings.hold, settings.apology)
        )
        assert heard.count(settings.filler) == 1
        assert s.hook.closed == 2


async def test_a_hook_that_says_nothing_leaves_the_floor_to_the_caller() -> None:
    async with stage(["Hi."], [], ["Yes."], texts=("hours", "hello")) as s:
        await s.until(lambda: s.of(ReplyFinished))
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(ReplyFinished)[1].heard == ""
        assert s.floor == "nobody"
        await s.speak(1.0)
        await s.until(lambda: len(s.of(ReplyFinished)) == 3)


async def test_actions_keep_their_place_among_the_text() -> None:
    reply = ["Look here. ", Send({"page": 2}), "Now press one. ", Dtmf("12"), Listen("digits", 4)]
    async with stage(reply) as s:
        await s.until(lambda: s.of(AgentText))
        assert s.of(ClientData) == []
        await s.until(lambda: s.of(ClientData))
        assert s.port.dtmf == ""
        await s.until(lambda: s.of(ReplyFinished))
        assert s.port.dtmf == "12"
        assert s.call._machine.expect == Listen("digits", 4)


async def test_hanging_up_waits_until_the_goodbye_was_heard() -> None:
    async with stage(["Hi."], ["Goodbye now.", Hangup(), "never"], texts=("bye",)) as s:
        await s.until(lambda: s.of(ReplyFinished))
        await s.speak(1.0)
        await s.until(lambda: s.call.end_reason)
        assert s.of(ReplyFinished)[1].heard == "Goodbye now."
        assert s.call.end_reason == "agent hung up"
        assert "never" not in s.parts.synthesizer.spoken  # type: ignore[attr-defined]


async def test_hanging_up_at_once_drops_the_rest() -> None:
    async with stage([], ["A very long goodbye indeed. ", Hangup(after_playout=False)]) as s:
        s.call.type_text("bye")
        await s.until(lambda: s.call.end_reason)
        assert s.of(ReplyFinished)[1].unheard


async def test_a_transfer_is_told_after_the_words_before_it() -> None:
    async with stage(["I put you through. ", Transfer("sip:people@shop.example")]) as s:
        await s.until(lambda: s.of(PlayoutStarted))
        assert s.of(TransferRequested) == []
        await s.until(lambda: s.call.end_reason)
        assert s.of(TransferRequested) == [TransferRequested("sip:people@shop.example")]
        assert s.call.end_reason == "transferred"


async def test_voice_and_language_switch_with_the_next_words() -> None:
    async with stage(["Hello. ", SwitchVoice("other"), SwitchLanguage("zh"), SwitchVoice("nobody"), "Hi."]) as s:
        await s.until(lambda: s.of(ReplyFinished))
        assert s.call.voice == "other"
        assert s.call.language == "zh"
        assert [f.part for f in s.of(CallFault)] == ["nlu"]


async def test_a_clip_plays_by_name_and_an_unknown_one_is_a_fault() -> None:
    clip = np.full(24_000, 500, np.int16)
    async with stage([Play("jingle")], [Play("nothing")], clips={"jingle": clip}) as s:
        await s.until(lambda: s.of(ReplyFinished))
        assert sum(frame is not None for frame in s.port.sent) == 50
        s.call.type_text("again")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert "jingle" in s.of(CallFault)[0].message


async def test_keys_make_a_turn_and_stop_the_agent() -> None:
    async with stage(["Press your number and hash now please. "], ["Thanks."]) as s:
        await s.until(lambda: s.audible())
        for digit in "42#":
            s.port.sink.on_dtmf(digit)  # type: ignore[union-attr]
            await s.settle()
        assert s.of(ReplyFinished)[0].status == "cancelled"
        assert (s.hook.turns[1].kind, s.hook.turns[1].text) == ("dtmf", "42")


async def test_a_silent_line_is_told_and_the_call_waits_for_it() -> None:
    async with stage() as s:
        s.port.sink.on_stalled(2.02)  # type: ignore[union-attr]
        s.port.sink.on_resumed(4.5)  # type: ignore[union-attr]
        assert s.of(MediaStalled) == [MediaStalled(2.02)]
        assert s.of(MediaResumed) == [MediaResumed(4.5)]
        s.call.hangup("caller hung up")
        await asyncio.wait_for(s.call.wait_ended(), 5)
        s.port.sink.on_stalled(9.0)  # type: ignore[union-attr]
        assert len(s.of(MediaStalled)) == 1


async def test_a_vanished_peer_ends_the_call_in_mid_reply() -> None:
    async with stage(["A long greeting that nobody hears to its end."]) as s:
        await s.until(lambda: s.audible())
        s.port.sink.on_closed("peer vanished")  # type: ignore[union-attr]
        assert await asyncio.wait_for(s.call.wait_ended(), 5) == "peer vanished"
        assert s.of(ReplyFinished)[0].status == "cancelled"
        assert s.parts.metrics.value("voice_calls_total", channel="browser", outcome="lost") == 1


async def test_the_last_words_of_a_caller_who_hangs_up_reach_the_transcript() -> None:
    async with stage([], texts=("please cancel my order today",)) as s:
        await s.speak(1.0)
        s.port.sink.on_closed("peer closed")  # type: ignore[union-attr]
        await asyncio.wait_for(s.call.wait_ended(), 5)
        assert [e.text for e in s.of(UserTranscript) if e.final] == ["please cancel my order today"]


async def test_ten_rapid_interruptions_leave_the_eleventh_turn_answered() -> None:
    async with stage([], *[["Something long to say here."]] * 10, ["The eleventh."]) as s:
        for number in range(10):
            s.call.type_text(f"question {number}")
            await s.quiet(0.04)
        s.call.type_text("the last one")
        await s.until(lambda: s.of(ReplyFinished)[-1].status == "completed" and len(s.hook.turns) == 12)
        assert s.of(ReplyFinished)[-1].heard == "The eleventh."


async def test_a_silent_microphone_ends_the_turn() -> None:
    async with stage([], ["Yes?"], texts=("where is my",)) as s:
        await s.speak(1.0)
        await s.until(lambda: len(s.hook.turns) == 2, 1.0)


async def test_cancel_by_the_client_stops_at_once() -> None:
    async with stage(["A long greeting that is cut."]) as s:
        await s.until(lambda: s.audible())
        s.call.cancel_reply()
        await s.quiet(0.04)
        assert not s.audible(1)
        s.call.cancel_reply()
        s.call.respond()
        await s.settle()
        assert s.hook.turns[-1].kind == "event"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"voice": "nobody"}, "session.voice"),
        ({"language": "tlh"}, "session.language"),
        ({"silence_ms": 5}, "session.turn_detection.silence_duration_ms"),
    ],
)
async def test_a_wrong_change_names_the_field_and_changes_nothing(change: dict[str, Any], field: str) -> None:
    async with stage([]) as s:
        with pytest.raises(ProtocolError) as caught:
            s.call.configure(**{"voice": "other", "language": "zh", "silence_ms": 300, **change})
        assert caught.value.field == field
        assert (s.call.voice, s.call.language) == ("heart", "en")


@pytest.mark.parametrize("text", ["", "   ", "x" * 5000])
async def test_a_typed_message_has_bounds(text: str) -> None:
    async with stage([]) as s:
        with pytest.raises(ProtocolError):
            s.call.type_text(text)


async def test_a_broken_observer_does_not_break_the_call() -> None:
    async with stage(["Hello."]) as s:

        def broken(event: CallEvent) -> None:
            s.events.append(event)
            raise RuntimeError("observer")

        s.call._observer = broken
        await s.until(lambda: s.of(ReplyFinished))


async def test_a_frame_that_cannot_be_read_is_survived_and_many_end_the_call() -> None:
    async with stage(["Hello."]) as s:
        await s.until(lambda: s.of(ReplyFinished))
        s.port.tick(np.zeros(7, np.int16))
        await s.quiet(0.1)
        assert s.call.end_reason is None
        for _ in range(60):
            s.port.tick(np.zeros(7, np.int16))
        assert s.call.end_reason == "internal error"


async def test_frames_that_fail_now_and_then_do_not_add_up_to_the_end() -> None:
    async with stage([]) as s:
        for _ in range(60):
            s.port.tick(np.zeros(7, np.int16))
            await s.quiet(0.02)
        assert s.call.end_reason is None


async def test_a_reading_that_was_overtaken_is_no_fault() -> None:
    async with stage(["Hi."], ["Sure."], texts=("hours",)) as s:
        await s.until(lambda: s.of(ReplyFinished))
        closed = asyncio.Event()

        async def final(stream: Any) -> Any:
            await closed.wait()
            raise EngineError("the stream is closed")

        with patch.object(ScriptedStream, "final", final):
            await s.speak(1.0)
            await s.quiet(0.3)
            s.call.type_text("never mind")
            closed.set()
            await s.settle()
        assert s.of(CallFault) == []
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.of(TurnTimings)[0].asr_final_ms is None


async def test_a_long_noise_after_keys_leaves_the_entry_answered_once() -> None:
    silent = asyncio.Event()
    async with stage([], [silent], ["Thanks."], texts=("",), filler_after_s=0) as s:
        for digit in "42#":
            s.call.press(digit)
        await s.until(lambda: len(s.hook.turns) == 2)
        await s.speak(1.0)
        await s.until(lambda: len(s.hook.turns) == 3)
        assert (s.hook.turns[2].kind, s.hook.turns[2].text) == ("dtmf", "42")
        assert s.hook.turns[2].history == ()
        await s.until(lambda: s.of(ReplyFinished)[-1].heard == "Thanks.")
        assert [i.text for i in s.call.history.items] == ["42", "Thanks."]


async def test_a_switched_language_is_spoken_too() -> None:
    async with stage(["Hello. ", SwitchLanguage("zh-CN"), "Ni hao."], ["Hao."]) as s:
        await s.until(lambda: s.of(ReplyFinished))
        assert s.call.speaking_as[0] == Voice("heart", "zh-CN")


async def test_a_language_without_a_voice_keeps_the_configured_one() -> None:
    async with stage([]) as s:
        info = s.parts.synthesizer.info
        s.parts.synthesizer.info = replace(info, languages=("en",))  # type: ignore[misc]
        s.call.configure(language="zh")
        assert s.call.language == "zh"
        assert s.call.speaking_as[0].language == "en"


async def test_a_call_in_a_language_that_nobody_hears_is_refused() -> None:
    async with stage([]) as s:
        with pytest.raises(ProtocolError) as caught:
            Call(s.parts, port=ScriptedPort(), session=Session("call_2", "browser", "tlh"), observer=s.events.append)
        assert caught.value.field == "language"


async def test_a_port_that_fails_to_close_leaves_nobody_waiting() -> None:
    async with stage([]) as s:

        class BrokenPort(ScriptedPort):
            async def close(self) -> None:
                raise OSError("no such socket")

        call = Call(s.parts, port=BrokenPort(), session=Session("call_3", "browser"), observer=lambda event: None)
        running = asyncio.create_task(call.run())
        await s.settle()
        call.hangup("caller hung up")
        assert await asyncio.wait_for(call.wait_ended(), 5) == "caller hung up"
        await asyncio.wait_for(running, 5)
        assert s.parts.metrics.value("voice_calls_active", channel="browser") == 1


async def test_a_task_that_will_not_end_does_not_keep_the_port_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.call.TASKS_DEADLINE_S", 0.05)
    async with stage([]) as s:
        port, told, freed = ScriptedPort(), [], asyncio.Event()
        call = Call(s.parts, port=port, session=Session("call_4", "browser"), observer=told.append)

        async def stubborn() -> None:
            while not freed.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await freed.wait()

        running = asyncio.create_task(call.run())
        await s.settle()
        stuck = call.spawn(stubborn(), "stubborn")
        await s.settle()
        call.hangup("caller hung up")
        await asyncio.wait_for(running, 5)
        assert port.closed
        assert CallEnded("caller hung up") in told
        freed.set()
        await stuck


async def test_a_call_cancelled_while_it_closes_still_tells_its_end() -> None:
    async with stage([]) as s:
        closing = asyncio.Event()

        class SlowPort(ScriptedPort):
            async def close(self) -> None:
                closing.set()
                await asyncio.Event().wait()

        call = Call(s.parts, port=SlowPort(), session=Session("call_5", "browser"), observer=lambda event: None)
        running = asyncio.create_task(call.run())
        await s.settle()
        call.hangup("caller hung up")
        await asyncio.wait_for(closing.wait(), 5)
        running.cancel()
        assert await asyncio.wait_for(call.wait_ended(), 5) == "caller hung up"
        await asyncio.gather(running, return_exceptions=True)


async def test_barge_in_closes_the_voice_that_waits_for_room() -> None:
    async with stage([]) as s:
        ended: list[str] = []

        async def endless(self: Any, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
            try:
                while True:
                    yield Speech(np.full(24_000, 500, np.int16))
            finally:
                ended.append(asyncio.current_task().get_name())  # type: ignore[union-attr]

        with patch.object(ScriptedSynthesizer, "stream", endless):
            s.hook.replies.append(["A clause without end."])
            s.call.type_text("go on")
            await s.quiet(0.2)
            assert ended == []
            s.call.cancel_reply()
            await s.settle()
        assert ended == ["call_1 reply 2"]


async def test_a_voice_is_switched_with_its_style() -> None:
    async with stage([SwitchVoice("other", "cheerful"), "Hi."], [SwitchVoice("heart"), "Hi."]) as s:
        await s.until(lambda: s.of(ReplyFinished))
        assert s.call.speaking_as == (Voice("other", "en"), Style(1.0, "cheerful"))
        s.call.type_text("back")
        await s.until(lambda: len(s.of(ReplyFinished)) == 2)
        assert s.call.speaking_as == (Voice("heart", "en"), Style(1.0))


async def test_a_part_that_fails_on_the_way_out_leaves_no_task_and_no_port(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> None:
        raise RuntimeError("listener")

    async def cut_short() -> None:
        async with stage(["A long greeting that is under way."]) as s:
            await s.until(lambda: s.audible())
            monkeypatch.setattr(s.call._hearing._listener, "close", broken)
            s.call.hangup("test over")
            assert await asyncio.wait_for(s.call.wait_ended(), 5) == "test over"
            assert s.port.closed
            assert s.call._tasks == set()

    with pytest.raises(RuntimeError, match="listener"):
        await cut_short()
