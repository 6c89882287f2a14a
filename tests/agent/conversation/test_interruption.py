"""Speech, keys and noise over the agent."""

from __future__ import annotations

import pytest

from agent.conversation import protocol as m
from agent.conversation.interruption import SETTLE_S
from agent.nlu.hook import Listen
from tests.agent.conversation.story import ENDPOINT_S, Story, kinds

HOURS = ("We open at nine in the morning,", "and close at half past five.")


@pytest.mark.parametrize("text", ["mhmm", "uh-huh", "Okay.", "Yeah, okay.", "mhm mhm"])
def test_a_listeners_response_does_not_stop_the_agent_for_good(text: str) -> None:
    story = Story().answering(*HOURS)
    story.speak(0.5, text)
    assert [k for k in kinds(story.commands) if k != "RequestFinal"] == ["PauseReply", "ResetEar", "ResumeReply"]
    assert story.commands[-1] == m.ResumeReply("backchannel")
    story.finish()
    story.wait(3)
    assert "Ask" not in kinds(story.commands)


def test_a_long_response_is_still_none_of_an_interruption() -> None:
    story = Story().answering(*HOURS)
    story.speak(1.2, "yeah okay right", partials=("yeah", "yeah okay", "yeah okay right"))
    assert "StopReply" not in kinds(story.commands)
    assert story.machine.state is m.State.SPEAKING


@pytest.mark.parametrize(
    ("text", "language", "min_words", "stopped"),
    [
        ("wait", "en", 1, True),
        ("wait", "en", 2, False),
        ("no wait", "en", 2, True),
        ("等等", "zh", 2, True),
        ("等等", "zh", 3, False),
    ],
)
def test_so_many_words_take_the_floor(text: str, language: str, min_words: int, stopped: bool) -> None:
    story = Story(language=language, barge_in_min_words=min_words).answering(*HOURS)
    story.speak(0.5, text)
    assert ("StopReply" in kinds(story.commands)) is stopped
    assert ("ResumeReply" in kinds(story.commands)) is not stopped


def test_too_few_words_are_an_answer_when_the_reply_ends_right_after() -> None:
    story = Story(barge_in_min_words=2).answering("Shall I book it?")
    story.speak(0.5, "Please.")
    story.wait(0.3)
    story.finish()
    story.wait(ENDPOINT_S)
    assert story.ask().text == "Please."


def test_a_cough_resumes_within_a_second_of_its_end_even_if_it_is_never_read() -> None:
    story = Story().answering(*HOURS)
    story.speak(0.4)
    assert story.until(m.ResumeReply) + 0.192 <= 1.0
    assert story.machine.state is m.State.SPEAKING


def test_a_reply_over_which_nothing_is_meant_does_not_stutter_for_ever() -> None:
    story = Story().answering(*HOURS)
    for _ in range(6):
        story.speak(0.4)
        story.answer("")
        story.wait(0.5)
    assert kinds(story.commands).count("PauseReply") == 2
    story.speak(0.6, "no wait", partials=("no", "no wait"))
    assert "StopReply" in kinds(story.commands), "words still stop it"


@pytest.mark.parametrize("reading", ["", None], ids=["read as nothing", "never read"])
def test_who_coughs_twice_still_interrupts_with_one_word(reading: str | None) -> None:
    story = Story().answering(*HOURS)
    for _ in range(2):
        story.speak(0.4, reading)
        story.wait(1.5)
    story.speak(0.4, "stop")
    assert m.StopReply(2, "barge_in") in story.commands
    story.wait(ENDPOINT_S)
    assert story.ask().text == "stop"


@pytest.mark.parametrize(("reading", "takes_s"), [("", 1.3), ("okay but I", 1.3), ("okay", 3.1)])
def test_who_coughed_twice_and_speaks_on_takes_the_floor_though_the_recogniser_is_stuck(
    reading: str, takes_s: float
) -> None:
    story = Story().answering(*HOURS)
    for _ in range(2):
        story.speak(0.4, "")
        story.wait(0.5)
    story.do(m.VoiceBegan(ago_ms=64))
    if reading:
        story.do(m.PartialHeard(reading, "okay"))
    assert story.until(m.StopReply) == pytest.approx(takes_s, abs=0.1)


