"""The states of a call."""

from __future__ import annotations

from enum import Enum, auto

__all__ = ["CallState"]


class CallState(Enum):
    """Where a call stands."""

    OFFERED = auto()
    """Incoming; not answered yet."""
    DIALING = auto()
    """Outgoing; not answered yet."""
    CANCELLING = auto()
    """Outgoing; given up, the callee does not know yet."""
    ANSWERED = auto()
    """Incoming; our 2xx is not acknowledged yet."""
    UP = auto()
    CLOSING = auto()
    """Our BYE is on its way; for the application the call is over."""
    OVER = auto()
