"""Silence and the limits of a call."""

from __future__ import annotations

import pytest

from agent.conversation import protocol as m
from agent.conversation.limits import GOODBYE_S
from agent.nlu.hook import Listen
from tests.agent.conversation.story import ENDPOINT_S, Story, kinds


def say(story: Story) -> m.Say:
    return next(c for c in reversed(story.commands) if isinstance(c, m.Say))


def test_silence_is_asked_into_twice_and_then_the_call_says_goodbye() -> None:
    story = Story(still_there_after_s=20.0, still_there_times=2).greeted()
    for _ in range(2):
        assert story.until(m.Say, seconds=25) == pytest.approx(20.0, abs=0.05)
        assert (say(story).phrase, say(story).hang_up) == ("still_there", None)
        story.audible("Are you still there?")
        story.wait(1.5)
        story.finish()
    assert story.until(m.Say, seconds=25) == pytest.approx(20.0, abs=0.05)
    assert (say(story).phrase, say(story).hang_up) == ("goodbye", "silence")
    story.audible()
    assert story.finish() == [m.EndCall("silence")]


@pytest.mark.parametrize("answer", ["voice", "keys", "typed"])
def test_whoever_answers_is_asked_as_often_again(answer: str) -> None:
    story = Story(still_there_after_s=10.0, still_there_times=1).greeted()
    story.until(m.Say, seconds=12)
    story.audible("Are you still there?")
    story.finish()
    match answer:
        case "voice":
            story.speak(0.5, "yes I am")
        case "keys":
            story.press("1#")
        case _:
            story.do(m.Typed("yes"))
    story.wait(1)
    story.audible()
    story.finish()
    story.until(m.Say, seconds=12)
    assert say(story).phrase == "still_there"


def bidden_goodbye(**conversation: object) -> Story:
    """In the middle of the goodbye into the silence."""
    story = Story(still_there_after_s=10.0, still_there_times=1, **conversation).greeted()
    story.until(m.Say, seconds=12)
    story.audible("Are you still there?")
    story.finish()
    story.until(m.Say, seconds=12)
    assert say(story).hang_up == "silence"
    story.audible("Goodbye.")
    story.wait(0.3)
    story.commands.clear()
    return story


@pytest.mark.parametrize("text", ["I am here", "yes", "okay"])
def test_whoever_answers_the_goodbye_into_the_silence_is_heard(text: str) -> None:
    story = bidden_goodbye()
    story.speak(0.5, text)
    assert m.StopReply(3, "barge_in") in story.commands
    story.wait(ENDPOINT_S)
    assert story.ask().text == text
    assert "EndCall" not in kinds(story.commands)


def test_an_answer_that_the_goodbye_into_the_silence_is_not_cut_for_still_keeps_the_call() -> None:
    story = bidden_goodbye(barge_in=False)
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.2)
    assert story.finish() == []
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=500))
    story.answer("I am here")
    story.wait(ENDPOINT_S)
    assert story.ask().text == "I am here"


@pytest.mark.parametrize("stops", [True, False])
def test_a_key_answers_the_goodbye_into_the_silence(stops: bool) -> None:
    story = bidden_goodbye(dtmf_barge_in=stops)
    story.press("1")
    story.finish()
    story.wait(2)
    assert (story.ask().kind, story.ask().text) == ("dtmf", "1")
    assert "EndCall" not in kinds(story.commands)


def test_a_cough_does_not_answer_the_goodbye_into_the_silence() -> None:
    story = bidden_goodbye()
    story.speak(0.4, "")
    story.wait(0.1)
    assert story.finish() == [m.EndCall("silence")]


def test_noise_is_no_answer() -> None:
    story = Story(still_there_after_s=10.0, still_there_times=1).greeted()
    story.until(m.Say, seconds=12)
    story.finish()
    story.speak(0.5, "")
    story.until(m.Say, seconds=12)
    assert say(story).phrase == "goodbye"


def test_the_hook_may_be_asked_instead_and_may_stay_silent() -> None:
    story = Story(still_there_after_s=10.0, still_there_times=2, on_silence="hook").greeted()
    for _ in range(2):
        story.until(m.Ask, seconds=12)
        assert (story.ask().kind, story.ask().text) == ("silence", "")
        story.finish()
    story.until(m.Say, seconds=12)
    assert say(story).hang_up == "silence"