def test_words_that_are_read_late_still_stop_the_agent() -> None:
    story = Story().answering(*HOURS)
    story.speak(0.5)
    story.wait(1.5)
    assert story.machine.state is m.State.SPEAKING
    assert story.answer("stop please")[0] == m.StopReply(2, "barge_in")
    story.wait(ENDPOINT_S)
    assert story.ask().text == "stop please"


def test_a_recogniser_that_fails_over_a_reply_lets_it_go_on() -> None:
    story = Story().answering(*HOURS)
    story.speak(0.5)
    request = next(c for c in reversed(story.commands) if isinstance(c, m.RequestFinal))
    story.do(m.FinalFailed(request.final_id))
    story.wait(0.1)
    assert story.commands[-1] == m.ResumeReply("noise")


def test_barge_in_works_while_audio_is_queued_after_the_hook_has_ended() -> None:
    story = Story().answering(*HOURS)
    # The hook's end is no event; the reply runs until ReplyEnded, however long its sound is queued.
    story.wait(20)
    story.speak(0.8, "stop", partials=("stop",))
    assert m.StopReply(2, "barge_in") in story.commands


def test_ten_rapid_interruptions_before_any_text_leak_nothing_and_the_eleventh_turn_is_answered() -> None:
    story = Story().greeted()
    for number in range(11):
        story.speak(0.5, f"word{number}")
        story.wait(ENDPOINT_S)
    asks, stops = story.asks("speech"), [c for c in story.commands if isinstance(c, m.StopReply)]
    assert len(asks) == 11
    assert [stop.revision for stop in stops] == [ask.revision for ask in asks[:-1]]
    assert asks[-1].text == " ".join(f"word{number}" for number in range(11))
    for ask in asks[:-1]:
        assert story.do(m.ReplyAudible(ask.revision)) == []
        assert story.do(m.ReplyEnded(ask.revision, hang_up="leak")) == []
    assert story.machine.state is m.State.THINKING
    story.audible()
    assert story.machine.state is m.State.SPEAKING


def test_a_name_that_goes_on_just_after_the_reply_started_is_one_turn() -> None:
    story = Story().greeted()
    story.speak(1.0, "My name is John")
    story.wait(ENDPOINT_S)
    story.audible("Nice to meet you,")
    story.wait(0.3)
    story.speak(0.5, "Doe")
    story.wait(ENDPOINT_S)
    assert m.StopReply(2, "barge_in") in story.commands
    assert [(ask.text, ask.again) for ask in story.asks("speech")] == [
        ("My name is John", False),
        ("My name is John Doe", True),
    ]


def test_what_is_said_later_over_the_reply_is_a_turn_of_its_own() -> None:
    story = Story().answering(*HOURS)
    story.speak(0.8, "and on Sundays")
    story.wait(ENDPOINT_S)
    assert (story.ask().text, story.ask().again) == ("and on Sundays", False)


def test_an_expectation_holds_for_a_turn_that_goes_on() -> None:
    story = Story().greeted()
    story.do(m.Listened(Listen("digits", min_digits=6)))
    story.speak(1.0, "zero seven")
    story.wait(ENDPOINT_S)
    assert story.machine.expect == Listen()
    story.speak(0.8, "nine one", partials=("nine one",))
    assert story.machine.expect == Listen("digits", min_digits=6)


# -- echo --------------------------------------------------------------------------------------------------------------


def test_the_agents_own_voice_coming_back_does_not_interrupt_it() -> None:
    story = Story().answering(*HOURS)
    story.speak(1.2, "at nine in the mourning", partials=("at nine", "at nine in the mourning"))
    assert story.commands[-1] == m.ResumeReply("echo")
    assert "StopReply" not in kinds(story.commands)
    # From here on the line is known to have echo: the agent does not even stutter.
    story.commands.clear()
    story.speak(0.6, "half past five", partials=("half past five",))
    assert [k for k in kinds(story.commands) if k != "RequestFinal"] == ["ResetEar"]
    story.finish()
    story.wait(2)
    assert "Ask" not in kinds(story.commands)


def test_a_caller_on_a_line_with_echo_can_still_interrupt() -> None:
    story = Story().answering(*HOURS)
    story.speak(0.6, "at nine in the morning")
    story.commands.clear()
    story.speak(0.8, "stop please", partials=("stop please",))
    assert m.StopReply(2, "barge_in") in story.commands


