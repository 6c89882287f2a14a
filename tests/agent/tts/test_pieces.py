"""How a text is cut for an engine."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.tts.pieces import split_pieces


def test_sentences_are_pieces_and_names_are_not_torn() -> None:
    text = "Dr. Smith is in. Call J. Doe now! Is that 3.5? Yes"
    assert split_pieces(text, first_chars=90, later_chars=300) == [
        "Dr. Smith is in.",
        "Call J. Doe now!",
        "Is that 3.5?",
        "Yes",
    ]


def test_only_a_long_first_piece_is_cut_at_a_comma() -> None:
    text = "Your parcel left on Monday, and it is on its way, so please wait. Then we, too, can see."
    assert split_pieces(text, first_chars=40, later_chars=300) == [
        "Your parcel left on Monday,",
        "and it is on its way, so please wait.",
        "Then we, too, can see.",
    ]


def test_a_slow_engine_gets_each_comma() -> None:
    assert split_pieces("您好，订单已发货，请查收。好！", first_chars=16, later_chars=40, every_comma=True) == [
        "您好，",
        "订单已发货，",
        "请查收。",
        "好！",
    ]


@given(text=st.text(st.sampled_from("ab ,.!?，。\n"), max_size=300), every=st.booleans())
def test_pieces_are_bounded_and_lose_no_letter(text: str, every: bool) -> None:
    pieces = split_pieces(text, first_chars=20, later_chars=50, every_comma=every)
    assert all(0 < len(piece) <= 60 for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())
