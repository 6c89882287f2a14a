"""Does a clause end here? Full stops, abbreviations, and marks that hide inside links and control tokens. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from agent.speech.english import DATA

__all__ = ["CLOSERS", "HAN_CLOSERS", "Span", "Verdict", "full_stop", "skip_span"]

CLOSERS = "\"'”’)]}»*_`~"
HAN_CLOSERS = "”’」』）》】\"'*_`"
"""What may follow a mark and still belongs to the clause that it ends."""

MAX_MARKS = 16
MAX_LOOK_CHARS = 24
"""How far right of a doubtful full stop the next word is looked for."""

_CONTROL = re.compile(r"<\|[^|<>\n]{0,64}\|>")
_CONTROL_BEGUN = re.compile(r"<(?:\|[^|<>\n]{0,64}\|?)?\Z")
_LINK = re.compile(r"\[[^\[\]\n]{0,160}\](?:\([^()\n]{0,400}\))?")
_LINK_BEGUN = re.compile(r"\[[^\[\]\n]{0,160}(?:\](?:\([^()\n]{0,400})?)?\Z")
_STAGE_TAG = re.compile(r"\[/?[A-Za-z][A-Za-z_\- ]{0,30}\]\Z")
_INITIALS = re.compile(r"(?:[A-Za-z]\.){2,}\Z|[A-Z]\.\Z")
_HALF_DAY = re.compile(r"(?:^|\d)[ap]\.m\.\Z", re.I)
_LIST_NUMBER = re.compile(r"\d{1,3}\.\Z")
_OPENERS = "\"'“‘([{<*_`~"
_NEVER = frozenset(DATA["titles"]) - {"St.", "Dr."}
_DOUBTFUL = (
    frozenset(DATA["abbreviations"]) | frozenset(DATA["month_abbreviations"]) | {"St.", "Dr.", "No.", "no.", "Nos."}
)
_STARTERS = frozenset(DATA["starters"])
_DATE_WORDS = frozenset(DATA["months"]) | {
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
    "Eastern", "Central", "Mountain", "Pacific", "EST", "EDT", "CST", "CDT", "MST", "MDT", "PST", "PDT", "GMT", "UTC",
    "BST", "CET",
}  # fmt: skip


class Verdict(Enum):
    """Whether a clause ends at a mark."""

    CUT = "cut"
    GO_ON = "go on"
    UNKNOWN = "unknown"
    """The next characters decide, and they are not there yet."""


@dataclass(frozen=True, slots=True)
class Span:
    """Characters that must stay together; length 0 means that nothing special begins here."""

    length: int
    speaks: bool = False


def skip_span(text: str, at: int, final: bool) -> Span | None:
    """The control token, tag or link that begins at `text[at]`; None if more text could still complete one."""
    whole, begun = (_CONTROL, _CONTROL_BEGUN) if text[at] == "<" else (_LINK, _LINK_BEGUN)
    # Begun first: "[a]" at the end of the text may be the head of "[a](b)".
    if not final and begun.match(text, at):
        return None
    m = whole.match(text, at)
    if m is None:
        return Span(0)
    speaks = text[at] == "[" and not _STAGE_TAG.match(m.group()) and any(c.isalnum() for c in m.group())
    return Span(m.end() - at, speaks)


def full_stop(text: str, at: int, final: bool) -> tuple[Verdict, int]:
    """Judge the `. ! ? …` at `text[at]`.

    Returns the verdict and the place behind the mark, the marks after it, and closing quotes: where a cut goes, or
    where to go on.
    """
    after = at + 1
    while after < len(text) and text[after] in ".!?…" and after - at < MAX_MARKS:
        after += 1
    marks = text[at:after]
    while after < len(text) and text[after] in CLOSERS and after - at < 2 * MAX_MARKS:
        after += 1
    if after == len(text):
        return (Verdict.CUT if final else Verdict.UNKNOWN), after
    if not text[after].isspace():
        # "3.5", "example.com", "a?b=1"; but nothing stands before a full-width letter but a full stop.
        return (Verdict.CUT if "\u3400" <= text[after] <= "\u9fff" else Verdict.GO_ON), at + len(marks)
    if marks != "." and marks.strip(".…"):
        return Verdict.CUT, after
    word = text[max(0, at - 40) : at + 1].split()[-1].lstrip(_OPENERS)
    if marks != ".":
        return _by_next(text, after, final, lambda nxt: not nxt[:1].islower()), after
    if _HALF_DAY.search(word):
        return _by_next(text, after, final, lambda nxt: nxt[:1].isupper() and nxt not in _DATE_WORDS), after
    if word in _NEVER:
        return Verdict.GO_ON, after
    if word in ("No.", "no.", "Nos."):
        return _by_next(text, after, final, lambda nxt: not nxt[:1].isdigit()), after
    if word in _DOUBTFUL or _INITIALS.search(word):
        return _by_next(text, after, final, lambda nxt: nxt in _STARTERS), after
    if _LIST_NUMBER.fullmatch(word) and not text[text.rfind("\n", 0, at) + 1 : at - len(word) + 1].strip():
        return Verdict.GO_ON, after
    return Verdict.CUT, after


def _by_next(text: str, after: int, final: bool, cuts: Callable[[str], bool]) -> Verdict:
    """Decide on the next word (letters, digits, apostrophes), once it is whole."""
    start = after
    while start < len(text) and text[start].isspace():
        if text[start] == "\n" or start - after > MAX_LOOK_CHARS:
            return Verdict.CUT
        start += 1
    end = start
    while end < len(text) and (text[end].isalnum() or text[end] in "'’") and end - start < MAX_LOOK_CHARS:
        end += 1
    if end == len(text) and not final and end - start < MAX_LOOK_CHARS:
        return Verdict.UNKNOWN
    word = text[start:end].replace("’", "'")
    return Verdict.CUT if not word or cuts(word) else Verdict.GO_ON