def echoing() -> Story:
    """In the middle of an answer, on a line that is known to have echo."""
    story = Story().answering(*HOURS)
    story.speak(0.6, "at nine in the morning")
    story.wait(0.5)
    assert story.commands[-1] == m.ResumeReply("echo")
    story.commands.clear()
    return story


def test_a_few_words_of_an_echo_that_are_hardly_trusted_stop_nothing() -> None:
    story = echoing()
    story.speak(0.8, "what mourning", 0.5)
    story.finish()
    story.wait(2)
    assert not {"PauseReply", "StopReply", "Ask"} & set(kinds(story.commands))


def test_a_few_words_that_are_trusted_stop_the_agent_in_spite_of_an_echo() -> None:
    story = echoing()
    story.speak(0.8, "stop please", 0.7)
    assert m.StopReply(2, "barge_in") in story.commands


@pytest.mark.parametrize("partials", [(), ("no", "no I want", "no I want to know")], ids=["final only", "partials"])
def test_words_that_are_hardly_trusted_stop_the_agent_in_spite_of_an_echo(partials: tuple[str, ...]) -> None:
    story = echoing()
    story.speak(1.5, "no I want to know", 0.5, partials=partials)
    stopped = kinds(story.commands).index("StopReply")
    assert "RequestFinal" not in kinds(story.commands[:stopped]), "before the caller has ended"
    story.wait(ENDPOINT_S)
    assert story.ask().text == "no I want to know"


def test_before_the_answer_is_heard_hardly_trusted_words_are_no_echo_of_it() -> None:
    story = echoing()
    story.finish()
    story.wait(1)
    story.speak(1.0, "where is my order", 0.5)
    story.wait(ENDPOINT_S)
    assert story.machine.state is m.State.THINKING
    story.speak(0.6, "from last week", 0.5)
    story.wait(ENDPOINT_S)
    assert story.ask().text == "where is my order from last week"


def first_word(text: str) -> Story:
    """The reply is paused; the first word over it is read 100 ms after its end, sooner than a next one would begin."""
    story = Story().answering(*HOURS)
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.3)
    story.do(m.VoiceEnded(ago_ms=100, speech_ms=260))
    story.answer(text)
    assert story.machine.state is m.State.PAUSED
    return story


def test_an_echo_of_one_word_is_over_when_no_second_one_follows() -> None:
    story = first_word("at nine")
    assert story.until(m.ResumeReply) + 0.1 == pytest.approx(SETTLE_S, abs=0.03)


def test_the_reply_does_not_go_on_between_two_words_of_which_the_first_reads_as_an_echo() -> None:
    story = first_word("and close")
    story.wait(0.08)
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.4)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=300))
    story.answer("and close my account")
    assert not {"ResumeReply", "ResetEar"} & set(kinds(story.commands))
    story.wait(ENDPOINT_S)
    assert story.ask().text == "and close my account"


def test_an_echo_of_the_last_words_after_the_reply_opens_no_turn() -> None:
    story = Story().answering(*HOURS)
    story.do(m.VoiceBegan(ago_ms=64))
    story.finish()
    story.wait(0.3)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=300))
    story.answer("past five")
    story.wait(1)
    assert "Ask" not in kinds(story.commands)
    assert story.machine.state is m.State.LISTENING


def test_the_same_words_said_later_are_the_callers() -> None:
    story = Story().answering(*HOURS)
    story.finish()
    story.wait(1.0)
    story.speak(0.8, "half past five")
    story.wait(ENDPOINT_S)
    assert story.ask().text == "half past five"


def test_without_the_guard_our_words_count_as_anybodys() -> None:
    story = Story(echo_guard=False).answering(*HOURS)
    story.speak(0.6, "at nine in the morning")
    assert m.StopReply(2, "barge_in") in story.commands


# -- answers near the end ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Yes.", "Yeah.", "Okay.", "Right, sure."])
def test_an_answer_200_ms_before_the_question_ends_is_heard(text: str) -> None:
    story = Story().answering("Shall I book it?")
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.14)
    story.finish()
    story.wait(0.3)
    story.do(m.VoiceEnded(ago_ms=192, speech_ms=400))
    story.answer(text)
    story.wait(ENDPOINT_S)
    assert story.ask().text == text


