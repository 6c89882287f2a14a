"""Does a clause end here? Full stops, abbreviations, and marks that hide inside links and control tokens. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache

from agent.speech.markup import CONTROL, CONTROL_BEGUN, STAGE_TAG
from agent.speech.tables import table

__all__ = ["CLOSERS", "HAN_CLOSERS", "IDEOGRAPH", "Boundaries", "Span", "Verdict", "boundaries", "skip_span"]

CLOSERS = "\"'”’)]}»*_`~"
HAN_CLOSERS = "”’」』）》】\"'*_`"
"""What may follow a mark and still belongs to the clause that it ends."""

SENTENCE = ".!?…؟۔।"
IDEOGRAPH = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")

MAX_MARKS = 16
MAX_LOOK_CHARS = 24
"""How far right of a doubtful full stop the next word is looked for."""

_LINK = re.compile(r"\[[^\[\]\n]{0,160}\](?:\([^()\n]{0,400}\))?")
_LINK_BEGUN = re.compile(r"\[[^\[\]\n]{0,160}(?:\](?:\([^()\n]{0,400})?)?\Z")
_INITIALS = re.compile(r"(?:[A-Za-z]\.){2,}\Z|(?<!\w)[A-ZÀ-Þ]\.\Z")
_HALF_DAY = re.compile(r"(?:^|\d)[ap]\.m\.\Z", re.I)
_LIST_NUMBER = re.compile(r"\d{1,3}\.\Z")
_OPENERS = "\"'“‘([{<*_`~¿¡«"
_UNSPACED = re.compile(r".*[\u3040-\u30ff\u3400-\u9fff\u3000-\u303f\uff00-\uff60]")


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
    whole, begun = (_LINK, _LINK_BEGUN) if text[at] == "[" else (CONTROL, CONTROL_BEGUN)
    # Begun first: "[a]" at the end of the text may be the head of "[a](b)".
    if not final and begun.match(text, at):
        return None
    m = whole.match(text, at)
    if m is None:
        return Span(0)
    speaks = text[at] == "[" and not STAGE_TAG.fullmatch(m.group()) and any(c.isalnum() for c in m.group())
    return Span(m.end() - at, speaks)


@cache
def boundaries(language: str) -> Boundaries:
    """The boundaries of a primary language subtag."""
    return Boundaries(language)


class Boundaries:
    """One language's sentence ends, and how long its clauses are. From its table; what that lacks, from the English.

    The lengths are words before a comma may cut, and weight (characters, an ideograph counts 3) at most.
    """

    def __init__(self, language: str) -> None:
        english, data = table("en"), table(language)
        words = data if "titles" in data else english
        titles = {word for word in words["titles"] if word.endswith(".")}
        shorts = {*words["abbreviations"], *words.get("month_abbreviations", ())}
        parts = [short.split() for short in shorts if short.endswith(".")]
        self._number_signs = frozenset(words["number_signs"])
        self._never = (titles - shorts) | {head for part in parts for head in part[:-1]}
        self._doubtful = {part[-1] for part in parts} | (titles & shorts)
        self._endings = tuple(words.get("endings", ()))
        self._starters = frozenset(words["starters"])
        self._date_words = frozenset(words.get("date_words", english["date_words"]))
        self._ordinal_point: bool = words.get("ordinal_point", False)
        self._spaced_quotes: bool = words.get("spaced_quotes", False)
        self.joints = frozenset(data.get("joints", ()))
        clauses = data.get("clauses", english["clauses"])
        self.first_words: float = clauses["first_words"]
        self.later_words: float = clauses["later_words"]
        self.first_weight: int = clauses["first_weight"]
        self.later_weight: int = clauses["later_weight"]

    def full_stop(self, text: str, at: int, final: bool) -> tuple[Verdict, int]:
        """Judge the sentence mark at `text[at]`.

        Returns the verdict and the place behind the mark, the marks after it, and closing quotes: where a cut goes, or
        where to go on.
        """
        after = at + 1
        while after < len(text) and text[after] in SENTENCE and after - at < MAX_MARKS:
            after += 1
        marks = text[at:after]
        while after < len(text) and text[after] in CLOSERS and after - at < 2 * MAX_MARKS:
            after += 1
        if after == len(text):
            return (Verdict.CUT if final else Verdict.UNKNOWN), after
        if not text[after].isspace():
            # "3.5", "example.com", "a?b=1"; but nothing stands before an ideograph but a full stop.
            return (Verdict.CUT if IDEOGRAPH.match(text[after]) else Verdict.GO_ON), at + len(marks)
        if self._spaced_quotes and text[after] != "\n":
            if after + 1 == len(text) and not final:
                return Verdict.UNKNOWN, after
            if text[after + 1 : after + 2] == "»":
                after += 2
        if marks != "." and marks.strip(".…"):
            return Verdict.CUT, after
        word = _UNSPACED.sub("", text[max(0, at - 40) : at + 1].split()[-1]).lstrip(_OPENERS)
        if marks != ".":
            return _by_next(text, after, final, lambda nxt: not nxt[:1].islower()), after
        return self._by_word(word, text, at, after, final), after

    def _by_word(self, word: str, text: str, at: int, after: int, final: bool) -> Verdict:
        """What the word before a full stop says of it."""
        if _HALF_DAY.search(word):
            return _by_next(text, after, final, lambda nxt: nxt[:1].isupper() and nxt not in self._date_words)
        if word in self._never:
            return Verdict.GO_ON
        if word in self._number_signs:
            return _by_next(text, after, final, lambda nxt: not nxt[:1].isdigit())
        if word in self._doubtful or _INITIALS.search(word) or (self._endings and word.endswith(self._endings)):
            return _by_next(text, after, final, lambda nxt: nxt in self._starters)
        if _LIST_NUMBER.fullmatch(word):
            if not text[text.rfind("\n", 0, at) + 1 : at - len(word) + 1].strip():
                return Verdict.GO_ON
            if self._ordinal_point:
                return _by_next(text, after, final, lambda nxt: nxt in self._starters)
        return Verdict.CUT


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
