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
