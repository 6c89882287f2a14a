"""Recognising what a caller meant: words, likeness, and the pattern language of rules files. Pure.

Texts are cut to MAX_TEXT_CHARS before anything looks at them, likeness is only computed for words of similar length,
and regular expressions are matched in linear time, so the time of a match is bounded whatever is said or configured.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from agent.nlu.linear_regex import LinearRegex, PatternError
from agent.nlu.spoken_digits import DIGIT_WORDS

__all__ = ["Pattern", "Utterance", "likeness", "phrase_score", "words_of"]

MAX_TEXT_CHARS = 400
"""About half a minute of speech; nobody says an intent after more than that."""
LIKE_WORD = 0.75
"""Score of a word that is only like the keyword; the word itself scores 1."""

_APOSTROPHES = str.maketrans("", "", "'’‘ʼ`")
_WORDS = re.compile(r"[^\W_]+")


def words_of(text: str) -> tuple[str, ...]:
    """Lower-case words of a text, apostrophes dropped ("what's" is "whats"), all other punctuation between words."""
    folded = unicodedata.normalize("NFKC", text[:MAX_TEXT_CHARS]).lower().translate(_APOSTROPHES)
    return tuple(_WORDS.findall(folded[:MAX_TEXT_CHARS]))


@dataclass(frozen=True, slots=True)
class Utterance:
    """A text as the patterns see it. `known` are words that mean themselves and are never taken for a like one."""

    words: tuple[str, ...]
    known: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """The words with single spaces between."""
        return " ".join(self.words)


def likeness(heard: str, keyword: str, known: frozenset[str] = frozenset()) -> float:
    """How well a heard word fits a keyword: 1 for the word or its inflection, LIKE_WORD for a slip, else 0.

    A slip is one edit in a keyword of five to seven letters, two in a longer one; shorter ones must be exact.
    """
    if heard == keyword or _inflected(heard, keyword):
        return 1.0
    allowed = 0 if len(keyword) < 5 else 1 if len(keyword) < 8 else 2
    if not allowed or heard in known or heard in DIGIT_WORDS:
        return 0.0
    forms = (keyword, keyword + "s")
    return LIKE_WORD if any(_edits(heard, form, allowed) <= allowed for form in forms) else 0.0


def phrase_score(utterance: Utterance, phrase: Sequence[str]) -> float:
    """The best fit of consecutive words to a phrase: the sum over its words, 0 when one of them does not fit."""
    best = 0.0
    for start in range(len(utterance.words) - len(phrase) + 1):
        score = 0.0
        for offset, keyword in enumerate(phrase):
            fit = likeness(utterance.words[start + offset], keyword, utterance.known)
            if not fit:
                break
            score += fit
        else:
            best = max(best, score)
    return best


def _inflected(heard: str, keyword: str) -> bool:
    if len(keyword) < 3 or not heard.startswith(keyword[:-1]):
        return False
    stem = keyword.removesuffix("e")
    return heard in (keyword + "s", keyword + "es", keyword + "d", stem + "ed", stem + "ing")


def _edits(a: str, b: str, limit: int) -> int:
    """Optimal string alignment distance (insert, delete, replace, swap neighbours), cut off above `limit`."""
    if abs(len(a) - len(b)) > limit:
        return limit + 1
    before: list[int] = []
    previous = list(range(len(b) + 1))
    for i, char in enumerate(a, 1):
        row = [i]
        for j, other in enumerate(b, 1):
            cost = min(previous[j] + 1, row[j - 1] + 1, previous[j - 1] + (char != other))
            if i > 1 and j > 1 and char == b[j - 2] and a[i - 2] == other:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        if min(row) > limit:
            return limit + 1
        before, previous = previous, row
    return previous[-1]


SlotTest = Callable[[str, Utterance], bool]
_Part = Callable[[Utterance, SlotTest], float]


class Pattern:
    """One pattern of a rules file.

    `opening hours`   these words in a row, each itself, inflected, or a recogniser's slip of it
    `where + order`   all of the parts, anywhere
    `<person>`        any phrase of the set `person`
    `{order_number}`  a value for that slot
    `/regex/`         a linear-time regular expression over the lower-case words (see LinearRegex)
    """

    def __init__(self, source: str, sets: Mapping[str, Iterable[str]], slots: Iterable[str]) -> None:
        """Raises PatternError: the pattern is empty, or names a set or slot that is not defined."""
        self.source = source
        self.keywords: set[str] = set()
        self._parts: list[_Part] = []
        text = source.strip()
        if len(text) > 1 and text.startswith("/") and text.endswith("/"):
            self._parts.append(_regex_part(text[1:-1]))
            return
        known_slots = frozenset(slots)
        for part in text.split("+"):
            self._parts.append(self._read(part.strip(), sets, known_slots))

    def score(self, utterance: Utterance, has_slot: SlotTest) -> float:
        """How much of the pattern was said, in words; 0 when a part is missing."""
        total = 0.0
        for part in self._parts:
            score = part(utterance, has_slot)
            if not score:
                return 0.0
            total += score
        return total

    def _read(self, part: str, sets: Mapping[str, Iterable[str]], slots: frozenset[str]) -> _Part:
        if part.startswith("<") and part.endswith(">"):
            name = part[1:-1].strip()
            if name not in sets:
                raise PatternError(f"<{name}> is not one of the sets ({_names(sets)})")
            return self._phrases(sets[name])
        if part.startswith("{") and part.endswith("}"):
            slot = part[1:-1].strip()
            if slot not in slots:
                raise PatternError(f"{{{slot}}} is not one of the slots ({_names(slots)})")
            return lambda utterance, has_slot: float(has_slot(slot, utterance))
        return self._phrases([part])

    def _phrases(self, phrases: Iterable[str]) -> _Part:
        compiled = [words_of(phrase) for phrase in phrases]
        if not compiled or not all(compiled):
            raise PatternError("a part without words")
        for phrase in compiled:
            self.keywords.update(phrase)
        return lambda utterance, _: max(phrase_score(utterance, phrase) for phrase in compiled)


def _regex_part(source: str) -> _Part:
    regex = LinearRegex(source)
    if regex.search(""):
        raise PatternError("the expression matches the empty text, so it would match everything")
    # As much as two words, so that an expression wins over a lone keyword.
    return lambda utterance, _: 2.0 if regex.search(utterance.text) else 0.0


def _names(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none are defined"
