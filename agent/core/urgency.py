"""How urgent the synthesis is that the current task asked for: how a caller tells an engine two layers below.

Engines read it for each piece, so work that was begun for later becomes urgent once somebody waits for it.
"""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from agent.core.fairqueue import Priority

__all__ = ["Urgency", "current_priority", "urgency"]


@dataclass(slots=True)
class Urgency:
    """A priority that may change while the work goes on."""

    priority: Priority = Priority.NORMAL


urgency: ContextVar[Urgency | None] = ContextVar("urgency", default=None)
"""Set it in the task that consumes the engine's stream; tasks begun from there inherit it."""


def current_priority() -> Priority:
    """Priority for the engine's next piece; NORMAL where nobody said otherwise."""
    told = urgency.get()
    return Priority.NORMAL if told is None else told.priority
