"""What was really said: the caller's turns and what the caller heard of the agent's."""

from __future__ import annotations

from collections import deque

from agent.nlu.hook import HistoryItem, Interrupted

__all__ = ["History"]

MAX_ITEMS = 400
"""Bound for very long calls; the oldest are forgotten."""


class History:
    """Contributions in order. Pure."""

    def __init__(self) -> None:
        self._items: deque[HistoryItem] = deque(maxlen=MAX_ITEMS)
        self._interrupted: Interrupted | None = None

    @property
    def items(self) -> tuple[HistoryItem, ...]:
        """Oldest first."""
        return tuple(self._items)

    def user(self, text: str) -> None:
        """The caller's turn was taken."""
        if text:
            self._items.append(HistoryItem("user", text))

    def agent(self, heard: str, unheard: str = "", *, interrupted: bool = False) -> None:
        """A reply is over. A reply of which nothing was heard leaves only the mark that it was interrupted."""
        if interrupted:
            self._interrupted = Interrupted(heard, unheard)
        if heard:
            self._items.append(HistoryItem("agent", heard, unheard, interrupted))

    @property
    def interrupted(self) -> Interrupted | None:
        """What `take_interrupted` would return."""
        return self._interrupted

    def take_interrupted(self) -> Interrupted | None:
        """The last reply if it was cut short and no turn has been told so yet."""
        interrupted, self._interrupted = self._interrupted, None
        return interrupted

    def retract_user(self) -> None:
        """The caller goes on with the turn that was taken last: it will come again, longer."""
        if self._items and self._items[-1].role == "user":
            self._items.pop()
