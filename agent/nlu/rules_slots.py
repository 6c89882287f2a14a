"""Reading a slot's value out of what a caller said or pressed. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from agent.nlu.phrases import Utterance, phrase_score, words_of
from agent.nlu.rules_file import Slot
from agent.nlu.spoken_digits import read_digits

__all__ = ["partial_digits", "slot_value"]

_YES = ("yes", "yeah", "yep", "yup", "sure", "please do", "correct", "thats right", "of course", "okay", "ok", "right")
_NO = ("no", "nope", "nah", "not", "dont", "wrong", "never")
_NAME_CUES = (("my", "name", "is"), ("the", "name", "is"), ("name", "is"), ("this", "is"), ("call", "me"), ("i", "am"))
_SHORT_CUES = (("im",), ("its",))
_NAME_STOPS = frozenset(
    "a an and the i im its my is it for from with calling about but please here speaking not just yes no uh um er "
    "looking trying having wondering sorry thanks hello hi hey so because where what when".split()
)
MAX_NAME_WORDS = 3


def slot_value(slot: Slot, utterance: Utterance, *, pending: bool) -> str | None:
    """The slot's value, or None.

    Args:
        slot: what is wanted.
        utterance: what was said.
        pending: the caller was just asked for it, so a bare answer counts.
    """
    words = utterance.words
    if slot.type == "digits":
        digits = read_digits(words, slot.least, slot.most)
        return digits if slot.least <= len(digits) <= slot.most else None
    if slot.type == "choice":
        best = max(
            ((_best(utterance, [value, *phrases]), value) for value, phrases in slot.values.items()), key=lambda p: p[0]
        )
        return best[1] if best[0] else None
    if slot.type == "yes_no":
        if _best(utterance, _NO):
            return "no"
        return "yes" if _best(utterance, _YES) else None
    if slot.type == "name":
        return _name(words, pending)
    return " ".join(words) or None if pending else None


def partial_digits(slot: Slot, utterance: Utterance, before: str) -> str:
    """Digits so far, for a number that comes in pieces; "" when there are none or too many to be one number."""
    digits = before + read_digits(utterance.words, slot.least, slot.most)
    return digits if len(digits) <= slot.most else ""


def _best(utterance: Utterance, phrases: Sequence[str]) -> float:
    return max(phrase_score(utterance, words_of(phrase)) for phrase in phrases)


def _name(words: Sequence[str], pending: bool) -> str | None:
    cues = _NAME_CUES + _SHORT_CUES if pending else _NAME_CUES[:3]
    for cue in cues:
        for start in range(len(words) - len(cue)):
            if tuple(words[start : start + len(cue)]) == cue:
                return _name_from(words[start + len(cue) :])
    if not pending:
        return None
    rest = list(words)
    while rest and rest[0] in _NAME_STOPS:
        rest.pop(0)
    return _name_from(rest)


def _name_from(words: Sequence[str]) -> str | None:
    name: list[str] = []
    for word in words[: MAX_NAME_WORDS + 1]:
        if word in _NAME_STOPS or not word.isalpha():
            break
        name.append(word.capitalize())
    return " ".join(name) if 0 < len(name) <= MAX_NAME_WORDS else None
