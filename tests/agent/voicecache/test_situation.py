"""Templates and words of a dialogue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.voicecache.situation import BUCKETS, MAX_SLOTS, fill, heard_slots, slots_of, template, word_buckets


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
