"""What the turn was to be: the hook's `Listen`, or else the question that the agent just asked. Pure.

The strongest evidence there is when a number of so many digits, or yes or no, is waited for.
"""

from __future__ import annotations

import re
from typing import Literal

from agent.language import primary_language
from agent.listening.endpoint import Evidence
from agent.listening.wording import TABLES, count_digits, words_of
from agent.listening.wordtables import WordTables

__all__ = ["Wanted", "judge_expectation", "wanted"]

Wanted = Literal["free", "digits", "yes_no", "name", "spelling"]

DIGITS_MISSING = 0.004
DIGITS_COMPLETE = 0.96
DIGITS_BEYOND = 0.9
"""More came than were asked for: the caller knows best when it is over."""
DIGITS_SOME = 0.12
DIGITS_LONG = 0.6
ANSWERED = 0.97
NAME_FIRST = 0.4
"""One name; the family name may follow."""
NAME_WHOLE = 0.75
LETTERS = 0.12

LONG_NUMBER = 7
MAX_NAME_WORDS = 4

_SENTENCE = re.compile(r"[^.!?\u3002\uff01\uff1f]*[.!?\u3002\uff01\uff1f]*\s*$")
_ENDS_AS_QUESTION = re.compile(r"[?\uff1f]\s*$")


def wanted(evidence: Evidence) -> Wanted:
    """What the turn is expected to be: as the hook said, else as the agent's last sentence asks for."""
    if evidence.expect != "free":
        return evidence.expect
    tables = TABLES.get(primary_language(evidence.language))
    if tables is None or not _ENDS_AS_QUESTION.search(evidence.asked):
        return "free"
    words = words_of(_last_sentence(evidence.asked))
    if _contains(words, tables.spelling_asked):
        return "spelling"
    if _is_yes_no(words, tables):
        return "yes_no"
    if _contains(words, tables.name_asked):
        return "name"
    return "digits" if _contains(words, tables.number_asked) else "free"


def judge_expectation(evidence: Evidence) -> float | None:
    """Probability, 0 to 1, that the turn has what it was to have; None when nothing follows from that."""
    words = words_of(evidence.text)
    if not words:
        return None
    match wanted(evidence):
        case "digits":
            return _judge_digits(evidence)
        case "yes_no":
            tables = TABLES.get(primary_language(evidence.language))
            return ANSWERED if tables is not None and tuple(words) in tables.answers else None
        case "name":
            return _judge_name(words, evidence.language)
        case "spelling":
            return LETTERS if len(words[-1]) == 1 and words[-1].isascii() else None
        case "free":
            return None


def _judge_digits(evidence: Evidence) -> float | None:
    said = count_digits(evidence.text, evidence.language)
    if said == 0:
        # Something else was said, such as "I don't have it": the words decide.
        return None
    if evidence.min_digits is None:
        return DIGITS_LONG if said >= LONG_NUMBER else DIGITS_SOME
    if said < evidence.min_digits:
        return DIGITS_MISSING
    return DIGITS_COMPLETE if said == evidence.min_digits else DIGITS_BEYOND


def _judge_name(words: list[str], language: str) -> float | None:
    tables = TABLES.get(primary_language(language))
    if tables is None:
        return None
    longest = min(len(words), 5)
    # What follows an announcement ("my name is") is the name.
    for size in range(longest, 0, -1):
        for at in range(len(words) - size, -1, -1):
            if tuple(words[at : at + size]) in tables.open_phrases:
                words = words[at + size :]
                return _judge_bare_name(words, language)
    return _judge_bare_name(words, language)


def _judge_bare_name(words: list[str], language: str) -> float | None:
    if not words or len(words) > MAX_NAME_WORDS:
        return None
    # A Chinese name has two to four characters.
    return NAME_FIRST if len(words) == 1 and primary_language(language) != "zh" else NAME_WHOLE


def _last_sentence(text: str) -> str:
    found = _SENTENCE.search(text)
    return found[0] if found else text


def _is_yes_no(words: list[str], tables: WordTables) -> bool:
    opens = any(tuple(words[:size]) in tables.yes_no_openers for size in (1, 2, 3, 4))
    ends = any(tuple(words[-size:]) in tables.yes_no_endings for size in (1, 2, 3) if size <= len(words))
    return opens or ends


def _contains(words: list[str], table: frozenset[tuple[str, ...]]) -> bool:
    sizes = {len(phrase) for phrase in table}
    return any(tuple(words[at : at + size]) in table for size in sizes for at in range(len(words) - size + 1))
