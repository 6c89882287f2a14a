"""Cuts a reply, while it is still being written, into clauses that can be spoken. Pure.

Whatever the pieces, the clauses are the same: a cut is decided only on text that is already there, and where the next
characters could change the decision ("3." may become "3.5", "Dr." is followed by a name) it waits for them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from agent.language import primary_language
from agent.speech.boundaries import CLOSERS, HAN_CLOSERS, Verdict, full_stop, skip_span
from agent.speech.english import DATA
from agent.speech.normalize import normalize

__all__ = ["Clause", "ClauseChunker"]


@dataclass(frozen=True, slots=True)
class Clause:
    """A part of the reply. Consecutive clauses cover the source without a gap."""

    text: str
    """The source, `source[start:end]`, with the blanks and markup before its words."""
    spoken: str
    """What the engine reads; empty when nothing of it is said."""
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Lengths:
    """How long clauses are: words before a comma may cut, and weight (characters, an ideograph counts 3) at most."""

    first_words: float
    later_words: float
    first_weight: int
    later_weight: int


_LENGTHS = {
    # A first clause of three words is about a second of speech, in which the engine makes the next one.
    "en": _Lengths(3, 9, 90, 220),
    # Two ideographs: the Mandarin engine is slow, so each comma helps.
    "zh": _Lengths(1, 3, 75, 150),
}

ENDLESS = 3
"""A run without a blank (a link) may be this many times longer than a clause before it is cut anywhere."""

SLAB_CHARS = 4096
"""Longer pieces are taken in slabs, so that the buffer stays small."""

CODE_LINE_CHARS = 400
_HAN_WEIGHT = 3

_SENTENCE = ".!?…"
_HAN_SENTENCE = "。！？；…"
_COMMA = ",;:"
_HAN_COMMA = "，、："
_FENCE = re.compile(r"[^\S\n]{0,3}(?:```|~~~)")
_FENCE_BEGUN = re.compile(r"[^\S\n]{0,3}(?:`{0,2}|~{0,2})\Z")
_HAN = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_WORD = re.compile(r"\S+")


class ClauseChunker:
    """One reply's chunker.

    The first clause comes as soon as it is safe: at the first sentence end, or a comma after about three words; later
    ones are longer. Text without marks is cut at a blank, in front of a word like "and" if there is one. At most a
    few hundred characters wait.

    Args:
        language: BCP 47 tag of the reply; English lengths where there are no own ones.
    """

    def __init__(self, language: str = "en") -> None:
        self.language = language
        self._buffer = ""
        self._start = 0
        self._first = True
        self._in_code = False
        self._line_start = True

    @property
    def language(self) -> str:
        """BCP 47 tag of the text; a change is for what comes in no clause yet, so `flush` first."""
        return self._language

    @language.setter
    def language(self, tag: str) -> None:
        self._language = tag
        self._lengths = _LENGTHS.get(primary_language(tag), _LENGTHS["en"])

    @property
    def pending(self) -> str:
        """What was pushed and is in no clause yet."""
        return self._buffer

    def push(self, piece: str) -> list[Clause]:
        """Add text; returns the clauses that are now certain."""
        clauses: list[Clause] = []
        for at in range(0, len(piece), SLAB_CHARS):
            self._buffer += piece[at : at + SLAB_CHARS]
            clauses += self._cut(final=False)
        return clauses

    def flush(self) -> list[Clause]:
        """The text is over, or pauses: all that is pending becomes clauses. More may be pushed after it."""
        return self._cut(final=True)

    def _cut(self, *, final: bool) -> list[Clause]:
        clauses: list[Clause] = []
        while self._buffer and (end := self._next_end(final)) is not None:
            clauses.append(self._emit(end))
        return clauses

    def _emit(self, end: int) -> Clause:
        text = self._buffer[:end]
        fence = bool(_FENCE.match(text.lstrip("\n"))) and (self._line_start or text.startswith("\n"))
        spoken = "" if self._in_code or fence else normalize(text, self.language)
        if fence:
            self._in_code = not self._in_code
        clause = Clause(text, spoken, self._start, self._start + end)
        self._buffer = self._buffer[end:]
        self._start += end
        self._line_start = text.endswith("\n")
        self._first = self._first and not spoken
        return clause

    def _next_end(self, final: bool) -> int | None:
        """Where the first clause of the buffer ends; None if that is not certain yet."""
        return self._code_end(final) if self._in_code else _Scan(self, self._buffer, final).end()

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


class _Scan:
    """One walk over the buffer for the end of its first clause.

    Each step looks only at text left of it and a bounded way right of it, and gives up if that is not there yet; so a
    walk over a longer buffer that begins with this one ends at the same place.
    """

    def __init__(self, chunker: ClauseChunker, text: str, final: bool) -> None:
        self.text = text
        self.final = final
        self._line_start = chunker._line_start
        lengths = chunker._lengths
        self._min_words = lengths.first_words if chunker._first else lengths.later_words
        self._max_weight = lengths.first_weight if chunker._first else lengths.later_weight
        self._spoke = False
        self._words = 0.0
        self._weight = 0
        self._break = 0
        self._joint = 0
        self._after_joint = False

    def end(self) -> int | None:
        text, count = self.text, len(self.text)
        at = 0
        while at < count:
            if self._weight > self._max_weight and (cut := self._hard_cut(at)):
                return cut
            char = text[at]
            if (text[at - 1] == "\n") if at else self._line_start:
                fence = self._fence(at)
                if fence == "unknown":
                    return None
                if fence == "yes":
                    return at - 1 if text[:at].strip() else self._fence_line(at)
            if char in "<[":
                step = skip_span(text, at, self.final)
                if step is None:
                    return None
                if step.length:
                    self._spoke = self._spoke or step.speaks
                    self._words += step.speaks
                    self._weight += step.length
                    at += step.length
                    continue
            if char == "\n" and self._spoke:
                return at
            verdict, after = self._judge(char, at)
            if verdict is Verdict.UNKNOWN:
                return None
            if verdict is Verdict.CUT:
                return after
            for passed in range(at, after):
                self._note(passed)
            at = after
        return count if self.final else None

    def _judge(self, char: str, at: int) -> tuple[Verdict, int]:
        if char in _HAN_SENTENCE and char != "…":
            return self._han(at, _HAN_SENTENCE, 0.0)
        if char in _SENTENCE:
            verdict, after = full_stop(self.text, at, self.final)
            return (Verdict.GO_ON if verdict is Verdict.CUT and not self._spoke else verdict), after
        if char in _HAN_COMMA:
            return self._han(at, _HAN_COMMA, self._min_words * (3 if char == "、" else 1))
        if char in _COMMA:
            return self._comma(at)
        return Verdict.GO_ON, at + 1

    def _han(self, at: int, marks: str, min_words: float) -> tuple[Verdict, int]:
        """Full-width marks need no blank behind them."""
        after = at + 1
        while after < len(self.text) and self.text[after] in marks + HAN_CLOSERS:
            after += 1
        if after - at > 16:
            after = at + 16
        elif after == len(self.text) and not self.final:
            return Verdict.UNKNOWN, after
        return (Verdict.CUT if self._spoke and self._words >= min_words else Verdict.GO_ON), after

    def _comma(self, at: int) -> tuple[Verdict, int]:
        text, after = self.text, at + 1
        if after < len(text) and text[after] in CLOSERS:
            after += 1
        rest = text[after : after + 2]
        if self._words < self._min_words:
            return Verdict.GO_ON, at + 1
        if len(rest) < 2 and not self.final:
            blank = not rest or rest.isspace()
            return (Verdict.UNKNOWN if blank else Verdict.GO_ON), at + 1
        # "July 4, 2024" and "Springfield, 62704" are heard as one.
        cut = len(rest) == 2 and rest[0].isspace() and not rest[1].isdigit()
        return (Verdict.CUT, after) if cut else (Verdict.GO_ON, at + 1)

    def _note(self, at: int) -> None:
        """Take one character into the account of words, weight and places to break."""
        char = self.text[at]
        before = self.text[at - 1] if at else " "
        han = bool(_HAN.match(char))
        self._weight += _HAN_WEIGHT if han else 1
        if char.isalnum():
            self._spoke = True
        if han:
            self._words += 0.5
            if at and self._spoke:
                self._break = at
        elif char.isspace():
            if not before.isspace() and self._spoke:
                word = _WORD.findall(self.text[max(0, at - 12) : at])
                if word and word[-1].lower() in DATA["joints"] and self._break:
                    # "and then" is one joint, before its first word.
                    self._joint = self._joint if self._after_joint else self._break
                    self._after_joint = True
                else:
                    self._after_joint = False
                self._break = at
        elif before.isspace() and char.isalnum():
            self._words += 1

    def _hard_cut(self, at: int) -> int:
        if self._joint * 3 > at:
            return self._joint
        if self._break * 3 > at:
            return self._break
        if self._weight <= ENDLESS * self._max_weight:
            return 0
        return at

    def _fence(self, at: int) -> Literal["yes", "no", "unknown"]:
        if _FENCE.match(self.text, at):
            return "yes"
        if not self.final and len(self.text) - at < 6 and _FENCE_BEGUN.match(self.text, at):
            return "unknown"
        return "no"

    def _fence_line(self, at: int) -> int | None:
        end = self.text.find("\n", at)
        if end != -1 and end - at <= CODE_LINE_CHARS:
            return end
        if len(self.text) - at > CODE_LINE_CHARS:
            return at + CODE_LINE_CHARS
        return len(self.text) if self.final else None
