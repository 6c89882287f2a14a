"""When a turn is over, and replies begun before it surely is."""

from __future__ import annotations

import pytest

from agent.conversation import protocol as m
from agent.listening.endpoint import Evidence, Verdict
from agent.nlu.hook import Listen
from tests.agent.conversation.story import ENDPOINT_S, ByText, Story, kinds

PATIENT = Verdict(0.05, 1600.0)
DONE = Verdict(0.95, 300.0)


def by_last_word(evidence: Evidence) -> Verdict:
    """An estimator that knows fillers, digits and open conjunctions."""
    return PATIENT if evidence.text.rstrip(".").endswith(("emmm", "uhh", "and", "is", "seven", "one")) else DONE


def patient_story(**conversation: object) -> Story:
    return Story(end_of_turn=ByText(by_last_word), **conversation).greeted()


def test_a_slow_speaker_with_fillers_is_not_cut_off() -> None:
    story = patient_story()
    for text in ("I would like emmm", "I would like emmm to send uhh", "I would like emmm to send uhh my shoes back"):
        story.speak(0.8, text)
        story.wait(0.9 if text.endswith(("emmm", "uhh")) else 0.4)
    assert [ask.text for ask in story.asks("speech")] == ["I would like emmm to send uhh my shoes back"]
    assert not [c for c in story.commands if isinstance(c, m.StopReply)]


def test_a_phone_number_in_three_groups_with_pauses_is_one_turn() -> None:
    story = patient_story()
    story.do(m.Listened(Listen("digits", min_digits=10)))
    for text in ("zero seven nine one", "zero seven nine one two seven", "zero seven nine one two seven four four two"):
        story.speak(1.0, text)
        story.wait(0.8)
    assert [ask.text for ask in story.asks("speech")] == ["zero seven nine one two seven four four two"]


def test_a_pause_is_judged_on_all_that_is_known() -> None:
    estimator = ByText(lambda _: Verdict(0.1, 2000.0))
    story = Story(end_of_turn=estimator, language="en-GB").asking("What is your number?")
    story.do(m.Listened(Listen("digits", min_digits=6)))
    story.speak(1.0, "zero seven")
    story.wait(0.8)
    story.speak(1.0)
    request = next(c for c in reversed(story.commands) if isinstance(c, m.RequestFinal))
    story.do(m.FinalHeard(request.final_id, "zero seven nine", 0.9, end_of_turn=0.3))
    story.do(m.SoundJudged(request.final_id, 0.7))
    evidence = estimator.asked[-1]
    assert (evidence.text, evidence.stable) == ("zero seven nine", "zero seven nine")
    assert (evidence.asked, evidence.expect, evidence.min_digits) == ("What is your number?", "digits", 6)
    assert (evidence.end_of_turn, evidence.sound, evidence.language) == (0.3, 0.7, "en-GB")
    assert (evidence.speech_ms, evidence.silence_ms) == (2000, pytest.approx(192, abs=1))
    # 0.8 s were waited after the segment closed and the final came; the words since show that it was a pause.
    assert evidence.pause_ms == pytest.approx(192 + 40 + 800 - 64, abs=20)


def test_the_sound_of_an_earlier_pause_says_nothing_about_this_one() -> None:
    estimator = ByText(lambda _: Verdict(0.1, 2000.0))
    story = Story(end_of_turn=estimator).greeted()
    story.speak(1.0, "my name is")
    first = next(c for c in reversed(story.commands) if isinstance(c, m.RequestFinal))
    story.wait(0.2)
    story.speak(1.0, "my name is John")
    assert story.do(m.SoundJudged(first.final_id, 0.9)) == []
    story.wait(0.1)
    assert estimator.asked[-1].sound is None


def test_new_evidence_ends_the_turn_without_waiting_for_the_next_tick() -> None:
    story = Story(end_of_turn=ByText(lambda e: DONE if e.sound else PATIENT)).greeted()
    story.speak(1.0, "hello")
    story.wait(0.4)
    request = next(c for c in reversed(story.commands) if isinstance(c, m.RequestFinal))
    assert "Ask" in kinds(story.do(m.SoundJudged(request.final_id, 0.9)))


def test_a_cough_in_a_pause_teaches_nothing_about_the_caller() -> None:
    story = patient_story()
    story.speak(1.0, "my name is")
    story.wait(0.3)
    story.speak(0.3, "my name is")
    assert story.machine.caller.pauses.typical_ms is None


def test_one_utterance_delivered_as_several_finals_gives_one_reply() -> None:
    story = Story().greeted()
    story.speak(1.0, "where is")
    story.answer("where is my order")
    story.wait(1)
    story.answer("where is my order please")
    assert [ask.text for ask in story.asks("speech")] == ["where is my order"]


def test_a_late_transcript_of_one_turn_never_ends_the_next() -> None:
    story = Story().greeted()
    story.speak(1.0, "first")
    first = next(c for c in reversed(story.commands) if isinstance(c, m.RequestFinal))
    story.wait(1)
    story.audible()
    story.finish()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.5)
    assert story.do(m.FinalHeard(first.final_id, "first again")) == []
    assert story.do(m.FinalFailed(first.final_id)) == []
    assert story.machine.state is m.State.HEARING
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=500))
    assert story.do(m.FinalHeard(first.final_id, "first again")) == []
    story.answer("second")
    story.wait(1)
    assert [ask.text for ask in story.asks("speech")] == ["first", "second"]


@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_transcript_never_blocks_the_turn(text: str) -> None:
    story = Story().greeted()
    story.speak(1.0, text)
    assert story.machine.state is m.State.LISTENING
    story.speak(1.0, "hello")
    story.wait(1)
    assert [ask.text for ask in story.asks("speech")] == ["hello"]


