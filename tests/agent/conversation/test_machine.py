"""Turn-taking in virtual time."""

from __future__ import annotations

import pytest

from agent.conversation import protocol as m
from agent.nlu.hook import Listen
from tests.agent.conversation.story import ENDPOINT_S, Story, kinds


def test_a_call_begins_with_the_greeting() -> None:
    story = Story()
    assert story.do(m.CallStarted()) == [m.Ask(1, "greeting")]
    assert story.machine.floor == "thinking"
    story.audible()
    assert story.machine.floor == "agent"


def test_without_a_greeting_the_agent_waits_for_the_caller() -> None:
    story = Story(greet=False)
    assert story.do(m.CallStarted()) == []
    assert story.machine.state is m.State.LISTENING


def test_a_turn_is_asked_after_the_endpoint_silence_and_not_before() -> None:
    story = Story().greeted()
    story.speak(1.0, "hello there")
    assert not any(isinstance(c, m.Ask) and c.kind == "speech" for c in story.commands)
    story.wait(0.2)
    assert story.machine.state is m.State.DECIDING
    commands = story.wait(0.1)
    assert kinds(commands) == ["ResetEar", "Ask"]
    ask = story.ask()
    assert (ask.kind, ask.text, ask.confidence) == ("speech", "hello there", 0.9)
    assert ask.last_speech_at is not None
    assert story.now - ask.last_speech_at == pytest.approx(ENDPOINT_S, abs=0.05)


def test_a_late_final_is_asked_at_once_when_the_silence_has_passed() -> None:
    story = Story().greeted()
    story.speak(1.0)
    assert story.wait(1.0) == []
    assert kinds(story.answer("hello")) == ["ResetEar", "Ask"]


def test_speech_in_the_pause_continues_the_same_turn() -> None:
    story = Story().greeted()
    story.speak(0.8, "my number is")
    first = story.machine.caller.final_id
    story.wait(0.1)
    story.speak(0.8)
    # The answer to the request before the pause comes late and must change nothing.
    assert story.do(m.FinalHeard(first, "my number is")) == []
    story.answer("my number is four two")
    story.wait(0.6)
    assert story.ask().text == "my number is four two"
    assert len([c for c in story.commands if isinstance(c, m.Ask) and c.kind == "speech"]) == 1


def test_noise_gives_no_turn() -> None:
    story = Story().greeted()
    story.speak(0.6, "")
    commands = story.wait(2)
    assert "Ask" not in kinds(commands)
    assert story.machine.state is m.State.LISTENING


def test_a_blip_shorter_than_speech_is_not_even_read() -> None:
    story = Story().greeted()
    story.commands.clear()
    story.speak(0.1)
    assert kinds(story.commands) == ["ResetEar"]
    assert story.machine.state is m.State.LISTENING


def test_speech_over_the_agent_pauses_it_within_200_ms() -> None:
    story = Story().answering()
    began = story.now
    story.do(m.VoiceBegan(ago_ms=64))
    while not story.commands:
        story.wait(0.02)
        assert story.now - began < 0.2
    assert story.commands == [m.PauseReply()]
    assert story.machine.floor == "caller"


def test_words_over_the_agent_cancel_its_reply() -> None:
    story = Story().answering()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.3)
    commands = story.do(m.PartialHeard("no wait I", stable="no wait"))
    assert commands == [m.StopReply(2, "barge_in")]
    assert story.machine.state is m.State.HEARING


def test_backchannel_does_not_stop_the_agent() -> None:
    story = Story().answering()
    story.speak(0.4, "Mhm.")
    assert [k for k in kinds(story.commands) if k != "RequestFinal"] == ["PauseReply", "ResetEar", "ResumeReply"]
    assert story.machine.state is m.State.SPEAKING


def test_a_cough_over_the_agent_resumes_it() -> None:
    story = Story().answering()
    story.speak(0.4, "")
    assert kinds(story.commands)[-1] == "ResumeReply"
    assert story.machine.state is m.State.SPEAKING


def test_long_speech_over_the_agent_cancels_even_without_words() -> None:
    story = Story().answering()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.9)
    assert story.commands == [m.PauseReply(), m.StopReply(2, "barge_in")]


def test_a_pause_without_evidence_ends_by_itself() -> None:
    story = Story().answering()
    story.speak(0.4)
    assert story.machine.state is m.State.PAUSED
    story.wait(3)
    assert kinds(story.commands)[-1] == "ResumeReply"
    assert story.machine.state is m.State.SPEAKING


def test_the_interrupting_turn_is_asked() -> None:
    story = Story().answering()
    story.speak(1.2, "where is my order")
    story.wait(0.6)
    assert "StopReply" in kinds(story.commands)
    assert story.ask().text == "where is my order"