def test_an_answer_that_paused_the_end_of_the_question_is_heard_when_it_has_ended() -> None:
    story = Story().answering("Shall I book it?")
    story.speak(0.4, "Yeah.")
    assert story.commands[-1] == m.ResumeReply("backchannel")
    story.wait(0.2)
    story.finish()
    story.wait(ENDPOINT_S)
    assert story.ask().text == "Yeah."


@pytest.mark.parametrize(
    ("asked", "language", "text"), [("需要预订吗？", "zh", "好的"), ("Soll ich buchen?", "de", "klar")]
)
def test_other_languages_answer_too(asked: str, language: str, text: str) -> None:
    story = Story(language=language).answering(asked)
    story.speak(0.4, text)
    story.finish()
    story.wait(ENDPOINT_S)
    assert story.ask().text == text


def test_the_hook_can_say_that_it_asked() -> None:
    story = Story().answering("Tell me if that is right.")
    story.do(m.Listened(Listen("yes_no")))
    story.speak(0.4, "Right.")
    story.finish()
    story.wait(ENDPOINT_S)
    assert story.ask().text == "Right."


@pytest.mark.parametrize("text", ["yes", "no"])
def test_a_word_that_the_agent_offered_is_an_answer(text: str) -> None:
    story = Story().answering("Please say yes or no.")
    story.do(m.Listened(Listen("yes_no")))
    story.speak(0.4, text)
    story.finish()
    story.wait(ENDPOINT_S)
    assert story.ask().text == text


def test_a_response_in_the_middle_of_a_long_question_answers_nothing() -> None:
    story = Story().answering("Is it the one that we talked about?")
    story.speak(0.4, "Mhm.")
    story.wait(3)
    story.finish()
    story.wait(1)
    assert "Ask" not in kinds(story.commands)
    assert story.machine.state is m.State.LISTENING


def test_okay_after_a_statement_has_ended_is_a_turn() -> None:
    story = Story().answering(*HOURS)
    story.finish()
    story.wait(0.5)
    story.speak(0.5, "Okay.")
    story.wait(ENDPOINT_S)
    assert story.ask().text == "Okay."


# -- replies that are not interrupted ----------------------------------------------------------------------------------


def guarded(**conversation: object) -> Story:
    story = Story(**conversation).answering("This call is recorded.")
    story.do(m.ReplyGuarded(2))
    return story


def test_speech_and_cancel_do_not_stop_a_guarded_reply_but_are_heard_afterwards() -> None:
    story = guarded()
    story.speak(1.2, "where is my order", partials=("where is my order",))
    story.do(m.ClientCancelled())
    story.wait(1.0)
    assert set(kinds(story.commands)) == {"RequestFinal"}
    story.finish()
    story.wait(ENDPOINT_S)
    assert story.ask().text == "where is my order"


def test_keys_over_a_guarded_reply_are_entered_when_it_ends() -> None:
    story = guarded()
    story.press("42#")
    story.wait(3)
    assert story.commands == []
    story.finish()
    assert (story.ask().kind, story.ask().text) == ("dtmf", "42")


def test_a_response_over_a_guarded_reply_is_no_turn_afterwards() -> None:
    story = guarded()
    story.speak(0.5, "mhm")
    story.wait(2)
    story.finish()
    story.wait(1)
    assert "Ask" not in kinds(story.commands)


def test_a_reply_that_is_guarded_while_paused_goes_on() -> None:
    story = Story().answering("This call is recorded.")
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.2)
    assert story.do(m.ReplyGuarded(2)) == [m.ResumeReply("guarded")]
    assert story.wait(2) == []
    assert story.machine.state is m.State.SPEAKING


def test_the_greeting_is_guarded_by_a_setting() -> None:
    story = Story(greeting_interruptible=False)
    story.do(m.CallStarted())
    story.speak(1.0, "hello hello")
    story.audible("Welcome to the shop.")
    story.speak(1.0, "hello hello where is my order")
    story.press("1")
    story.do(m.ClientCancelled())
    assert not {"StopReply", "PauseReply"} & set(kinds(story.commands))
    story.finish()
    story.wait(2)
    assert story.ask().text == "hello hello where is my order 1"


