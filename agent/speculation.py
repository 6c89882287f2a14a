"""A reply begun before its turn was surely over: on a copy of the session's state, and whether it may become the reply.

Pure: what runs is `agent.reply`, who runs it is `agent.speaking`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agent.nlu.hook import HistoryItem, Interrupted, Session, Turn
from agent.tts.protocol import Style, Voice

__all__ = ["NotPlain", "Premise", "copied_session", "plain_copy"]

MAX_VALUES = 10_000
"""Values in a state that is copied for a guess: copying them takes about 5 ms, and longer would be heard by all."""

_IMMUTABLE = (str, bytes, int, float, complex, bool, type(None))


class NotPlain(Exception):
    """The state holds an object that cannot be copied without asking what it is, or is too large."""


def plain_copy(value: Any) -> Any:
    """A copy of plain data: dicts, lists, tuples, sets, and what cannot change. Raises NotPlain for anything else."""
    return _Copier().copy(value)


class _Copier:
    def __init__(self) -> None:
        self._left = MAX_VALUES

    def copy(self, value: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise NotPlain(f"more than {MAX_VALUES} values")
        kind = type(value)
        if kind in _IMMUTABLE:
            return value
        try:
            if kind is dict:
                return {self.copy(key): self.copy(entry) for key, entry in value.items()}
            if kind in (list, tuple, set, frozenset):
                return kind(self.copy(entry) for entry in value)
        except RecursionError:
            raise NotPlain("nested too deeply") from None
        raise NotPlain(kind.__name__)


def copied_session(session: Session) -> Session:
    """The same session with a state of its own. Raises NotPlain."""
    return replace(session, state=plain_copy(session.state))


@dataclass(frozen=True, slots=True)
class Premise:
    """What a reply was begun on; it answers the turn only if all of this still holds."""

    state: Mapping[str, Any]
    history: tuple[HistoryItem, ...]
    interrupted: Interrupted | None
    language: str
    speaking_as: tuple[Voice, Style]

    @classmethod
    def of(cls, turn: Turn, speaking_as: tuple[Voice, Style]) -> Premise:
        """The premise of a turn that is about to be asked. Raises NotPlain."""
        return cls(plain_copy(turn.session.state), turn.history, turn.interrupted, turn.language, speaking_as)

    def holds(self, turn: Turn, speaking_as: tuple[Voice, Style]) -> bool:
        """Whether `turn`, asked now, finds the same as the one that was guessed."""
        return (
            self.speaking_as == speaking_as
            and self.language == turn.language
            and self.interrupted == turn.interrupted
            and self.history == turn.history
            and self.state == turn.session.state
        )
