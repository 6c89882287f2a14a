"""What the agent said last: what an answer answers, and what an echo sounds like. Pure."""

from __future__ import annotations

import re
from collections import deque

from num2words import num2words

from agent.conversation.words import words

__all__ = ["Said"]

MAX_CLAUSES = 64
"""As many of a reply's clauses are kept, and of those as many characters as below: an echo is never older."""

MAX_CHARS = 1_500

ASKED_CHARS = 240
"""As much of the end of a reply as an answer may refer to."""

ECHO_DELAY_S = 0.5
"""An echo comes back within this time: 150 ms is usual, half a second happens between mobile networks."""

ECHO_MEMORY_S = 120.0
"""A line that had echo once is expected to have it again for this long."""

MAX_DIGITS = 6
"""Longer figures are read digit by digit, each its own way."""

_OCLOCK = re.compile(r"\b(\d{1,2}):0+\b")

TAIL_WORDS = 2
"""An echo that outlasts the reply holds one of its last words."""


class Said:
    """The clauses of the newest reply that was heard.

    A reply goes to the playout clause by clause, ahead of being heard, so a clause's time says little: an echo is
    compared with the whole reply, from its first sound on.
    """

    def __init__(self) -> None:
        self.asked = ""
        """The end of the last reply that was heard in full; empty when it was cut short."""
        self.ended_at: float | None = None
        """When the newest reply that was heard ended; None while it runs or when there was none."""
        self.cut = False
        """Whether the newest reply that is over was cut short."""
        self._clauses: deque[str] = deque(maxlen=MAX_CLAUSES)
        self._revision = 0
        self._ahead: deque[str] = deque(maxlen=MAX_CLAUSES)
        """Clauses of a reply that nobody hears yet."""
        self._ahead_revision = 0
        self._echo_at: float | None = None

    def says(self, revision: int, text: str) -> None:
        """A clause of reply `revision` goes to the playout."""
        if revision == self._revision:
            clauses = self._clauses
        else:
            clauses = self._ahead
            if revision != self._ahead_revision:
                self._ahead_revision = revision
                clauses.clear()
        clauses.append(text)
        while len(clauses) > 1 and sum(map(len, clauses)) > MAX_CHARS:
            clauses.popleft()

    def audible(self, revision: int) -> None:
        """The first sound of reply `revision` leaves."""
        if revision == self._revision:
            return
        self._revision = revision
        self._clauses.clear()
        if revision == self._ahead_revision:
            self._clauses.extend(self._ahead)
        self._ahead.clear()
        self.ended_at = None

    def ended(self, now: float, *, in_full: bool) -> None:
        """The reply that was heard last is over."""
        self.asked = self.so_far if in_full else ""
        self.ended_at = now
        self.cut = not in_full

    @property
    def so_far(self) -> str:
        """The end of the reply that was heard last, as far as it was said."""
        return " ".join(clause.strip() for clause in self._clauses)[-ASKED_CHARS:]

    def echoed(self, now: float) -> None:
        """An echo was recognised."""
        self._echo_at = now

    def echoes(self, now: float) -> bool:
        """Whether this line is known to bring our own words back."""
        return self._echo_at is not None and now - self._echo_at < ECHO_MEMORY_S

    def could_echo(self, since: float) -> bool:
        """Whether sound that began at `since` may be the reply that was heard last, coming back."""
        return bool(self._clauses) and (self.ended_at is None or since < self.ended_at + ECHO_DELAY_S)

    def reads_like(self, text: str, last_speech: float | None) -> bool:
        """True when `text` is a stretch of what the agent said, but for a recogniser's mistakes.

        Args:
            text: what was heard.
            last_speech: when its sound ended; None while it goes on. An echo that outlasts the reply holds its end.
        """
        heard = _spoken(text)
        pattern = f" {' '.join(heard)} "
        letters = len(pattern) - len(heard) - 1
        if not letters:
            return False
        said = [word for clause in self._clauses for word in _spoken(clause)]
        if self.ended_at is not None and last_speech is not None and last_speech > self.ended_at:
            said, ends_within = said[-len(heard) - TAIL_WORDS :], len(" ".join(said[-TAIL_WORDS:])) + 1
        else:
            ends_within = None
        # One word alone is too short to forgive much: "stop" is not "shop".
        forgiven = letters // 4 if len(heard) > 1 else letters // 6
        return _best_match(pattern, f" {' '.join(said)} ", ends_within) <= forgiven


def _spoken(text: str) -> list[str]:
    """The words as they sound: figures spelled out, and what was said twice in a row (a reply that was paused goes on
    with the word that was cut) once."""
    out: list[str] = []
    for word in words(_OCLOCK.sub(r"\1", text)):
        spoken = num2words(int(word)) if word.isascii() and word.isdigit() and len(word) <= MAX_DIGITS else word
        for part in words(spoken):
            if not out or out[-1] != part:
                out.append(part)
    return out


def _best_match(pattern: str, text: str, ends_within: int | None) -> int:
    """Fewest edits between `pattern` and any stretch of `text` that ends in its last `ends_within` characters.

    Bit-parallel (G. Myers, "A fast bit-vector algorithm for approximate string matching", JACM 46(3), 1999): a few
    operations on integers of `len(pattern)` bits a character.
    """
    peq: dict[str, int] = {}
    for index, char in enumerate(pattern):
        peq[char] = peq.get(char, 0) | 1 << index
    mask = (1 << len(pattern)) - 1
    top = 1 << (len(pattern) - 1)
    plus, minus = mask, 0
    score = best = len(pattern)
    counted_from = 0 if ends_within is None else len(text) - ends_within
    for index, char in enumerate(text):
        equal = peq.get(char, 0)
        vertical = equal | minus
        horizontal = ((((equal & plus) + plus) ^ plus) | equal) & mask
        plus_h = (minus | ~(horizontal | plus)) & mask
        minus_h = plus & horizontal
        score += bool(plus_h & top) - bool(minus_h & top)
        plus_h = plus_h << 1 & mask
        minus_h = minus_h << 1 & mask
        plus = (minus_h | ~(vertical | plus_h)) & mask
        minus = plus_h & vertical
        if index >= counted_from:
            best = min(best, score)
    return best
