"""Keys of one entry, and how they combine with words of the same turn. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent.conversation.words import TOKEN

__all__ = ["DIGIT_GAP_S", "MAX_DIGITS", "Keypad"]

DIGIT_GAP_S = 1.5
"""Keys further apart are separate entries."""

MAX_DIGITS = 64
"""An entry is cut here; the longest number a caller types, an IBAN, has 34."""


@dataclass(slots=True)
class _Run:
    """Keys pressed at one place among the turn's words."""

    keys: str
    after_words: int | None
    """How many words of the turn came before; None until the reading that covers them is there."""


class Keypad:
    """The entry being typed. Times are seconds on the machine's clock."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        self._at = 0.0

    def __bool__(self) -> bool:
        """True while an entry waits."""
        return bool(self._runs)

    @property
    def _keys(self) -> str:
        return "".join(run.keys for run in self._runs)

    def press(self, digit: str, now: float, after_words: int | None) -> None:
        """One more key: 0-9 * # A-D. `after_words`: how many words were said before it in this turn, if known."""
        self._at = now
        # One more than the limit is taken for the `#` that ends an entry of full length.
        if len(self._keys) >= MAX_DIGITS + (digit == "#"):
            return
        if self._runs and self._runs[-1].after_words == after_words:
            self._runs[-1].keys += digit
        else:
            self._runs.append(_Run(digit, after_words))

    def place(self, words: int) -> None:
        """The reading that covers all speech before the newest keys has so many words."""
        for run in self._runs:
            if run.after_words is None:
                run.after_words = words

    def complete(self, wanted: int | None) -> bool:
        """Ended with `#`, or as long as was asked for."""
        keys = self._keys
        return keys.endswith("#") or (wanted is not None and len(keys) >= wanted)

    def over(self, now: float, wanted: int | None, gap_s: float = DIGIT_GAP_S) -> bool:
        """No key is waited for any more: the entry is complete, or `gap_s` has passed since its last key."""
        return bool(self._runs) and (self.complete(wanted) or now - self._at >= gap_s)

    def join(self, text: str) -> str:
        """The turn's words with the keys where they were pressed: keypad "12", voice "three four" is "12 three four".

        A `#` that ends the entry is left out, one between two entries stays ("12#34"); without words a lone `#` is
        the entry.
        """
        runs = [(run.keys, run.after_words) for run in self._runs]
        if runs:
            keys, after = runs[-1]
            runs[-1] = (keys.removesuffix("#"), after)
            if not text and not "".join(keys for keys, _ in runs):
                return "#"
        ends = [match.end() for match in TOKEN.finditer(text)]
        parts: list[str] = []
        done = 0
        for keys, after in runs:
            at = len(text) if after is None or after > len(ends) else ends[after - 1] if after else 0
            if at > done:
                parts.append(text[done:at].strip())
                done = at
            parts.append(keys)
        parts.append(text[done:].strip())
        return " ".join(part for part in parts if part) if text else "".join(parts)

    def clear(self) -> None:
        """The entry was taken."""
        self._runs.clear()
