"""Which clauses of a reply are private: those with a marked piece in them, whatever the pieces."""

from __future__ import annotations

import pytest

from agent.private import Private
from agent.speech.chunker import ClauseChunker
from agent.speech.marked import MarkedChunker

REPLY = ["Thanks for waiting. ", "Your code is ", Private("four, two, seven. "), "Is there anything else? ", "Bye."]


def marked(pieces: list[str]) -> list[tuple[str, bool]]:
    chunker = MarkedChunker()
    found = [each for piece in pieces for each in chunker.push(piece)] + chunker.flush()
    return [(clause.text.strip(), private) for clause, private in found]


def test_the_clause_that_holds_a_marked_piece_is_private_and_no_other() -> None:
    clauses = marked(REPLY)
    secret = [text for text, private in clauses if private]
    assert "".join(secret).replace(" ", "") == "Yourcodeisfour,two,seven."
    assert [text for text, private in clauses if not private] == [
        "Thanks for waiting.",
        "Is there anything else?",
        "Bye.",
    ]


def test_the_mark_moves_no_cut() -> None:
    chunker = ClauseChunker()
    plain = [clause.text.strip() for piece in REPLY for clause in chunker.push(str(piece))]
    plain += [clause.text.strip() for clause in chunker.flush()]
    assert [text for text, _ in marked(REPLY)] == plain


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_marked_text_in_small_pieces_is_as_private(size: int) -> None:
    pieces: list[str] = []
    for part in REPLY:
        kind = type(part)
        pieces += [kind(part[at : at + size]) for at in range(0, len(part), size)]
    assert marked(pieces) == marked(REPLY)


def test_a_mark_at_the_very_end_and_one_without_text_are_understood() -> None:
    assert marked([Private(""), "Hello. ", Private("Anna.")]) == [("Hello.", False), ("Anna.", True)]


def test_halves_of_a_character_in_two_pieces_do_not_move_the_mark() -> None:
    clauses = marked(["We are happy \ud83d", "\ude00 to help. ", Private("Your code is nine. "), "Bye now."])
    assert [private for _, private in clauses] == [False, True, False]
