"""One walk over a text for the end of its first clause. Pure."""

from __future__ import annotations

import re
from typing import Literal

from agent.speech.boundaries import CLOSERS, HAN_CLOSERS, IDEOGRAPH, SENTENCE, Boundaries, Verdict, skip_span

__all__ = ["CODE_LINE_CHARS", "ClauseScan", "is_fence"]

ENDLESS = 3
"""A run without a blank (a link) may be this many times longer than a clause before it is cut anywhere."""

CODE_LINE_CHARS = 400
_HAN_WEIGHT = 3

_HAN_SENTENCE = "。！？；｡"
_COMMA = ",;:،؛"
_HAN_COMMA = "，、：､"
_SPAN_HEADS = "<[＜"
_FENCE = re.compile(r"[^\S\n]{0,3}(?:```|~~~)")
_FENCE_BEGUN = re.compile(r"[^\S\n]{0,3}(?:`{0,2}|~{0,2})\Z")
_WORD = re.compile(r"\S+")


def is_fence(line: str) -> bool:
    """Does this line open or close a block of code (CommonMark 4.5)?"""
    return bool(_FENCE.match(line))


class ClauseScan:
    """Looks for the end of one clause in a buffer that only grows.

    Each step looks at text left of it and a bounded way right of it. It gives up where that is not there yet and goes
    on from the same step when more has come, so the end does not depend on the pieces, and nothing is walked twice.
    """

    def __init__(self, bounds: Boundaries, *, first: bool, line_start: bool) -> None:
        self._bounds = bounds
        self._text = ""
        self._final = False
        self._line_start = line_start
        self._min_words = bounds.first_words if first else bounds.later_words
        self._max_weight = bounds.first_weight if first else bounds.later_weight
        self._at = 0
        self._spoke = False
        self._words = 0.0
        self._weight = 0
        self._blank = 0
        self._break = 0
        self._break_before = 0
        self._joint = 0
        self._after_joint = False

    def end(self, text: str, final: bool) -> int | None:
        """Where the clause ends in `text`, which begins with that of the last call; None if that is not certain yet."""
        self._text, self._final = text, final
        while self._at < len(text):
            if self._weight > self._max_weight and (cut := self._hard_cut(self._at)):
                return cut
            cut_or_next = self._step(self._at)
            if cut_or_next is None:
                return None
            cut_here, self._at = cut_or_next
            if cut_here:
                return self._at
        return len(text) if final else None

    def _step(self, at: int) -> tuple[bool, int] | None:
        """(cut or not, where or where to go on) for the character at `at`; None if more text decides."""
        text, char = self._text, self._text[at]
        if (text[at - 1] == "\n") if at else self._line_start:
            fence = self._fence(at)
            if fence == "unknown":
                return None
            if fence == "yes":
                end = at - 1 if text[:at].strip() else self._fence_line(at)
                return None if end is None else (True, end)
        if char in _SPAN_HEADS:
            span = skip_span(text, at, self._final)
            if span is None:
                return None
            if span.length:
                self._spoke = self._spoke or span.speaks
                self._words += span.speaks
                self._weight += span.length
                return False, at + span.length
        if char == "\n" and self._spoke:
            return True, at
        verdict, after = self._judge(char, at)
        if verdict is Verdict.UNKNOWN:
            return None
        if verdict is Verdict.GO_ON:
            for passed in range(at, after):
                self._note(passed)
        return verdict is Verdict.CUT, after

    def _judge(self, char: str, at: int) -> tuple[Verdict, int]:
        if char in _HAN_SENTENCE:
            return self._han(at, _HAN_SENTENCE, 0.0)
        if char in SENTENCE:
            verdict, after = self._bounds.full_stop(self._text, at, self._final)
            return (Verdict.GO_ON if verdict is Verdict.CUT and not self._spoke else verdict), after
        if char in _HAN_COMMA:
            return self._han(at, _HAN_COMMA, self._min_words * (3 if char == "、" else 1))
        if char in _COMMA:
            return self._comma(at)
        return Verdict.GO_ON, at + 1

    def _han(self, at: int, marks: str, min_words: float) -> tuple[Verdict, int]:
        """Full-width marks need no blank behind them."""
        after = at + 1
        while after < len(self._text) and self._text[after] in marks + HAN_CLOSERS:
            after += 1
        if after - at > 16:
            after = at + 16
        elif after == len(self._text) and not self._final:
            return Verdict.UNKNOWN, after
        return (Verdict.CUT if self._spoke and self._words >= min_words else Verdict.GO_ON), after

    def _comma(self, at: int) -> tuple[Verdict, int]:
        text, after = self._text, at + 1
        if after < len(text) and text[after] in CLOSERS:
            after += 1
        rest = text[after : after + 2]
        if self._words < self._min_words:
            return Verdict.GO_ON, at + 1
        if rest and IDEOGRAPH.match(rest):
            return Verdict.CUT, after
        if len(rest) < 2 and not self._final:
            blank = not rest or rest.isspace()
            return (Verdict.UNKNOWN if blank else Verdict.GO_ON), at + 1
        # "July 4, 2024" and "Springfield, 62704" are heard as one.
        cut = len(rest) == 2 and rest[0].isspace() and not rest[1].isdigit()
        return (Verdict.CUT, after) if cut else (Verdict.GO_ON, at + 1)

    def _note(self, at: int) -> None:
        """Take one character into the account of words, weight and places to break."""
        char = self._text[at]
        before = self._text[at - 1] if at else " "
        han = bool(IDEOGRAPH.match(char))
        self._weight += _HAN_WEIGHT if han else 1
        if char.isalnum():
            self._spoke = True
        if han:
            self._words += 0.5
            if at and self._spoke and not (before.isascii() and before.isalnum()):
                self._break_at(at)
        elif char.isspace():
            if not before.isspace() and self._spoke:
                self._note_blank(at, before)
        elif before.isspace() and char.isalnum():
            self._words += 1
            if char.isdigit() and self._break == self._blank:
                self._break = self._break_before

    def _note_blank(self, at: int, before: str) -> None:
        word = _WORD.findall(self._text[max(0, at - 12) : at])
        if word and word[-1].lower() in self._bounds.joints and self._break:
            # "and then" is one joint, before its first word.
            self._joint = self._joint if self._after_joint else self._break
            self._after_joint = True
        else:
            self._after_joint = False
        self._blank = at
        # "10:30 p.m.", "$1.2 million", "5 kg" stay whole.
        if not before.isdigit():
            self._break_at(at)

    def _break_at(self, at: int) -> None:
        self._break_before, self._break = self._break, at

    def _hard_cut(self, at: int) -> int:
        for place in (self._joint, self._break):
            if place * 3 > at:
                return place
        if self._weight <= ENDLESS * self._max_weight:
            return 0
        return self._blank if self._blank * 3 > at else at

    def _fence(self, at: int) -> Literal["yes", "no", "unknown"]:
        if _FENCE.match(self._text, at):
            return "yes"
        if not self._final and len(self._text) - at < 6 and _FENCE_BEGUN.match(self._text, at):
            return "unknown"
        return "no"

    def _fence_line(self, at: int) -> int | None:
        end = self._text.find("\n", at)
        if end != -1 and end - at <= CODE_LINE_CHARS:
            return end
        if len(self._text) - at > CODE_LINE_CHARS:
            return at + CODE_LINE_CHARS
        return len(self._text) if self._final else None