def test_without_barge_in_the_agent_finishes_and_then_answers_what_was_said() -> None:
    story = Story(barge_in=False).answering()
    story.speak(1.0, "where is my order")
    assert "PauseReply" not in kinds(story.commands)
    assert "StopReply" not in kinds(story.commands)
    story.wait(1)
    assert story.machine.state is m.State.SPEAKING
    story.finish()
    story.wait(0.1)
    assert story.ask().text == "where is my order"


def test_speech_before_the_first_sound_continues_the_turn() -> None:
    story = Story().greeted()
    story.speak(1.0, "my name is John")
    story.wait(0.5)
    assert story.machine.state is m.State.THINKING
    story.speak(0.5, "Doe")
    story.wait(0.6)
    asks = [c for c in story.commands if isinstance(c, m.Ask) and c.kind == "speech"]
    assert [a.text for a in asks] == ["my name is John", "my name is John Doe"]
    assert m.StopReply(2, "barge_in") in story.commands


def test_a_cough_before_the_first_sound_does_not_lose_the_answer() -> None:
    story = Story().greeted()
    story.speak(1.0, "what are your hours")
    story.wait(0.5)
    story.speak(0.4, "")
    story.wait(0.6)
    assert [ask.text for ask in story.asks("speech")] == ["what are your hours"]
    assert m.ResumeReply("noise") in story.commands
    assert story.machine.state is m.State.THINKING


def test_a_long_noise_before_the_first_sound_does_not_lose_the_answer_either() -> None:
    story = Story().greeted()
    story.speak(1.0, "what are your hours")
    story.wait(0.5)
    story.speak(1.0, "")
    story.wait(0.6)
    assert [(ask.text, ask.again) for ask in story.asks("speech")] == [
        ("what are your hours", False),
        ("what are your hours", True),
    ]
    assert m.StopReply(2, "barge_in") in story.commands
    assert story.machine.state is m.State.THINKING


def test_a_cough_before_the_greeting_does_not_lose_it() -> None:
    story = Story()
    story.do(m.CallStarted())
    story.speak(0.4, "")
    assert kinds(story.commands) == ["Ask", "PauseReply", "RequestFinal", "ResetEar", "ResumeReply"]
    assert story.machine.state is m.State.THINKING
    story.speak(1.0, "")
    assert (story.ask().kind, story.ask().again, story.ask().revision) == ("greeting", True, 2)


def test_a_cough_after_keys_does_not_lose_the_entry() -> None:
    story = Story().greeted()
    for digit in "42#":
        story.do(m.DigitPressed(digit))
    story.speak(0.2)
    assert (story.ask().kind, story.ask().text, story.ask().again) == ("dtmf", "42", False)
    story.speak(1.0, "")
    assert (story.ask().kind, story.ask().text, story.ask().again) == ("dtmf", "42", True)
    story.speak(0.5, "hello")
    story.wait(ENDPOINT_S)
    assert (story.ask().kind, story.ask().text, story.ask().again) == ("speech", "hello", False)


def test_output_of_an_old_reply_changes_nothing() -> None:
    story = Story().answering()
    story.do(m.Typed("something else"))
    assert story.machine.state is m.State.THINKING
    assert story.do(m.ReplyAudible(2)) == []
    assert story.do(m.ReplyEnded(2, hang_up="agent hung up")) == []
    assert story.do(m.ReplyCloses(2, "agent hung up")) == []
    assert story.machine.state is m.State.THINKING


def test_yes_said_just_before_the_question_ends_is_heard() -> None:
    story = Story().answering()
    story.do(m.VoiceBegan(ago_ms=64))
    story.finish()
    assert story.machine.state is m.State.HEARING
    story.wait(0.3)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=400))
    story.answer("Yes.")
    story.wait(0.6)
    assert story.ask().text == "Yes."


def test_a_recogniser_that_fails_leads_to_an_apology_not_to_silence() -> None:
    story = Story().greeted()
    story.speak(1.0)
    story.do(m.FinalFailed(story.machine.caller.final_id))
    assert isinstance(story.commands[-1], m.Say)
    assert story.commands[-1].phrase == "apology"


def test_a_recogniser_that_hangs_is_replaced_by_its_last_partial() -> None:
    story = Story().greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(1)
    story.do(m.PartialHeard("where is my order", "where is my"))
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=1000))
    story.wait(5)
    assert story.ask().text == "where is my order"


def test_a_recogniser_that_hangs_without_a_partial_leads_to_an_apology() -> None:
    story = Story().greeted()
    story.speak(1.0)
    story.wait(5)
    assert isinstance(story.commands[-1], m.Say)


