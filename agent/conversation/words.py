"""Words as turn-taking counts and compares them: case and punctuation folded, numbers kept apart. Pure."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["TOKEN", "count_words", "fold", "same_words", "words"]

_NO_SPACES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
"""Scripts written without spaces (kana and Han): each character counts as a word."""

TOKEN = re.compile(rf"[{_NO_SPACES}]|[^\W_{_NO_SPACES}]+(?:['’][^\W_{_NO_SPACES}]+)*")
"""One word: a character of Chinese or Japanese, or a run of letters and digits with its apostrophes."""

_MARK = re.compile(r"[^\w\s]|_")
_AMONG_DIGITS = frozenset(".,:/-")
_BESIDE_CJK = re.compile(rf"(?<=[{_NO_SPACES}])\s+|\s+(?=[{_NO_SPACES}])")


def words(text: str) -> list[str]:
    """The words of `text`, case-folded, apostrophes and other marks left out."""
    return [_plain(match[0]) for match in TOKEN.finditer(unicodedata.normalize("NFKC", text))]


def count_words(text: str) -> int:
    """How many words `text` has; a Chinese character is one."""
    return sum(1 for _ in TOKEN.finditer(text))


def fold(text: str) -> str:
    """`text` without case and punctuation, but with every mark that changes a number: 3.5 is not 35, -2 is not 2."""
    text = unicodedata.normalize("NFKC", text).casefold()
    text = _MARK.sub(lambda match: _fold_mark(text, match.start()), text)
    return _BESIDE_CJK.sub("", " ".join(text.split()))


def same_words(one: str, other: str) -> bool:
    """True when a reply to `one` answers `other` too: only case or punctuation differ."""
    return fold(one) == fold(other)


def _fold_mark(text: str, at: int) -> str:
    mark = text[at]
    before = text[at - 1] if at else " "
    after = text[at + 1] if at + 1 < len(text) else " "
    if mark in "'’":
        return ""
    if mark in _AMONG_DIGITS and before.isdigit() and after.isdigit():
        return mark
    if mark == "-" and after.isdigit() and not before.isalnum():
        return mark
    # "%", currency and arithmetic signs are said, so they are words.
    return mark if mark == "%" or unicodedata.category(mark).startswith("S") else " "


def _plain(word: str) -> str:
    return word.casefold().replace("'", "").replace("’", "")
