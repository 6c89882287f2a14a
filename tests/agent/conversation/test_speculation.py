from __future__ import annotations

import pytest

from agent.config import ConversationSettings
from agent.conversation.protocol import DropSpeculation, Speculate
from agent.conversation.speculation import Speculation


def test_a_likely_end_is_wanted_once_for_each_wording() -> None:
    speculation = Speculation(ConversationSettings(speculate_from=0.4))
    assert not speculation.wants("hello", 0.39)
    assert not speculation.wants("", 0.9)
    assert speculation.wants("hello", 0.4)
    assert speculation.begin(7, "hello", 0.9) == [Speculate(7, "hello", 0.9)]
    assert not speculation.wants("Hello.", 0.9)
    assert speculation.wants("hello there", 0.9)


def test_the_next_one_drops_the_one_before() -> None:
    speculation = Speculation(ConversationSettings())
    speculation.begin(7, "hello", 1.0)
    assert speculation.begin(8, "hello there", 1.0) == [DropSpeculation(7), Speculate(8, "hello there", 1.0)]
    assert speculation.drop() == [DropSpeculation(8)]
    assert speculation.drop() == []


def test_only_an_equivalent_text_adopts_it() -> None:
    speculation = Speculation(ConversationSettings())
    speculation.begin(7, "my pin is 35", 1.0)
    assert speculation.adopt("my pin is 3.5") is None
    assert speculation.adopt("My PIN is 35.") == 7
    assert speculation.adopt("My PIN is 35.") is None
    assert speculation.drop() == []


@pytest.mark.parametrize("limit", [1, 3])
def test_a_turn_has_so_many_and_the_next_turn_as_many_again(limit: int) -> None:
    speculation = Speculation(ConversationSettings(speculations_per_turn=limit))
    for number in range(limit):
        assert speculation.wants(f"text {number}", 1.0)
        speculation.begin(number, f"text {number}", 1.0)
    assert not speculation.wants("another", 1.0)
    speculation.drop()
    speculation.fresh_turn()
    assert speculation.wants("another", 1.0)


def test_it_can_be_stopped_and_switched_off() -> None:
    speculation = Speculation(ConversationSettings())
    speculation.begin(1, "hello", 1.0)
    assert speculation.stop() == [DropSpeculation(1)]
    assert not speculation.wants("hello", 1.0)
    off = Speculation(ConversationSettings(speculate=False))
    off.fresh_turn()
    assert not off.wants("hello", 1.0)
