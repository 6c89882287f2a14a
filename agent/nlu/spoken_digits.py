"""Digits as people say them: "four two seven one", "double five", "forty-two", "four thousand and five". Pure.

English only; numerals are read in any language.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["DIGIT_WORDS", "digit_runs", "read_digits", "spell"]

_UNITS = {
    word: value
    for value, words in enumerate(
        ["zero nought", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    )
    for word in words.split()
}
_TEENS = {
    word: value
    for value, word in enumerate(
        "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split(), 10
    )
}
_TENS = {
    word: value
    for value, word in zip(
        range(20, 100, 10), "twenty thirty forty fifty sixty seventy eighty ninety".split(), strict=True
    )
}
_REPEATS = {"double": 2, "triple": 3, "treble": 3}
_SOUND_ALIKE = {
    "oh": "0",
    "o": "0",
    "to": "2",
    "too": "2",
    "tree": "3",
    "for": "4",
    "fore": "4",
    "ate": "8",
    "niner": "9",
}
_FILLERS = frozenset({"uh", "um", "er", "erm", "dash", "hyphen"})

DIGIT_WORDS = frozenset({*_UNITS, *_TEENS, *_TENS, *_REPEATS, *_SOUND_ALIKE, "hundred", "thousand"})
"""Words that may be part of a number, so that no keyword is taken for one of them by likeness."""


def digit_runs(words: Sequence[str]) -> list[str]:
    """Every unbroken run of digits in lower-case words, in order.

    Words that only sound like digits ("for", "to", "oh") count between or after digits, and "oh" before one too.
    """
    runs: list[str] = []
    run = ""
    index = 0
    while index < len(words):
        digits, used = _read_at(words, index)
        if not used and words[index] in _SOUND_ALIKE and _is_in_run(words, index, bool(run)):
            digits, used = _SOUND_ALIKE[words[index]], 1
        if used:
            run += digits
            index += used
            continue
        if words[index] not in _FILLERS and run:
            runs.append(run)
            run = ""
        index += 1
    return [*runs, run] if run else runs


def read_digits(words: Sequence[str], least: int, most: int) -> str:
    """The number the caller meant, if it has `least` to `most` digits; else all digits there are, or "".

    The last run that fits wins ("four two seven two, no, four two seven one"); runs are joined when none fits alone.
    """
    runs = digit_runs(words)
    for run in reversed(runs):
        if least <= len(run) <= most:
            return run
    return "".join(runs)


def spell(digits: str) -> str:
    """Digits as separate words, for a voice: "4271" is "four two seven one"."""
    names = {str(value): word for word, value in _UNITS.items() if word != "nought"}
    return " ".join(names.get(digit, digit) for digit in digits)


def _is_in_run(words: Sequence[str], index: int, in_run: bool) -> bool:
    follows = index + 1 < len(words) and bool(_read_at(words, index + 1)[1])
    if words[index] in ("oh", "o"):
        return in_run or follows
    return in_run and (follows or index + 1 == len(words))


def _read_at(words: Sequence[str], index: int) -> tuple[str, int]:
    """Digits that begin at `index` and how many words they take; ("", 0) for none."""
    word = words[index]
    if word.isascii() and word.isdigit():
        return _scaled(words, index, word, 1)
    if word in _REPEATS and index + 1 < len(words):
        digit = words[index + 1]
        repeated = str(_UNITS[digit]) if digit in _UNITS else "0" if digit in ("oh", "o") else digit
        if len(repeated) == 1 and repeated in "0123456789":
            return repeated * _REPEATS[word], 2
    value, used = _below_hundred(words, index)
    return _scaled(words, index, str(value), used) if used else ("", 0)


def _below_hundred(words: Sequence[str], index: int) -> tuple[int, int]:
    if index >= len(words):
        return 0, 0
    word = words[index]
    if word in _TENS:
        unit = _UNITS.get(words[index + 1], 0) if index + 1 < len(words) else 0
        return (_TENS[word] + unit, 2) if unit else (_TENS[word], 1)
    value = {**_UNITS, **_TEENS}.get(word)
    if value is None and word.isascii() and word.isdigit() and len(word) <= 2:
        value = int(word)
    return (value, 1) if value is not None else (0, 0)


def _scaled(words: Sequence[str], index: int, digits: str, used: int) -> tuple[str, int]:
    """Add "hundred" and "thousand" and what follows them."""
    end = index + used
    scale = {"hundred": 100, "thousand": 1000}.get(words[end]) if end < len(words) else None
    if scale is None or len(digits) > 2:
        return digits, used
    value = int(digits) * scale
    end += 1
    rest = end + 1 if end < len(words) and words[end] == "and" else end
    if scale == 1000:
        hundreds, taken = _below_hundred(words, rest)
        if taken and rest + taken < len(words) and words[rest + taken] == "hundred" and hundreds < 10:
            value += hundreds * 100
            end = rest + taken + 1
            rest = end + 1 if end < len(words) and words[end] == "and" else end
    small, taken = _below_hundred(words, rest)
    return (str(value + small), rest + taken - index) if taken else (str(value), end - index)
