"""What was really said: the caller's turns and what the caller heard of the agent's."""

from __future__ import annotations

from collections import deque

from agent.nlu.hook import HistoryItem, Interrupted

__all__ = ["History"]

MAX_ITEMS = 400
"""Bound for very long calls; the oldest are forgotten."""


class History:
    """Contributions in order. Pure. Times are seconds since the call began."""

    def __init__(self) -> None:
        self._items: deque[HistoryItem] = deque(maxlen=MAX_ITEMS)
        self._interrupted: Interrupted | None = None

    @property
    def items(self) -> tuple[HistoryItem, ...]:
        """Oldest first."""
        return tuple(self._items)

    def user(self, text: str, *, at_s: float = 0.0, end_s: float = 0.0) -> None:
        """The caller's turn was taken: spoken (or typed) from `at_s` to `end_s`."""
        if text:
            self._items.append(HistoryItem("user", text, at_s=at_s, end_s=end_s))

    def agent(
        self, heard: str, unheard: str = "", *, interrupted: bool = False, at_s: float = 0.0, end_s: float = 0.0
    ) -> None:
        """A reply is over, audible from `at_s` to `end_s`.

        A reply of which nothing was heard leaves only the mark that it was interrupted.
        """
        if interrupted:
            self._interrupted = Interrupted(heard, unheard)
        if heard:
            self._items.append(HistoryItem("agent", heard, unheard, interrupted, at_s, end_s))

    @property
    def before_turn(self) -> tuple[HistoryItem, ...]:
        """What `items` will be after `retract_user`."""
        items = list(self._items)
        if items and items[-1].role == "user":
            items.pop()
        elif len(items) > 1 and items[-1].interrupted and items[-2].role == "user":
            del items[-2]
        return tuple(items)

    @property
    def interrupted(self) -> Interrupted | None:
        """What `take_interrupted` would return."""
        return self._interrupted

    def take_interrupted(self) -> Interrupted | None:
        """The last reply if it was cut short and no turn has been told so yet."""
        interrupted, self._interrupted = self._interrupted, None
        return interrupted

    def retract_user(self) -> None:
        """The caller goes on with the turn that was taken last: it will come again, longer.

        What was heard of a reply that the caller cut short by going on stays: it was heard.
        """
        self._items = deque(self.before_turn, maxlen=MAX_ITEMS)
