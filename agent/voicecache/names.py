"""Words that may be people's names, told by their capitals. English only. Pure; the lists are data.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Collection
from importlib.resources import files
from typing import Any

__all__ = ["DATA", "PUBLIC", "WORD", "names_in"]

DATA: dict[str, Any] = tomllib.loads(files("agent.voicecache").joinpath("data.toml").read_text(encoding="utf-8"))
WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
PUBLIC = frozenset(DATA["public"].split())

_OPENERS = frozenset(DATA["openers"].split())
_SENTENCE_END = re.compile(r"[.!?…:]\s+|\n")


def names_in(text: str, public: Collection[str] = PUBLIC) -> list[str]:
    """Capitalised words that are neither public nor common at the start of a sentence; may well be no names.

    Args:
        public: words that are nobody's name, lower case.
    """
    out: list[str] = []
    for sentence in _SENTENCE_END.split(text):
        for index, word in enumerate(WORD.findall(sentence)):
            bare = word.replace("’", "'").lower()
            known = bare in public or bare.removesuffix("'s") in public
            if word[0].isupper() and not known and not (index == 0 and bare in _OPENERS):
                out.append(word)
    return out
