from __future__ import annotations

from agent.conversation.history import MAX_ITEMS, History
from agent.nlu.hook import HistoryItem, Interrupted


def test_history_holds_what_was_heard() -> None:
    history = History()
    history.agent("Hello.")
    history.user("hours please")
    history.agent("We open at nine", "in the morning.", interrupted=True)
    assert history.items == (
        HistoryItem("agent", "Hello."),
        HistoryItem("user", "hours please"),
        HistoryItem("agent", "We open at nine", "in the morning.", True),
    )


def test_an_interruption_is_told_once() -> None:
    history = History()
    history.agent("We open", "at nine.", interrupted=True)
    assert history.take_interrupted() == Interrupted("We open", "at nine.")
    assert history.take_interrupted() is None


def test_a_reply_of_which_nothing_was_heard_leaves_no_item() -> None:
    history = History()
    history.agent("", "We open at nine.", interrupted=True)
    assert history.items == ()
    assert history.take_interrupted() == Interrupted("", "We open at nine.")


def test_a_retracted_turn_is_gone_but_never_the_agents() -> None:
    history = History()
    history.agent("Hello.")
    history.user("my name is")
    history.retract_user()
    history.retract_user()
    assert history.items == (HistoryItem("agent", "Hello."),)


def test_history_is_bounded() -> None:
    history = History()
    for number in range(MAX_ITEMS + 10):
        history.user(str(number))
    assert len(history.items) == MAX_ITEMS
    assert history.items[0].text == "10"


def test_times_are_kept() -> None:
    history = History()
    history.user("hello", at_s=1.5, end_s=2.0)
    history.agent("Hi.", at_s=2.5, end_s=3.0)
    assert [(item.at_s, item.end_s) for item in history.items] == [(1.5, 2.0), (2.5, 3.0)]


def test_a_turn_that_goes_on_is_retracted_over_a_reply_that_had_just_begun() -> None:
    history = History()
    history.user("my name is John")
    history.agent("Nice to", "meet you.", interrupted=True)
    history.retract_user()
    history.user("my name is John Doe")
    assert [item.text for item in history.items] == ["Nice to", "my name is John Doe"]
    history.agent("Nice to meet you.")
    history.retract_user()
    assert [item.role for item in history.items] == ["agent", "user", "agent"]
