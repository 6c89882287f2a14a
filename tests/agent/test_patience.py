from __future__ import annotations

import pytest

from agent.config import ConversationSettings
from agent.patience import Patience

SETTINGS = ConversationSettings(filler_after_s=0.7, hold_after_s=4.0, apologise_after_s=10.0)


def test_a_slow_hook_is_covered_step_by_step_counted_from_the_question() -> None:
    patience = Patience(SETTINGS, "speech")
    patience.begin(50.0)
    for due, step in ((50.7, "filler"), (54.0, "hold"), (60.0, "apology")):
        assert patience.next(pending=False) == (pytest.approx(due), step)
        patience.passed(step)  # type: ignore[arg-type]
        patience.wait(due)


def test_after_the_first_text_only_a_long_silence_is_apologised_for() -> None:
    patience = Patience(SETTINGS, "speech")
    patience.begin(50.0)
    patience.text()
    patience.wait(53.0)
    assert patience.next(pending=False) == (63.0, "apology")


def test_half_a_clause_is_spoken_after_a_moment_each_time() -> None:
    patience = Patience(SETTINGS, "speech")
    patience.begin(50.0)
    patience.text()
    for now in (50.2, 51.0):
        patience.wait(now)
        assert patience.next(pending=True) == (pytest.approx(now + 0.4), "flush")
        patience.passed("flush")
        assert patience.next(pending=True)[1] == "apology"


@pytest.mark.parametrize("kind", ["greeting", "silence"])
def test_whoever_asked_nothing_is_not_asked_for_a_moment(kind: str) -> None:
    patience = Patience(SETTINGS, kind)  # type: ignore[arg-type]
    patience.begin(1.0)
    assert patience.next(pending=False) == (11.0, "apology")


def test_fillers_can_be_switched_off() -> None:
    patience = Patience(ConversationSettings(filler_after_s=0), "speech")
    patience.begin(0.0)
    assert patience.next(pending=False)[1] == "hold"


def test_nobody_waits_before_the_turn_is_over() -> None:
    patience = Patience(SETTINGS, "speech")
    patience.begin(50.0, ahead=True)
    assert patience.next(pending=False) == (60.0, "apology")
    patience.begin(52.0)
    assert patience.next(pending=False) == (pytest.approx(52.7), "filler")


def test_a_clip_covers_the_hook_while_it_plays() -> None:
    patience = Patience(SETTINGS, "speech")
    patience.begin(50.0)
    patience.sound(65.0)
    patience.wait(59.0)
    assert patience.next(pending=False) == (pytest.approx(65.7), "filler")
