"""Cuts a clause that is handed to an engine into the pieces it speaks at once. Pure.

The chunker upstream already cuts replies into clauses; this one bounds what reaches a model, whoever called it, and
makes the first piece short, since nothing is heard before it is done.
"""

from __future__ import annotations

import re

__all__ = ["split_pieces"]

_SENTENCE = re.compile(r"(?:[.!?…]+[\"'”’)\]»]*(?=\s+[^a-z\s])|[。！？…]+[”’」』）》]*)")
_CLAUSE = re.compile(r"(?:[,;:—–]+[\"'”’)\]»]*(?=\s)|[，；：、]+)")
_BLANK = re.compile(r"\s")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:[A-Z]|Mr|Mrs|Ms|Dr|Prof|St|No|vs|Jr|Sr)\.$")

MIN_FIRST_CHARS = 12
"""A first piece below this is not worth the break in the melody."""


def split_pieces(text: str, *, first_chars: int, later_chars: int, every_comma: bool = False) -> list[str]:
    """Pieces whose texts joined give back the text, but for blanks at the joints.

    Args:
        first_chars: a longer first piece is cut at a comma, else at a blank.
        later_chars: the same for the others.
        every_comma: cut at each comma, whatever the length (for slow engines).
    """
    out: list[str] = []
    for sentence in _cut(text, _SENTENCE):
        rest = sentence
        while rest:
            limit = later_chars if out else first_chars
            if len(rest) <= limit and not every_comma:
                piece, rest = rest, ""
            else:
                piece, rest = _take(rest, limit, later_chars, every_comma)
            if piece.strip():
                out.append(piece.strip())
    return out


def _cut(text: str, marks: re.Pattern[str]) -> list[str]:
    parts: list[str] = []
    start = 0
    for m in marks.finditer(text):
        if _ABBREVIATION.search(text, max(start, m.end() - 8), m.end()):
            continue
        parts.append(text[start : m.end()])
        start = m.end()
    parts.append(text[start:])
    return [part for part in parts if part.strip()]


def _take(text: str, limit: int, hard: int, every_comma: bool) -> tuple[str, str]:
    """The first piece of `text`, and the rest."""
    best = 0
    for m in _CLAUSE.finditer(text):
        if m.end() > max(limit, MIN_FIRST_CHARS):
            break
        if every_comma:
            return text[: m.end()], text[m.end() :]
        if m.end() >= MIN_FIRST_CHARS:
            best = m.end()
    if best:
        return text[:best], text[best:]
    if len(text) <= hard:
        return text, ""
    blanks = [m.start() for m in _BLANK.finditer(text, 0, hard)]
    at = blanks[-1] if blanks and blanks[-1] > hard // 2 else hard
    return text[:at], text[at:]
