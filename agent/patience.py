"""When a slow hook is covered, and by what: filler, holding phrase, apology. Pure: no clock, no I/O."""

from __future__ import annotations

from typing import Literal

from agent.config import ConversationSettings
from agent.nlu.hook import TurnKind

__all__ = ["Patience", "Step"]

Step = Literal["filler", "hold", "flush", "apology"]

PENDING_FLUSH_S = 0.4
"""A hook that falls silent in mid-clause gets what it wrote so far spoken after this long."""

NOBODY_WAITS: tuple[TurnKind, ...] = ("greeting", "silence")
"""Turns in which the caller asked nothing: to ask them for a moment would be odd."""


class Patience:
    """How long one reply's hook is waited for. Times are seconds of one monotonic clock.

    Args:
        settings: the deadlines.
        kind: of the turn.
    """

    def __init__(self, settings: ConversationSettings, kind: TurnKind) -> None:
        self._settings = settings
        self._covers = kind not in NOBODY_WAITS
        self._ahead = False
        self._since = 0.0
        self._texted = False
        self._past: set[Step] = set()

    def begin(self, now: float, *, ahead: bool = False) -> None:
        """The hook was asked. `ahead`: of a turn that is not over, so nobody waits yet; begin again once it is."""
        self._since = now
        self._ahead = ahead

    def text(self) -> None:
        """The answer has begun: nothing covers it any more."""
        self._texted = True

    def sound(self, until: float) -> None:
        """Something else than text plays until about then, and covers the hook so long."""
        self._since = max(self._since, until)

    def wait(self, now: float) -> None:
        """The next piece is waited for from now on. Before the first text the waiting counts from the question."""
        if self._texted:
            self._since = now
            self._past.discard("flush")

    def passed(self, step: Step) -> None:
        """The step was taken."""
        self._past.add(step)

    def next(self, *, pending: bool) -> tuple[float, Step]:
        """When something is to be done if the hook gives nothing until then, and what.

        Args:
            pending: some text waits for the rest of its clause.
        """
        settings = self._settings
        steps: list[tuple[float, Step]] = []
        if not self._texted and self._covers and not self._ahead:
            if settings.filler_after_s:
                steps.append((settings.filler_after_s, "filler"))
            steps.append((settings.hold_after_s, "hold"))
        elif self._texted and pending:
            steps.append((PENDING_FLUSH_S, "flush"))
        steps.append((settings.apologise_after_s, "apology"))
        after_s, step = next(entry for entry in steps if entry[1] not in self._past)
        return self._since + after_s, step
