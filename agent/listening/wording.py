"""Whether the words so far are a whole: the text's evidence on the end of a turn. Pure, a table a language.

It knows no grammar. It looks at how the text ends (fillers, words that want a successor, announcements, digits and
letters that may go on) and whether the whole is a known answer. Languages without a table are not judged.
"""

from __future__ import annotations

import re

from agent.asr.agreement import split_words
from agent.language import primary_language
from agent.listening.wording_en import ENGLISH
from agent.listening.wording_zh import MANDARIN
from agent.listening.wordtables import WordTables
from agent.nlu.spoken_digits import DIGIT_WORDS, digit_runs

__all__ = ["TABLES", "count_digits", "ends_with", "judge_wording", "words_of"]

TABLES: dict[str, WordTables] = {"en": ENGLISH, "zh": MANDARIN}

FILLER = 0.03
OPEN = 0.04
HALF_OPEN = 0.22
ANNOUNCED = 0.02
BROKEN_OFF = 0.05
DIGITS_COMING = 0.2
"""A few digits, and nothing that says how many there are."""
DIGITS_ENOUGH = 0.6
LETTERS_COMING = 0.15
ANSWER = 0.85
CLOSED = 0.85
QUESTION = 0.75
ASKED = 0.7
"""A question by its first words, in small letters and without marks: its recogniser writes none, so none is missing."""
ASKED_WORDS = (4, 14)
"""Fewer are mostly the beginning of a question; more, one question and something else."""
COMMA = 0.25
FEW_WORDS = 0.25
"""One or two words that are no known answer are mostly the beginning of something."""
SHORT = 0.45
"""Three or four words."""
SUBORDINATE = 0.2
"""The sentence began with "when", "if" or "although" and its main clause has not come."""
PLAIN = 0.55
MARKED = 0.68
"""A recogniser wrote a full stop, a question or an exclamation mark."""

LONG_NUMBER = 7
"""Digits from which a number may be whole: the shortest telephone numbers."""

MAX_SUBORDINATE_WORDS = 10
"""Longer than this, a recogniser has mostly left out the comma."""

_TRIM = re.compile(r"^[^\w]+|[^\w]+$")
_BROKEN = re.compile(r"(\.\.\.|\u2026|--|[\w]-)\s*$")
_COMMA = re.compile(r"[,;:\uff0c\u3001\uff1b\uff1a]\s*$")
_QUESTION = re.compile(r"[?\uff1f]\s*$")
_STOP = re.compile(r"[.!\u3002\uff01]\s*$")
_SENTENCES = re.compile(r"[.!?\u3002\uff01\uff1f]+\s*")
_MARK = re.compile(r"[,;:.!?]")
_INNER_COMMA = re.compile(r"[,\uff0c]")
_DIGIT = re.compile(r"\d")
_ZH_DIGITS = frozenset("零一二三四五六七八九幺两〇")


def judge_wording(text: str, language: str) -> float | None:
    """Probability, 0 to 1, that a turn with this text is over; None when the text says nothing.

    Args:
        text: the recogniser's newest reading, with its punctuation if it writes any.
        language: BCP 47 tag.
    """
    tables = TABLES.get(primary_language(language))
    words = words_of(text)
    if tables is None or not words:
        return None
    if _BROKEN.search(text):
        return BROKEN_OFF
    if tuple(words) in tables.answers:
        return ANSWER
    if ends_with(words, tables.fillers):
        return FILLER
    if ends_with(words, tables.open_phrases):
        return ANNOUNCED
    if ends_with(words, tables.closers):
        return CLOSED
    if ends_with(words, tables.open_words):
        return OPEN
    number = _judge_number(words, language)
    if number is not None:
        return number
    if ends_with(words, tables.half_open_words):
        return HALF_OPEN
    return _judge_marks(text, words, tables)


def words_of(text: str) -> list[str]:
    """The words of a text in lower case, bare; a character of an unspaced script is a word."""
    bare = (_TRIM.sub("", word).lower().replace("\u2019", "'") for word in split_words(text))
    return [word for word in bare if word]


def ends_with(words: list[str], table: frozenset[tuple[str, ...]]) -> bool:
    """Whether the last words are one of the table's phrases."""
    longest = min(len(words), 6)
    return any(tuple(words[-size:]) in table for size in range(1, longest + 1))


def count_digits(text: str, language: str) -> int:
    """How many digits were said, all in all."""
    if primary_language(language) == "zh":
        return sum(char in _ZH_DIGITS or char.isdigit() for char in text)
    if primary_language(language) == "en":
        separate = [part for word in words_of(text) for part in re.split(r"[^\w']+", word) if part]
        return sum(len(run) for run in digit_runs(separate))
    return len(_DIGIT.findall(text))


def _judge_number(words: list[str], language: str) -> float | None:
    """For a text that ends in digits or letters: are more of them to come?"""
    last = words[-1]
    if len(last) == 1 and last.isascii() and last.isalpha() and last not in ("a", "i", "o"):
        return LETTERS_COMING
    if not _is_digit(last, language):
        return None
    tail = 0
    while tail < len(words) and _is_digit(words[-1 - tail], language):
        tail += 1
    said = count_digits(" ".join(words[-tail:]), language)
    if said >= LONG_NUMBER:
        return DIGITS_ENOUGH
    # "I need two", "at half past ten": one figure behind words is a quantity.
    return PLAIN if tail == 1 and len(words) > 3 and said <= 2 else DIGITS_COMING


def _is_digit(word: str, language: str) -> bool:
    if word.replace("-", "").isdigit():
        return True
    if primary_language(language) == "zh":
        return word in _ZH_DIGITS
    return word in DIGIT_WORDS and word not in ("to", "too", "for", "o", "ate", "tree", "fore")


def _judge_marks(text: str, words: list[str], tables: WordTables) -> float:
    """For a text that could end here: what its punctuation and its length say."""
    if _COMMA.search(text):
        return COMMA
    opened = any(tuple(words[:size]) in tables.question_openers for size in (1, 2, 3, 4))
    if _QUESTION.search(text) and (opened or len(words) > 2):
        return QUESTION
    if len(words) <= 2:
        return FEW_WORDS
    if _waits_for_main_clause(text, tables):
        return SUBORDINATE
    if opened and ASKED_WORDS[0] <= len(words) <= ASKED_WORDS[1] and _never_marked(text):
        return ASKED
    if len(words) <= 4:
        return SHORT
    return MARKED if _STOP.search(text) else PLAIN


def _never_marked(text: str) -> bool:
    """Whether a recogniser wrote this that knows neither capitals nor marks; told from scripts that have capitals."""
    return text.islower() and not _MARK.search(text)


def _waits_for_main_clause(text: str, tables: WordTables) -> bool:
    """Whether the last sentence opens with a subordinate clause, and no comma says that another one began."""
    last = _SENTENCES.split(text.rstrip(" .!?\u3002\uff01\uff1f"))[-1]
    words = words_of(last)
    opens = any(tuple(words[:size]) in tables.subordinators for size in (1, 2, 3))
    # "When is it?" is a question, "when it is" a clause.
    asks = bool(_QUESTION.search(text)) or tuple(words[1:2]) in tables.yes_no_openers
    return opens and not asks and not _INNER_COMMA.search(last) and len(words) <= MAX_SUBORDINATE_WORDS