def test_what_was_expected_is_still_expected_after_the_question_into_silence() -> None:
    for on_silence in ("phrase", "hook"):
        story = Story(still_there_after_s=10.0, on_silence=on_silence).greeted()
        story.do(m.Listened(Listen("digits", min_digits=4)))
        story.wait(11)
        story.finish()
        story.press("4271")
        assert (story.ask().kind, story.ask().text) == ("dtmf", "4271")


def test_zero_never_asks() -> None:
    story = Story(still_there_after_s=0.0, idle_s=100.0).greeted()
    story.wait(99)
    assert "Say" not in kinds(story.commands)


def test_questions_into_the_silence_do_not_keep_an_idle_call_alive() -> None:
    story = Story(still_there_after_s=10.0, still_there_times=10, idle_s=35.0).greeted()
    for _ in range(3):
        story.until(m.Say, seconds=12)
        story.audible("Are you still there?")
        story.finish()
    story.wait(6)
    assert story.commands[-1] == m.EndCall("idle")


def test_the_warning_waits_until_nobody_speaks_and_comes_once() -> None:
    story = Story(max_call_s=100.0, end_warning_s=60.0, still_there_after_s=0.0).greeted()
    story.wait(38)
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(5)
    assert "Say" not in kinds(story.commands)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=5000))
    story.answer("what are your hours")
    story.wait(1)
    story.audible()
    story.wait(3)
    assert "Say" not in kinds(story.commands)
    story.finish()
    story.wait(0.1)
    assert say(story).phrase == "time_warning"
    story.finish()
    story.wait(40)
    assert [c.phrase for c in story.commands if isinstance(c, m.Say)] == ["time_warning"]


@pytest.mark.parametrize("during", ["listening", "hearing", "speaking", "paused", "guarded"])
def test_when_time_is_up_the_call_says_goodbye_whatever_is_going_on(during: str) -> None:
    story = Story(max_call_s=60.0, still_there_after_s=0.0).greeted()
    story.wait(55)
    if during in ("speaking", "paused", "guarded"):
        story.speak(1.0, "what are your hours")
        story.wait(ENDPOINT_S)
        story.audible("We open at nine.")
    if during == "guarded":
        story.do(m.ReplyGuarded(2))
    story.wait(58.9 + 100 - story.now)
    if during in ("hearing", "paused"):
        story.wait(0.7)
        story.do(m.VoiceBegan(ago_ms=64))
        story.wait(0.3)
    assert story.machine.state.value == ("speaking" if during == "guarded" else during)
    story.wait(1.2)
    assert story.machine.state is m.State.CLOSING
    assert (say(story).phrase, say(story).hang_up) == ("goodbye", "maximum call time")
    assert [c.cause for c in story.commands if isinstance(c, m.StopReply)] == ["limit"] * (
        during in ("speaking", "paused", "guarded")
    )
    assert story.finish() == [m.EndCall("maximum call time")]


def test_a_goodbye_that_does_not_end_is_cut_off() -> None:
    story = Story(max_call_s=60.0, still_there_after_s=0.0).greeted()
    story.wait(60.1)
    assert story.machine.state is m.State.CLOSING
    story.wait(GOODBYE_S)
    assert story.commands[-1] == m.EndCall("maximum call time")
    assert story.machine.state is m.State.ENDED


def test_a_microphone_muted_in_mid_speech_ends_the_turn_even_without_the_end_of_a_segment() -> None:
    story = Story(max_turn_s=20.0).greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.5)
    story.do(m.PartialHeard("where is", "where is"))
    story.wait(11)
    story.answer("where is")
    story.wait(1)
    assert story.ask().text == "where is"


def test_a_microphone_muted_while_the_reply_is_paused_does_not_hold_it() -> None:
    story = Story().answering("We open at nine in the morning.")
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.3)
    story.do(m.PartialHeard("mhm", "mhm"))
    assert story.machine.state is m.State.PAUSED
    story.wait(4)
    assert story.machine.state is m.State.HEARING
