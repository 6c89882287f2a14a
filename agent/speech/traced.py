"""A text that is rewritten rule by rule and knows where in the source each of its characters came from. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["SpokenWord", "TracedText", "words_of"]

_GROUP = re.compile(r"\\(\d)")
_COMPOSED = re.compile(
    "[^\u0300-\u036f\u3099\u309a\n][\u0300-\u036f\u3099\u309a]+"
    "|[\u1100-\u115f][\u1160-\u11a7][\u11a8-\u11ff]?|[\u212a\u212b\u2126\u0344\uf900-\ufaff]"
)
"""What NFC (Unicode annex 15) changes in the scripts that our voices read."""

_IDEOGRAPH = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
_WORD = re.compile(rf"[{_IDEOGRAPH}]|[^\s{_IDEOGRAPH}]+")


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A word of the spoken text (an ideograph is one by itself) and the source characters it was made of."""

    text: str
    spoken_start: int
    spoken_end: int
    """`spoken[spoken_start:spoken_end]` is the word with the marks that touch it."""
    start: int
    end: int
    """`source[start:end]`; several words may share one span, as the four of `$3.50` do."""


class TracedText:
    """A string under rewriting.

    Every rule of a normaliser works on `text` through one of the methods, which keep the account of sources. What a
    rule leaves as it was (the ends that match and replacement share, a group that a template names) keeps its own
    place; what it wrote anew comes from all that it matched.
    """

    __slots__ = ("_ends", "_starts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._starts = list(range(len(text)))
        self._ends = list(range(1, len(text) + 1))

    def sub(self, pattern: re.Pattern[str], by: str | Callable[[re.Match[str]], str]) -> None:
        """`pattern.sub(by, text)`. A template may use `\\1` to `\\9`, no other escapes."""
        found = list(pattern.finditer(self.text))
        if not found:
            return
        out = _Writer(self)
        at = 0
        for m in found:
            out.keep(at, m.start())
            if callable(by):
                out.differ(m.start(), m.end(), by(m))
            else:
                for index, part in enumerate(_GROUP.split(by)):
                    if index % 2 == 0:
                        out.write(m.start(), m.end(), part)
                    elif m.start(int(part)) >= 0:
                        out.keep(*m.span(int(part)))
            at = m.end()
        out.keep(at, len(self.text))
        out.done()

    def translate(self, table: Mapping[int, str]) -> None:
        """`text.translate(table)`; an empty string drops the character."""
        if not any(ord(char) in table for char in set(self.text)):
            return
        out = _Writer(self)
        for at, char in enumerate(self.text):
            out.write(at, at + 1, table.get(ord(char), char))
        out.done()

    def map(self, change: Callable[[str], str]) -> None:
        """Each character as `change` gives it back."""
        changes = {char: change(char) for char in set(self.text)}
        self.translate({ord(char): new for char, new in changes.items() if new != char})

    def compose(self) -> None:
        """Letters and their accents as one character each (NFC)."""
        self.sub(_COMPOSED, lambda m: unicodedata.normalize("NFC", m.group()))

    def strip(self) -> None:
        """Drop blanks at both ends."""
        start = len(self.text) - len(self.text.lstrip())
        stop = max(start, len(self.text.rstrip()))
        self._set(self.text[start:stop], self._starts[start:stop], self._ends[start:stop])

    def clear(self) -> None:
        """Nothing is left of it."""
        self._set("", [], [])

    def pieces(self, ends: list[int]) -> list[TracedText]:
        """The text cut at `ends`, which rise to its length; sources stay those of the whole."""
        out: list[TracedText] = []
        start = 0
        for end in ends:
            piece = TracedText("")
            piece._set(self.text[start:end], self._starts[start:end], self._ends[start:end])
            out.append(piece)
            start = end
        return out

    def append(self, other: TracedText, joint: str = "") -> None:
        """Set `other`, a text of the same source, behind this one."""
        place = self._ends[-1] if self._ends else 0
        joint = joint if self.text and other.text else ""
        self.text += joint + other.text
        self._starts += [place] * len(joint) + other._starts
        self._ends += [place] * len(joint) + other._ends

    def source(self, start: int, end: int) -> tuple[int, int]:
        """The source span of `text[start:end]`, which is not empty."""
        return min(self._starts[start:end]), max(self._ends[start:end])

    def _set(self, text: str, starts: list[int], ends: list[int]) -> None:
        self.text, self._starts, self._ends = text, starts, ends


class _Writer:
    """Builds the next state of a TracedText."""

    def __init__(self, draft: TracedText) -> None:
        self._draft = draft
        self._parts: list[str] = []
        self._starts: list[int] = []
        self._ends: list[int] = []

    def keep(self, start: int, end: int) -> None:
        """`text[start:end]` as it is."""
        if start < end:
            self._parts.append(self._draft.text[start:end])
            self._starts += self._draft._starts[start:end]
            self._ends += self._draft._ends[start:end]

    def write(self, start: int, end: int, new: str) -> None:
        """`new` in place of `text[start:end]`."""
        if not new:
            return
        draft = self._draft
        if start < end:
            first, last = draft.source(start, end)
        else:
            first = last = draft._starts[start] if start < len(draft.text) else draft._ends[-1] if draft._ends else 0
        self._parts.append(new)
        self._starts += [first] * len(new)
        self._ends += [last] * len(new)

    def differ(self, start: int, end: int, new: str) -> None:
        """`new` in place of `text[start:end]`; the ends they share are kept."""
        old = self._draft.text
        shared = min(end - start, len(new))
        head = 0
        while head < shared and old[start + head] == new[head]:
            head += 1
        tail = 0
        while tail < shared - head and old[end - 1 - tail] == new[-1 - tail]:
            tail += 1
        self.keep(start, start + head)
        self.write(start + head, end - tail, new[head : len(new) - tail])
        self.keep(end - tail, end)

    def done(self) -> None:
        self._draft._set("".join(self._parts), self._starts, self._ends)


def words_of(draft: TracedText, offset: int = 0) -> tuple[SpokenWord, ...]:
    """The words of a finished text, their sources moved by `offset`."""
    out: list[SpokenWord] = []
    for m in _WORD.finditer(draft.text):
        sounding = [at for at in range(m.start(), m.end()) if draft.text[at].isalnum()]
        if not sounding:
            if out:
                last = out[-1]
                out[-1] = SpokenWord(last.text, last.spoken_start, m.end(), last.start, last.end)
            continue
        spans = [draft.source(at, at + 1) for at in sounding]
        start, end = min(s for s, _ in spans), max(e for _, e in spans)
        out.append(SpokenWord(m.group(), m.start(), m.end(), start + offset, end + offset))
    return tuple(out)
