from __future__ import annotations

from pathlib import Path

import pytest

from agent.conversation.protocol import State
from agent.conversation.transitions import ALLOWED, FLOOR, MOVES, Why, as_markdown
from tests.agent.conversation.story import Story

PAGE = Path(__file__).parents[3] / "docs" / "turn-machine.md"


def test_the_page_in_the_docs_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == as_markdown(), "run: python -m agent.conversation.transitions " + str(
        PAGE
    )


def test_every_reason_has_its_rows_and_every_state_a_floor() -> None:
    assert {move.why for move in MOVES} == set(Why)
    rows = [(source, move.why, target) for move in MOVES for source in move.sources for target in move.targets]
    assert len(rows) == len(set(rows))
    assert set(FLOOR) == set(State)


def test_nothing_leads_out_of_the_end_and_everything_leads_there() -> None:
    assert not [move for move in ALLOWED if move[0] is State.ENDED]
    assert all((state, Why.OVER, State.ENDED) in ALLOWED for state in State if state is not State.ENDED)


def test_the_machine_refuses_a_move_that_is_not_in_the_table() -> None:
    machine = Story().machine
    with pytest.raises(AssertionError, match="no way from LISTENING to PAUSED"):
        machine._go(Why.SPOKEN_OVER, State.PAUSED)
    assert machine.state is State.LISTENING
