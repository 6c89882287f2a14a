"""Which text never leaves memory: what the hook marks, and by policy what holds figures or people's names. Pure.

Meant to err on the safe side. Figures: a digit, or a word for a number other than a lone "one", "first" or "second".
Names, in English: a capitalised word inside a sentence that is not "I", a month, a day or one of the operator's public
words; at the start of a sentence, where every word is capitalised, a word that is not among the common openers of
data.toml. Other languages have no rule for names, so under the policy `names` all their text stays in memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from agent.language import primary_language
from agent.voicecache.names import DATA, PUBLIC, WORD, names_in

__all__ = ["Privacy"]

_NUMBERS = frozenset(DATA["numbers"].split())
_WEAK_NUMBERS = frozenset(DATA["weak_numbers"].split())
_HAN_DIGITS = re.compile(r"[零〇一二两三四五六七八九十百千万亿]")
_HAN_WEAK = re.compile(r"(?:一下|一些|一点|一样|一起|一定|一直|万一|统一|第一|唯一|一切|一般)")
_SLOT = re.compile(r"\{[a-z_]+\}")


class Privacy:
    """The policy.

    Args:
        policy: `none` (only what is marked), `digits`, or `names` (digits and names).
        public_words: capitalised words that are nobody's name.
    """

    def __init__(self, policy: Literal["none", "digits", "names"] = "names", public_words: Iterable[str] = ()) -> None:
        self._policy = policy
        self._public = PUBLIC | {part.lower() for word in public_words for part in WORD.findall(word)}

    def private(self, text: str, language: str, *, marked: bool = False) -> bool:
        """Whether `text` (source or as read, places such as `{name}` left open) must stay in memory."""
        if marked:
            return True
        if self._policy == "none":
            return False
        tag = primary_language(language)
        text = _SLOT.sub(" ", text)
        if _has_number(text, tag):
            return True
        return self._policy == "names" and (tag != "en" or bool(names_in(text, self._public)))


def _has_number(text: str, tag: str) -> bool:
    if any(c.isdigit() for c in text):
        return True
    if tag == "zh":
        return bool(_HAN_DIGITS.search(_HAN_WEAK.sub("", text)))
    words = [word.lower() for word in WORD.findall(text)]
    weak = sum(word in _WEAK_NUMBERS for word in words)
    return weak > 1 or any(word in _NUMBERS for word in words)
