"""What can be wrong with a SIP message or a command.

ProtocolError (agent.errors)
└── SipError      a peer's message is wrong; carries the status code that refuses it
RejoinderError (agent.errors)
└── WrongState    a command does not fit the call's state
"""

from __future__ import annotations

from agent.errors import ProtocolError, RejoinderError

__all__ = ["SipError", "WrongState"]


class SipError(ProtocolError):
    """A peer's message is malformed or cannot be served.

    Args:
        message: names the part and what was expected; never the peer's own text.
        status: the response code for a request that has this fault (RFC 3261 section 21).
        field: the header field or part at fault.
        headers: more header fields for that response.
    """

    def __init__(
        self, message: str, *, status: int = 400, field: str | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        super().__init__(message, field=field, code=str(status))
        self.status = status
        self.headers = headers


class WrongState(RejoinderError):
    """A command does not fit the call's state. The message names both."""
