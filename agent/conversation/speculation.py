"""A reply begun before the turn is surely over. Pure."""

from __future__ import annotations

from agent.config import ConversationSettings
from agent.conversation.protocol import DropSpeculation, Speculate
from agent.conversation.words import same_words

__all__ = ["Speculation"]


class Speculation:
    """At most one reply is out ahead of the decision; it is adopted or dropped before the next.

    Args:
        settings: `speculate`, `speculate_from` and `speculations_per_turn`.
    """

    def __init__(self, settings: ConversationSettings) -> None:
        self._settings = settings
        self._out: Speculate | None = None
        self._left = settings.speculations_per_turn if settings.speculate else 0

    def wants(self, text: str, probability: float) -> bool:
        """Whether a reply to `text` is to be begun, given the probability that the turn is over."""
        if not text or probability < self._settings.speculate_from or self._left <= 0:
            return False
        return self._out is None or not same_words(self._out.text, text)

    def begin(self, revision: int, text: str, confidence: float) -> list[DropSpeculation | Speculate]:
        """Begin a reply to `text`; the one that is out is dropped."""
        dropped = self.drop()
        self._left -= 1
        self._out = Speculate(revision, text, confidence)
        return [*dropped, self._out]

    def adopt(self, text: str) -> int | None:
        """The turn ended with `text`: the revision of the reply that was begun to it, or None. It is out no longer."""
        if self._out is None or not same_words(self._out.text, text):
            return None
        revision, self._out = self._out.revision, None
        return revision

    def drop(self) -> list[DropSpeculation | Speculate]:
        """The turn goes on or is another one."""
        if self._out is None:
            return []
        dropped, self._out = DropSpeculation(self._out.revision), None
        return [dropped]

    def stop(self) -> list[DropSpeculation | Speculate]:
        """Drop what is out and begin nothing more in this turn."""
        self._left = 0
        return self.drop()

    def fresh_turn(self) -> None:
        """A new turn may be guessed at as often as the last one."""
        self._left = self._settings.speculations_per_turn if self._settings.speculate else 0
