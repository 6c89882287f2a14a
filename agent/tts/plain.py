"""What of a text an engine may see: plain words, never markup that an engine would obey.

Pure. Every engine passes its input through here, whoever called it, because each has a markup of its own: hibari and
Kokoro take `[word](/phonemes/)`, espeak-ng takes `[[phonemes]]`, neural engines take `<|control|>` tokens and `[tags]`.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["plain_text", "speakable", "word_spans"]

MAX_WORD_CHARS = 64
"""No word of a living language is longer; engines spend quadratic time on one, or fail."""

_CONTROL = re.compile(r"<\|[^|<>]{0,64}\|>")
_IMAGE_OR_LINK = re.compile(r"!?\[([^\[\]\n]{0,300})\]\(([^()\s]{0,600}|/[^()\n]{0,200}/)\)")
_TAG = re.compile(r"\[/?[A-Za-z][A-Za-z_\- ]{0,30}\]")
_CJK = (
    r"\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    r"\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_WORD = re.compile(rf"[{_CJK}][^\w\s]*|[^\s{_CJK}]+")
_LONG = re.compile(rf"[^\s{_CJK}]{{{MAX_WORD_CHARS + 1},}}")
_BRACKETS = str.maketrans({"[": " ", "]": " ", "{": " ", "}": " ", "|": " ", "<": " ", ">": " ", "\\": " ", "^": " "})


def plain_text(text: str) -> str:
    """The text without control tokens, tags, phoneme markup, unprintable characters and brackets.

    `[x](...)` becomes x. Words of more than 64 characters are broken. White space is folded to single blanks.
    """
    # Twice at most: what is left after one pass can spell a token again (`<|<|a|>b|>`), the brackets go below anyway.
    for _ in range(2):
        text = _CONTROL.sub(" ", text)
        text = _IMAGE_OR_LINK.sub(r"\1", text)
        text = _TAG.sub(" ", text)
    text = "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in text if _visible(c))
    text = text.translate(_BRACKETS)
    text = _LONG.sub(lambda m: " ".join(_slices(m.group(), MAX_WORD_CHARS)), text)
    return " ".join(text.split())


def speakable(text: str) -> bool:
    """True when the text holds a letter or digit of any script: something that must be heard."""
    return any(c.isalnum() for c in text)


def word_spans(text: str) -> list[tuple[int, int]]:
    """Where the words of a text are: blank-separated runs, and each ideograph, kana or hangul syllable alone.

    Marks belong to the word they follow. Word times of all engines name these words, in this order.
    """
    return [m.span() for m in _WORD.finditer(text)]


def _visible(char: str) -> bool:
    # Cf are zero-width joiners, direction marks and tags; Cs, Co and Cn are no characters at all.
    return unicodedata.category(char) not in ("Cf", "Cs", "Co", "Cn")


def _slices(word: str, size: int) -> list[str]:
    return [word[i : i + size] for i in range(0, len(word), size)]
