"""Keypad menus of a rules file: what a key means where, and what the next entry may look like. Pure."""

from __future__ import annotations

from agent.nlu.hook import Listen
from agent.nlu.phrases import Utterance
from agent.nlu.rules_file import Choice, Menu
from agent.nlu.spoken_digits import read_digits

__all__ = ["menu_listen", "pressed_choice", "spoken_choice"]

MAX_CHOOSING_WORDS = 4
""""Number two please" chooses; a longer sentence with a figure in it is about something else."""


def menu_listen(menu: Menu) -> Listen:
    """Keys and words are both awaited; an entry as long as the longest choice is over at once."""
    return Listen(
        max_digits=max(len(keys) for keys in menu.keys),
        digit_gap_s=menu.gap_s,
        dtmf_barge_in=menu.barge_in,
    )


def pressed_choice(menu: Menu, keys: str) -> Choice | None:
    """What these keys mean, to the letter: "012" is not "12"."""
    return menu.keys.get(keys)


def spoken_choice(menu: Menu, utterance: Utterance) -> Choice | None:
    """The choice whose keys were said as digits: "two", "option two"."""
    if not 0 < len(utterance.words) <= MAX_CHOOSING_WORDS:
        return None
    longest = max(len(keys) for keys in menu.keys)
    return menu.keys.get(read_digits(utterance.words, 1, longest))
