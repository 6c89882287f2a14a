"""How a call ended, as the metrics name it."""

from __future__ import annotations

from agent.line import NOT_RESUMED
from agent.observe.metrics import Outcome

__all__ = ["outcome_of"]

OUTCOMES: dict[str, Outcome] = {
    "transferred": "transferred",
    "caller hung up": "hung_up",
    "peer closed": "hung_up",
    "peer vanished": "lost",
    "not connected": "lost",
    NOT_RESUMED: "lost",
    "internal error": "failed",
    "server stopped": "drained",
}
"""End reasons that are not simply `completed`, as the metrics name them."""


def outcome_of(reason: str) -> Outcome:
    """The outcome of a call that ended for `reason`."""
    return OUTCOMES.get(reason, "completed")
