from __future__ import annotations

from agent.config import ConversationSettings
from agent.conversation.limits import GOODBYE_S, Due, Limits


def test_silence_is_asked_into_and_then_given_up() -> None:
    limits = Limits(ConversationSettings(still_there_after_s=10, still_there_times=2), 0.0)
    assert limits.due(9.9) is None
    assert limits.due(10.0) is Due.ASK
    limits.sound(12.0)
    assert limits.due(21.9) is None
    assert limits.due(22.0) is Due.ASK
    limits.sound(24.0)
    assert limits.due(34.0) is Due.GOODBYE


def test_a_caller_who_answers_is_asked_as_often_again() -> None:
    limits = Limits(ConversationSettings(still_there_after_s=10, still_there_times=1), 0.0)
    assert limits.due(10.0) is Due.ASK
    limits.caller_acted(11.0)
    assert limits.due(21.0) is Due.ASK
    limits.activity(22.0)  # a noise is no answer
    assert limits.due(32.0) is Due.GOODBYE


def test_the_warning_comes_once_and_only_if_there_is_time_before_it() -> None:
    limits = Limits(ConversationSettings(max_call_s=100, end_warning_s=30, still_there_after_s=0), 0.0)
    assert limits.due(69.9) is None
    assert limits.due(70.0) is Due.WARN
    assert limits.due(70.0) is None
    short = Limits(ConversationSettings(max_call_s=30, end_warning_s=30, still_there_after_s=0), 0.0)
    assert short.due(29.0) is None
    silent = Limits(ConversationSettings(max_call_s=100, end_warning_s=0, still_there_after_s=0), 0.0)
    assert silent.due(99.0) is None


def test_the_longest_call_has_time_for_a_goodbye() -> None:
    limits = Limits(ConversationSettings(max_call_s=100), 5.0)
    assert not limits.time_is_up(104.9)
    assert limits.time_is_up(105.0)
    assert not limits.overdue(105.0)
    assert limits.overdue(105.0 + GOODBYE_S)


def test_idle_counts_what_the_caller_does_and_what_answers_them() -> None:
    limits = Limits(ConversationSettings(idle_s=50, still_there_after_s=0), 0.0)
    limits.sound(40.0)
    assert limits.due(50.0) is Due.IDLE
    limits.activity(50.0)
    assert limits.due(99.0) is None
