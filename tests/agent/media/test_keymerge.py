"""Keys that come both ways."""

from __future__ import annotations

from agent.media.keymerge import KeyMerge, Way


def taken(*presses: tuple[str, Way, float]) -> list[bool]:
    merge = KeyMerge()
    return [merge.take(*press) for press in presses]


def test_both_copies_of_a_press_count_once_whichever_comes_first() -> None:
    assert taken(("5", "rtp", 0.0), ("5", "info", 0.1)) == [True, False]
    assert taken(("5", "info", 0.0), ("5", "rtp", 0.1)) == [True, False]


def test_a_key_pressed_twice_counts_twice() -> None:
    presses = (("5", "rtp", 0.0), ("5", "info", 0.1), ("5", "rtp", 0.4), ("5", "info", 0.5))
    assert taken(*presses) == [True, False, True, False]
    assert taken(("5", "rtp", 0.0), ("5", "rtp", 0.3)) == [True, True]


def test_other_keys_and_later_ones_are_new() -> None:
    assert taken(("5", "rtp", 0.0), ("6", "info", 0.1), ("5", "info", 1.2)) == [True, True, True]