def test_chatter_that_reads_as_nothing_opens_no_turns_however_long() -> None:
    story = Story(still_there_after_s=0.0).greeted()
    for _ in range(100):
        story.speak(1.5, "")
        story.wait(0.2)
    assert story.asks("speech") == []
    assert story.machine.state is m.State.LISTENING


def test_sound_that_goes_on_without_new_words_does_not_hold_the_floor() -> None:
    story = Story(max_turn_s=60.0).greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(1.0)
    story.do(m.PartialHeard("where is my order", "where is my order"))
    waited = story.until(m.RequestFinal, seconds=15)
    assert 9.9 <= waited <= 10.1
    story.answer("where is my order")
    story.wait(ENDPOINT_S + 0.1)
    assert story.ask().text == "where is my order"


# -- speculation -------------------------------------------------------------------------------------------------------


def test_a_reply_is_begun_at_a_likely_end_and_adopted_when_only_case_and_punctuation_changed() -> None:
    story = Story().greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(1.0)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=1000))
    assert story.do(m.PartialHeard("where is my order", "where is my order")) == [
        m.Speculate(2, "where is my order", 1.0)
    ]
    story.answer("Where is my order?")
    commands = story.wait(ENDPOINT_S)
    assert kinds(commands) == ["ResetEar", "Ask"]
    ask = story.ask()
    assert (ask.revision, ask.text, ask.speculated, story.machine.revision) == (2, "Where is my order?", True, 2)


def test_a_partial_that_may_still_change_begins_nothing() -> None:
    story = Story().greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(1.0)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=1000))
    assert story.do(m.PartialHeard("where is my order", "where is my")) == []


def test_a_final_with_other_words_begins_anew() -> None:
    story = Story().greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(1.0)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=1000))
    story.do(m.PartialHeard("my pin is 35", "my pin is 35"))
    assert story.answer("my pin is 3.5") == [m.DropSpeculation(2), m.Speculate(3, "my pin is 3.5", 0.9)]
    story.wait(ENDPOINT_S)
    assert (story.ask().revision, story.ask().speculated) == (3, True)


def test_speech_that_goes_on_drops_the_reply_and_the_whole_turn_is_asked() -> None:
    story = Story().greeted()
    story.speak(1.0, "my name is John")
    assert isinstance(story.commands[-1], m.Speculate)
    story.wait(0.1)
    assert story.do(m.VoiceBegan(ago_ms=64)) == [m.DropSpeculation(2)]
    story.wait(0.5)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=400))
    story.answer("my name is John Doe")
    story.wait(ENDPOINT_S)
    assert [(a.text, a.revision, a.speculated) for a in story.asks("speech")] == [("my name is John Doe", 3, True)]
    assert not [c for c in story.commands if isinstance(c, m.StopReply)]


@pytest.mark.parametrize(
    ("event", "then"),
    [
        (m.Typed("hello"), "Ask"),
        (m.DigitPressed("1"), None),
        (m.ClientCancelled(), None),
        (m.RespondAgain(), "Ask"),
    ],
)
def test_anything_else_the_caller_does_drops_it(event: m.Event, then: str | None) -> None:
    story = Story().greeted()
    story.speak(1.0, "where is my order")
    commands = story.do(event)
    assert commands[0] == m.DropSpeculation(2)
    assert then is None or kinds(commands)[-1] == then
    assert [c for c in commands if isinstance(c, m.Ask)] == [c for c in commands if getattr(c, "revision", 0) > 2]


def test_after_a_cancel_nothing_more_is_begun_in_this_turn() -> None:
    story = Story().greeted()
    story.speak(1.0, "where is my order")
    story.do(m.ClientCancelled())
    story.commands.clear()
    story.wait(ENDPOINT_S)
    assert kinds(story.commands) == ["ResetEar", "Ask"]
    assert not story.ask().speculated


def test_a_turn_is_guessed_at_three_times_at_most() -> None:
    story = Story().greeted()
    text = "one"
    for word in ("two", "three", "four", "five", "six"):
        story.speak(0.5, text)
        text = f"{text} {word}"
        story.wait(0.1)
    begun = [c for c in story.commands if isinstance(c, m.Speculate)]
    dropped = [c for c in story.commands if isinstance(c, m.DropSpeculation)]
    assert len(begun) == 3
    assert [c.revision for c in begun] == [c.revision for c in dropped]


def test_an_unlikely_end_or_a_switch_begins_nothing() -> None:
    unlikely = Story(end_of_turn=ByText(lambda _: Verdict(0.2, 500.0))).greeted()
    unlikely.speak(1.0, "hello")
    off = Story(speculate=False).greeted()
    off.speak(1.0, "hello")
    for story in (unlikely, off):
        story.wait(ENDPOINT_S)
        assert "Speculate" not in kinds(story.commands)
        assert not story.ask().speculated


def test_a_turn_that_goes_on_with_an_unanswered_one_is_not_guessed_at() -> None:
    story = Story().greeted()
    story.speak(1.0, "my name is John")
    story.wait(ENDPOINT_S)
    story.commands.clear()
    story.speak(0.6, "Doe")
    story.wait(ENDPOINT_S)
    assert "Speculate" not in kinds(story.commands)
    assert (story.ask().text, story.ask().again, story.ask().speculated) == ("my name is John Doe", True, False)


def test_a_hard_end_leaves_no_reply_out() -> None:
    patient = ByText(lambda _: Verdict(0.5, 1600.0))
    story = Story(end_of_turn=patient, max_call_s=60.0, still_there_after_s=0.0).greeted()
    story.wait(58.5)
    story.speak(1.0, "hello")
    assert isinstance(story.commands[-1], m.Speculate)
    commands = story.wait(0.4)
    assert kinds(commands) == ["DropSpeculation", "ResetEar", "Say"]
