"""Templates and words of a dialogue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.voicecache.situation import BUCKETS, MAX_SLOTS, fill, heard_slots, label, slots_of, template, word_buckets


def test_values_of_the_call_are_left_open_and_filled_in_again() -> None:
    slots = {"name": "Anna", "full_name": "Anna Lee"}
    assert template("Thanks, Anna Lee. Bye, Anna.", slots) == "Thanks, {full_name}. Bye, {name}."
    assert fill("Thanks, {full_name}.", slots) == "Thanks, Anna Lee."
    assert fill("Your order {order}.", slots) is None
    assert template("Annabel", {"name": "Anna"}) == "Annabel"


def test_braces_of_the_text_open_no_places() -> None:
    assert template("a {name} b", {}) == "a (name) b"


SLOTS = st.dictionaries(st.text("xyz_", min_size=1, max_size=4), st.text("abc12", max_size=5), max_size=3)


@given(st.text("abc {}12.", max_size=30), SLOTS)
def test_a_template_can_be_filled_with_what_made_it(text: str, slots: dict[str, str]) -> None:
    plain = text.replace("{", "(").replace("}", ")")
    assert fill(template(text, slots), slots) == plain


def test_slots_are_short_values_by_plain_names() -> None:
    state = {
        "state": "start",
        "name": "Anna",
        "n": 42,
        "flag": True,
        "long": "x" * 99,
        "Odd": "yes",
        "in": {"day": "Monday"},
    }
    assert slots_of(state) == {"name": "Anna", "n": "42", "day": "Monday"}
    assert len(slots_of({f"v{chr(97 + i % 26)}{chr(97 + i // 26)}": "value" for i in range(99)})) == MAX_SLOTS


def test_what_was_heard_last() -> None:
    assert heard_slots("it's 12 no 345") == {"heard_number": "345"}
    assert heard_slots("this is Maria") == {"heard_name": "Maria"}


def test_words_become_buckets_and_common_ones_none() -> None:
    assert word_buckets("I'm the one") == word_buckets("ONE")
    assert word_buckets("order 12") == word_buckets("order 99")
    assert all(0 <= bucket < BUCKETS for bucket in word_buckets("where is my parcel"))


@pytest.mark.parametrize("name", ["order", "order.status", "ask_name", "a/b:c-d"])
def test_an_identifier_names_a_state_as_it_is(name: str) -> None:
    assert label(name) == name


@pytest.mark.parametrize("name", ["Anna Kowalski", "pin4711", "ask name", "x" * 65, "\ud800", "你好"])
def test_any_other_name_of_a_state_is_a_bucket_that_tells_nothing(name: str) -> None:
    assert label(name) == label(name)
    assert label(name)[0] == "#"
    assert int(label(name)[1:]) < BUCKETS


@pytest.mark.parametrize("name", ["", None, 4711, ["order"]])
def test_what_is_no_name_is_none(name: object) -> None:
    assert label(name) == ""
