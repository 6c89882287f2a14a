"""How English words sound: the pronouncing half of hibari-tts, kept word by word. Blocking; runs in a worker thread.

Its alphabet is the one Kokoro was trained on too.
"""

from __future__ import annotations

import difflib
import re
from typing import Any

from agent.tts.plain import word_spans

__all__ = ["EnglishReader"]

_DIGITS = re.compile(r"\d{13,}")
"""The package's number reader ends at quadrillions; longer ones are read digit by digit."""


class EnglishReader:
    """Text to phonemes. Keeps no state between calls, so threads may share one.

    Args:
        british: read with British rules instead of American ones.
    """

    def __init__(self, *, british: bool = False) -> None:
        from hibari.g2p import G2P

        self._g2p = G2P(british=british)

    def read(self, text: str) -> list[tuple[str, str]]:
        """(word of `text`, its phonemes) for each word as `word_spans` cuts them; an unspoken one has none."""
        from hibari.g2p.normalize import normalize

        given = [text[a:b] for a, b in word_spans(text)]
        tokens = self._g2p.tokenize(normalize(_DIGITS.sub(lambda m: " ".join(m.group()), text)))
        _mark_letters(tokens)
        read: list[tuple[str, str]] = []
        word = phonemes = ""
        for token in self._g2p.phonemize_tokens(tokens):
            word += token.text
            phonemes += token.phonemes or ""
            if token.whitespace:
                read.append((word, phonemes))
                word = phonemes = ""
        if word:
            read.append((word, phonemes))
        return _align(given, read)


def _mark_letters(tokens: list[Any]) -> None:
    """Have `A` spelled where it is a letter: the package reads each lone one as the article."""
    for i, token in enumerate(tokens):
        if token.text not in ("A", "a") or token.phonemes is not None:
            continue
        follower = tokens[i + 1].text if i + 1 < len(tokens) else "."
        spelled = len(follower) == 1 and follower not in "aI"
        if spelled or (token.text == "A" and i > 0 and tokens[i - 1].text[-1:] not in '.!?"“'):
            token.phonemes, token.rating = "ˈA", 5


def _align(given: list[str], read: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Put the phonemes of what the package read onto the words it was given.

    Its own normaliser may have written some words out; those between two equal ones are shared out in order.
    """
    out: list[tuple[str, str]] = []
    matcher = difflib.SequenceMatcher(None, given, [word for word, _ in read], autojunk=False)
    for _, a0, a1, b0, b1 in matcher.get_opcodes():
        phonemes = [p for _, p in read[b0:b1]]
        count = a1 - a0
        if count == 0:
            # Words read out of nothing belong to the word before them, or to the first.
            extra = " ".join(phonemes)
            if out:
                out[-1] = (out[-1][0], f"{out[-1][1]} {extra}".strip())
            elif extra and given:
                read = [*read[:b0], *read[b1:]]
                head, *tail = _align(given, read)
                return [(head[0], f"{extra} {head[1]}".strip()), *tail]
            continue
        for i in range(count):
            share = phonemes[i * len(phonemes) // count : (i + 1) * len(phonemes) // count]
            out.append((given[a0 + i], " ".join(p for p in share if p)))
    return out