def test_hanging_up_waits_for_the_last_words_and_nothing_interrupts_them() -> None:
    story = Story().answering()
    story.do(m.ReplyCloses(2, "agent hung up"))
    story.speak(1.5)
    story.wait(1)
    assert "StopReply" not in kinds(story.commands)
    assert story.do(m.ReplyEnded(2, hang_up="agent hung up")) == [m.EndCall("agent hung up")]
    assert story.machine.state is m.State.ENDED


def test_a_paused_reply_that_hangs_up_goes_on() -> None:
    story = Story().answering()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.2)
    assert story.machine.state is m.State.PAUSED
    assert story.do(m.ReplyCloses(2, "agent hung up")) == [m.ResumeReply("guarded")]


def test_a_key_or_a_cancel_over_the_last_words_lets_them_end_the_call() -> None:
    story = Story().answering()
    story.do(m.ReplyCloses(2, "agent hung up"))
    story.do(m.DigitPressed("1"))
    story.do(m.ClientCancelled())
    assert story.wait(3) == []
    assert story.machine.state is m.State.CLOSING
    assert story.do(m.ReplyEnded(2)) == [m.EndCall("agent hung up")]


def test_digits_are_gathered_until_a_gap() -> None:
    story = Story().greeted()
    for digit in "42":
        story.do(m.DigitPressed(digit))
        story.wait(0.3)
    story.wait(1.5)
    assert (story.ask().kind, story.ask().text) == ("dtmf", "42")


def test_the_hash_key_ends_an_entry_at_once() -> None:
    story = Story().greeted()
    story.do(m.DigitPressed("7"))
    story.do(m.DigitPressed("#"))
    assert (story.ask().kind, story.ask().text) == ("dtmf", "7")


def test_an_expected_number_of_digits_ends_the_entry() -> None:
    story = Story().greeted()
    story.do(m.Listened(Listen("digits", min_digits=4)))
    for digit in "4271":
        story.do(m.DigitPressed(digit))
    assert story.ask().text == "4271"


def test_a_key_stops_the_agent() -> None:
    story = Story().answering()
    assert story.do(m.DigitPressed("1")) == [m.StopReply(2, "dtmf")]
    story.wait(2)
    assert story.ask().kind == "dtmf"


def test_a_typed_message_replaces_the_running_reply() -> None:
    story = Story().answering()
    assert kinds(story.do(m.Typed("returns"))) == ["StopReply", "ResetEar", "Ask"]


def test_cancel_from_the_client_silences_and_is_harmless_when_silent() -> None:
    story = Story().answering()
    assert story.do(m.ClientCancelled()) == [m.StopReply(2, "client")]
    assert story.machine.state is m.State.LISTENING
    assert story.do(m.ClientCancelled()) == []


def test_an_idle_call_ends_and_an_active_one_does_not() -> None:
    story = Story(idle_s=10.0).greeted()
    story.wait(8)
    story.speak(1.0, "hello")
    story.wait(1)
    story.audible()
    story.wait(30)
    assert story.machine.state is m.State.SPEAKING
    story.finish()
    story.wait(11)
    assert story.commands[-1] == m.EndCall("idle")


def test_the_longest_call_ends() -> None:
    story = Story(max_call_s=60.0, still_there_after_s=0.0).greeted()
    story.wait(61)
    assert story.commands[-1] == m.Say(2, "goodbye", hang_up="maximum call time")
    assert story.finish() == [m.EndCall("maximum call time")]


def test_a_muted_microphone_in_mid_speech_leaves_no_stuck_state() -> None:
    story = Story().greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.5)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=500))
    story.answer("where is")
    story.wait(0.6)
    assert story.ask().text == "where is"


def test_a_turn_without_an_end_is_taken_as_it_stands() -> None:
    story = Story(max_turn_s=20.0).greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(21)
    assert story.answer("the evening news") != []
    assert story.ask().text == "the evening news"
    story.audible()
    story.wait(5)
    assert story.machine.state is m.State.SPEAKING
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=26_000))
    story.finish()
    story.answer("")
    story.wait(2)
    assert story.machine.state is m.State.LISTENING
    assert kinds(story.commands).count("Ask") == 2


def test_an_entry_is_over_at_the_longest_that_is_expected_and_not_at_the_shortest() -> None:
    story = Story().greeted()
    story.do(m.Listened(Listen("digits", min_digits=4, max_digits=6)))
    for digit in "427150":
        story.do(m.DigitPressed(digit))
    assert (story.ask().kind, story.ask().text) == ("dtmf", "427150")


def test_a_longer_time_between_keys_may_be_expected() -> None:
    story = Story().greeted()
    story.do(m.Listened(Listen("digits", min_digits=4, digit_gap_s=5.0)))
    for digit in "4271":
        story.do(m.DigitPressed(digit))
        story.wait(3.0)
    assert (story.ask().kind, story.ask().text) == ("dtmf", "4271")
