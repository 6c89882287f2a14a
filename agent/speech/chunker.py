"""Cuts a reply, while it is still being written, into clauses that can be spoken. Pure.

Whatever the pieces, the clauses are the same: a cut is decided only on text that is already there, and where the next
characters could change the decision ("3." may become "3.5", "Dr." is followed by a name) it waits for them.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from agent.language import primary_language
from agent.speech.boundaries import IDEOGRAPH, boundaries
from agent.speech.clausescan import CODE_LINE_CHARS, ClauseScan, is_fence
from agent.speech.normalize import SpokenText, read_aloud
from agent.speech.traced import SpokenWord

__all__ = ["Clause", "ClauseChunker"]

SLAB_CHARS = 4096
"""Longer pieces are taken in slabs, so that the buffer stays small."""

_WORD_EDGE = re.compile(r"[\s\u2013\u2014…\u3000-\u303f\uff00-\uff0f\uff1a-\uff20]")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of the reply. Consecutive clauses cover the source without a gap."""

    text: str
    """The source, `source[start:end]`, with the blanks and markup before its words."""
    spoken: str
    """What the engine reads; empty when nothing of it is said."""
    start: int
    end: int
    language: str = "en"
    """BCP 47 tag of the language it is read in."""
    words: tuple[SpokenWord, ...] = ()
    """The words of `spoken` in order, each with its place there and in the source."""

    def source_after(self, words_heard: int) -> int:
        """Place in the source up to which a caller has heard this clause who heard its first `words_heard` words.

        It lies between two words of the source. A source word of which anything was not heard does not count: of
        `$3.50`, three words are nothing, all five are the whole.
        """
        if words_heard >= len(self.words):
            return self.end
        cut = max(self.start, min(word.start for word in self.words[max(0, words_heard) :])) - self.start
        while 0 < cut < len(self.text) and _one_word(self.text[cut - 1], self.text[cut]):
            cut -= 1
        return self.start + (cut if words_heard > 0 else 0)

    def source_after_chars(self, chars_heard: int) -> int:
        """As `source_after`, for the first `chars_heard` characters of `spoken`: an engine may split words its way."""
        spoken = self.spoken
        heard = sum(len(spoken[: word.spoken_end].rstrip()) <= chars_heard for word in self.words)
        return self.source_after(heard)


def _one_word(left: str, right: str) -> bool:
    apart = _WORD_EDGE.match(left) or _WORD_EDGE.match(right) or IDEOGRAPH.match(left) or IDEOGRAPH.match(right)
    return not apart


def _whole(text: str) -> str:
    """The text with its surrogate pairs joined (Unicode 3.8, D75)."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


class ClauseChunker:
    """One reply's chunker.

    The first clause comes as soon as it is safe: at the first sentence end, or a comma after about three words; later
    ones are longer. Text without marks is cut at a blank, in front of a word like "and" if there is one. At most a
    few hundred characters wait.

    Args:
        language: BCP 47 tag of the reply; English lengths where there are no own ones.
        tags: names of the `[tags]` that the engine knows, in lower case; others are never spoken.
    """

    def __init__(self, language: str = "en", tags: Collection[str] = ()) -> None:
        self._language = language
        self._tags = frozenset(tags)
        self._bounds = boundaries(primary_language(language))
        self._buffer = ""
        self._half = ""
        self._cut_already: list[Clause] = []
        self._start = 0
        self._first = True
        self._in_code = False
        self._line_start = True
        self._scan: ClauseScan | None = None

    @property
    def language(self) -> str:
        """BCP 47 tag for the text to come.

        Set in the middle of a reply, what is pending still belongs to the old language, and ends there; its clauses
        come with the next `push` or `flush`.
        """
        return self._language

    @language.setter
    def language(self, tag: str) -> None:
        if tag != self._language:
            self._cut_already += self._finish()
            self._language = tag
            self._bounds = boundaries(primary_language(tag))

    @property
    def pending(self) -> str:
        """What was pushed and is in no clause yet."""
        return "".join(clause.text for clause in self._cut_already) + self._buffer + self._half

    def push(self, piece: str) -> list[Clause]:
        """Add text; returns the clauses that are now certain.

        Halves of a surrogate pair in two pieces become one character; a half without the other, U+FFFD.
        """
        clauses = self._take_cut()
        piece = self._half + piece
        self._half = piece[-1:] if "\ud800" <= piece[-1:] <= "\udbff" else ""
        piece = _whole(piece[: len(piece) - len(self._half)])
        for at in range(0, len(piece), SLAB_CHARS):
            self._buffer += piece[at : at + SLAB_CHARS]
            clauses += self._cut(final=False)
        return clauses

    def flush(self) -> list[Clause]:
        """The text is over, or pauses: all that is pending becomes clauses. More may be pushed after it."""
        return self._take_cut() + self._finish()

    def _finish(self) -> list[Clause]:
        self._buffer += _whole(self._half)
        self._half = ""
        return self._cut(final=True)

    def _take_cut(self) -> list[Clause]:
        clauses, self._cut_already = self._cut_already, []
        return clauses

    def _cut(self, *, final: bool) -> list[Clause]:
        clauses: list[Clause] = []
        while self._buffer and (end := self._next_end(final)) is not None:
            clauses.append(self._emit(end))
        return clauses

    def _emit(self, end: int) -> Clause:
        text = self._buffer[:end]
        fence = is_fence(text.lstrip("\n")) and (self._line_start or text.startswith("\n"))
        silent = self._in_code or fence
        said = SpokenText("") if silent else read_aloud(text, self._language, self._tags, self._start)
        if fence:
            self._in_code = not self._in_code
        clause = Clause(text, said.text, self._start, self._start + end, self._language, said.words)
        self._buffer = self._buffer[end:]
        self._scan = None
        self._start += end
        self._line_start = text.endswith("\n")
        self._first = self._first and not said.text
        return clause

    def _next_end(self, final: bool) -> int | None:
        """Where the first clause of the buffer ends; None if that is not certain yet."""
        if self._in_code:
            return self._code_end(final)
        if self._scan is None:
            self._scan = ClauseScan(self._bounds, first=self._first, line_start=self._line_start)
        return self._scan.end(self._buffer, final)

    def _code_end(self, final: bool) -> int | None:
        # Blank lines go with the line after them, so that a fence stands at the head of its clause.
        body = len(self._buffer) - len(self._buffer.lstrip("\n"))
        end = self._buffer.find("\n", body)
        limit = body + CODE_LINE_CHARS if body < CODE_LINE_CHARS else CODE_LINE_CHARS
        if end != -1 and end <= limit:
            return end
        if len(self._buffer) > limit:
            return limit
        return len(self._buffer) if final else None