def test_a_guard_ends_with_its_reply() -> None:
    story = guarded()
    story.finish()
    story.speak(1.0, "where is my order")
    story.wait(ENDPOINT_S)
    story.audible("It is on its way to you.")
    story.wait(1)
    story.speak(0.8, "stop", partials=("stop",))
    assert m.StopReply(3, "barge_in") in story.commands


def test_interrupting_a_finished_reply_is_nothing() -> None:
    story = Story().answering(*HOURS)
    story.finish()
    story.commands.clear()
    story.do(m.ReplyGuarded(2))
    story.do(m.ClientCancelled())
    assert story.commands == []
    assert story.machine.state is m.State.LISTENING


def test_a_typed_message_stops_even_a_guarded_reply() -> None:
    story = guarded()
    assert kinds(story.do(m.Typed("hello"))) == ["StopReply", "ResetEar", "Ask"]


def test_a_reply_that_ends_while_paused_leaves_the_playout_free() -> None:
    story = Story().answering(*HOURS)
    story.do(m.VoiceBegan(ago_ms=64))
    story.wait(0.2)
    assert story.finish() == [m.ResumeReply("ended")]
    assert story.machine.state is m.State.HEARING


# -- keys --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["setting", "hook"])
def test_keys_do_not_stop_the_agent_when_told_not_to_and_are_entered_afterwards(by: str) -> None:
    story = Story(dtmf_barge_in=by != "setting").answering("Enter your number.")
    story.do(m.Listened(Listen("digits", min_digits=4, dtmf_barge_in=by != "hook")))
    story.press("4271")
    story.wait(2)
    assert story.commands == []
    story.finish()
    assert (story.ask().kind, story.ask().text) == ("dtmf", "4271")


def test_an_entry_that_is_not_over_when_the_reply_ends_goes_on() -> None:
    story = Story(dtmf_barge_in=False).answering("Enter your number.")
    story.do(m.Listened(Listen("digits", min_digits=4)))
    story.press("42")
    story.finish()
    story.press("71")
    assert story.ask().text == "4271"


def test_keys_and_then_voice_are_one_turn_in_order() -> None:
    story = Story().greeted()
    story.press("12")
    story.speak(1.0, "three four")
    story.wait(ENDPOINT_S)
    assert [(a.kind, a.text) for a in story.commands if isinstance(a, m.Ask)][1:] == [("speech", "12 three four")]


def test_voice_and_then_keys_are_one_turn_in_order() -> None:
    story = Story().greeted()
    story.speak(1.0, "three four")
    story.press("56")
    story.wait(1.0)
    assert story.asks("speech") == []
    story.wait(1.0)
    assert [(a.kind, a.text) for a in story.commands if isinstance(a, m.Ask)][1:] == [("speech", "three four 56")]


def test_keys_between_words_stay_there() -> None:
    story = Story().greeted()
    story.speak(0.8, "three")
    story.press("4")
    story.speak(0.8, "three five")
    story.wait(2)
    assert story.ask().text == "three 4 five"


def test_keys_before_the_answer_is_heard_go_on_with_the_spoken_turn() -> None:
    story = Story().greeted()
    story.speak(1.0, "my number is")
    story.wait(ENDPOINT_S)
    assert m.StopReply(2, "dtmf") in story.press("42#")
    assert (story.ask().kind, story.ask().text, story.ask().again) == ("speech", "my number is 42", True)


def test_the_tones_own_sound_does_not_hold_the_entry_back() -> None:
    story = Story().greeted()
    story.do(m.VoiceBegan(ago_ms=64))
    story.press("42")
    story.wait(2)
    assert (story.ask().kind, story.ask().text) == ("dtmf", "42")


def test_keys_with_noise_are_keys() -> None:
    story = Story().greeted()
    story.press("42")
    story.speak(1.0, "")
    story.wait(1)
    assert (story.ask().kind, story.ask().text) == ("dtmf", "42")


def test_an_entry_with_the_hash_key_ends_a_spoken_turn_at_once() -> None:
    story = Story().greeted()
    story.speak(1.0, "three four")
    story.do(m.DigitPressed("5"))
    assert "Ask" in kinds(story.do(m.DigitPressed("#")))
    assert story.ask().text == "three four 5"
