from __future__ import annotations

import pytest

from agent.conversation.keypad import DIGIT_GAP_S, MAX_DIGITS, Keypad


def typed(*runs: tuple[str, int | None]) -> Keypad:
    keypad = Keypad()
    for keys, after in runs:
        for key in keys:
            keypad.press(key, 1.0, after)
    return keypad


@pytest.mark.parametrize(
    ("runs", "text", "joined"),
    [
        ([("12", 0)], "three four", "12 three four"),
        ([("56", None)], "three four", "three four 56"),
        ([("56", 2)], "three four", "three four 56"),
        ([("4", 1)], "three, five!", "three 4 , five!"),
        ([("1", 0), ("9", 2)], "two three four", "1 two three 9 four"),
        ([("12#", 0)], "three", "12 three"),
        ([("#", None)], "three", "three"),
        ([("5", 9)], "three", "three 5"),
        ([("5", 2)], "我的号码", "我的 5 号码"),
        ([("12", 0)], "", "12"),
        ([("12#", 0)], "", "12"),
        ([("12#34#", 0)], "", "12#34"),
        ([("#", 0)], "", "#"),
        ([], "hello", "hello"),
        ([], "", ""),
    ],
)
def test_keys_and_words_are_joined_in_order(runs: list[tuple[str, int | None]], text: str, joined: str) -> None:
    assert typed(*runs).join(text) == joined


def test_keys_pressed_in_a_pause_are_placed_when_it_is_read() -> None:
    keypad = typed(("12", None))
    keypad.place(3)
    assert keypad.join("my number is zero") == "my number is 12 zero"


def test_an_entry_is_over_after_a_gap_the_hash_key_or_as_many_as_wanted() -> None:
    keypad = typed(("12", 0))
    assert not keypad.over(1.0 + DIGIT_GAP_S / 2, None)
    assert keypad.over(1.0 + DIGIT_GAP_S, None)
    assert keypad.over(1.0, 2)
    assert not keypad.over(1.0, 3)
    assert typed(("12#", 0)).over(1.0, 3)


def test_an_empty_entry_is_never_over() -> None:
    keypad = typed(("12", 0))
    keypad.clear()
    assert not keypad
    assert not keypad.over(100.0, None)


def test_an_entry_is_bounded_and_can_still_be_ended() -> None:
    keypad = typed(("1" * 1000, 0), ("#", 0), ("#", 0))
    assert keypad.complete(None)
    assert keypad.join("") == "1" * MAX_DIGITS


def test_the_time_between_keys_may_be_another() -> None:
    keypad = typed(("12", 0))
    assert not keypad.over(1.0 + DIGIT_GAP_S, None, 4.0)
    assert keypad.over(5.0, None, 4.0)
    assert keypad.over(1.0 + DIGIT_GAP_S / 2, None, DIGIT_GAP_S / 2)
