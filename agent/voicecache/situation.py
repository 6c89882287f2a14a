"""What a prediction may rest on: where the dialogue stands, what the caller has said of the running turn. Pure.

Texts become templates: what a call knows by name (`{name}`, `{order}` of the session's state) and what the caller just
said (`{heard_number}`, `{heard_name}`) is left open, so that "Thanks, Anna." teaches "Thanks, {name}." The caller's
words themselves are only ever kept as numbers of hash buckets.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agent.voicecache.names import names_in

__all__ = ["Situation", "fill", "heard_slots", "label", "slots_of", "template", "word_buckets"]

BUCKETS = 1 << 14
"""Words share buckets by chance, so that a bucket does not tell its word; few enough do to spoil a prediction."""

MAX_SLOTS = 16
MAX_VALUE_CHARS = 40
MIN_VALUE_CHARS = 2
MAX_LABEL_CHARS = 1_000

_LABEL = re.compile(r"[a-z][a-z_.:/-]{0,63}")
_SLOT = re.compile(r"\{([a-z_]+)\}")
_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_NUMBER = re.compile(r"\d[\d ,.-]*\d|\d")
_COMMON = frozenset(
    "a an and the i i'm it it's is to of in on my me you your for that this with do can have was be at so um uh".split()
)


@dataclass(frozen=True, slots=True)
class Situation:
    """Where the dialogue stands before the agent's next words."""

    state: str = ""
    """The hook's name for it (`session.state["state"]`), if it has one."""
    said: str = ""
    """Template of the agent's last clause."""
    intent: str = ""
    """Of the caller's last turn, if the hook tells."""
    expected: tuple[str, ...] = ()
    """Openings that the hook says are likely (`expect`)."""
    slots: Mapping[str, str] = field(default_factory=dict)
    """Values by name."""


def label(name: object) -> str:
    """A hook's name for a state or an intent, as it may be kept and shared.

    An identifier in small letters stays as it is. Any other text may hold what nobody else should read: it becomes the
    number of a hash bucket, as the caller's words do.
    """
    if not isinstance(name, str) or not name:
        return ""
    if _LABEL.fullmatch(name):
        return name
    return f"#{_bucket(name[:MAX_LABEL_CHARS])}"


def slots_of(state: Mapping[str, Any]) -> dict[str, str]:
    """The short texts and numbers of a session's state, by name; at most 16, of one level of nesting."""
    slots: dict[str, str] = {}
    nested = [value for value in state.values() if isinstance(value, Mapping)]
    for level in (state, *nested):
        for name, value in level.items():
            if len(slots) >= MAX_SLOTS:
                return slots
            if isinstance(value, bool) or not isinstance(value, str | int) or name in ("state", "intent"):
                continue
            text = str(value)
            if re.fullmatch(r"[a-z_]+", str(name)) and MIN_VALUE_CHARS <= len(text) <= MAX_VALUE_CHARS:
                slots.setdefault(str(name), text)
    return slots


def heard_slots(heard: str) -> dict[str, str]:
    """What a reply may echo of the caller's words: their last number and their last name."""
    slots: dict[str, str] = {}
    if numbers := _NUMBER.findall(heard):
        slots["heard_number"] = numbers[-1]
    if names := names_in(heard):
        slots["heard_name"] = names[-1]
    return slots


def template(text: str, slots: Mapping[str, str]) -> str:
    """`text` with the values of `slots` replaced by their names, the longest first; its own braces vanish."""
    text = text.replace("{", "(").replace("}", ")")
    for name, value in sorted(slots.items(), key=lambda item: -len(item[1])):
        if len(value) >= MIN_VALUE_CHARS:
            text = re.sub(rf"(?<![\w{{]){re.escape(value)}(?![\w}}])", f"{{{name}}}", text)
    return text


def fill(pattern: str, slots: Mapping[str, str]) -> str | None:
    """The text of a template in this call; None if a value is not known."""
    names = _SLOT.findall(pattern)
    if any(name not in slots for name in names):
        return None
    return _SLOT.sub(lambda m: slots[m[1]], pattern)


def word_buckets(text: str) -> frozenset[int]:
    """Hash buckets of the words of `text` that carry meaning; a figure counts as one word."""
    words: Sequence[str] = [word.lower() for word in _WORD.findall(text)]
    kept = {word for word in words if word not in _COMMON}
    if _NUMBER.search(text):
        kept.add("#")
    return frozenset(map(_bucket, kept))


def _bucket(text: str) -> int:
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=4).digest()
    return int.from_bytes(digest, "little") % BUCKETS
