"""How texts are made comparable before errors are counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from agent.errors import EnvironmentFault
from bench._speech import clips, error_rate_pct, spell


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Ten, twenty-one!", "ten twenty one"),
        ("10 21", "ten twenty one"),
        ("the 15th century", "the fifteenth century"),
        ("1,200 people", "one thousand two hundred people"),
        ("at 9:00 sharp", "at nine sharp"),
        ("Mr. Dashwood", "mister dashwood"),
        ("广州市。", "广州市"),
    ],
)
def test_numbers_case_and_punctuation_do_not_count(text: str, words: str) -> None:
    assert spell(text) == words


def test_digits_said_one_by_one_are_spelled_so() -> None:
    assert spell("589 500", digits=True) == spell("Five eight nine. Five zero zero.", digits=True)


def test_error_rates_are_percentages() -> None:
    assert error_rate_pct([("a b c d", "a x c d"), ("e f", "e f")]) == pytest.approx(100 / 6)
    assert error_rate_pct([("广州市", "广市")], characters=True) == pytest.approx(100 / 3)


def test_the_recordings_are_read_at_16_khz_in_both_bands() -> None:
    english = clips("en")
    assert len(english) == 50
    assert len(clips("zh")) == 2
    wide, narrow = english[0].pcm(), english[0].pcm(telephone=True)
    assert wide.dtype == narrow.dtype == np.int16
    assert abs(len(wide) - len(narrow)) <= 160


def test_absent_recordings_say_how_to_point_to_them(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match="REJOINDER_SPEECH"):
        clips("en", tmp_path)
