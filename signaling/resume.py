"""Coming back to a call: the secret that proves it is one's own, and which of its connections is the current one."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Annotated

from pydantic import StringConstraints

from signaling.realtime_session import RealtimeSession

__all__ = ["Connection", "ResumeToken", "Resumption", "call_of"]

SECRET_BYTES = 24

ResumeToken = Annotated[str, StringConstraints(min_length=1, max_length=200, pattern=r"^[A-Za-z0-9_.\-]+$")]


def call_of(token: str) -> str:
    """The id of the call that `token` is for, by its own word; empty when it has none."""
    return token.rpartition(".")[0]


class Connection:
    """Messages of one connection. Those that an earlier one still brings change nothing."""

    def __init__(self, on_message: Callable[[str], None]) -> None:
        self._on_message = on_message
        self.current = True

    def on_message(self, text: str) -> None:
        """One text message of the client."""
        if self.current:
            self._on_message(text)


class Resumption:
    """One call that may be taken up again: its tokens, its data channel and its connection.

    A token is good for one connection: it is spent when that is up. Until then it may be presented again, since the
    answer that held the next token may have been lost with the network.

    `_held` is the one that the client certainly has, `_offered` that of the newest answer, which may not have arrived.

    Args:
        call_id: begins each token, so that whoever passes a request on can see where it belongs.
        expires_in_s: how long the call waits for its caller.
    """

    def __init__(self, call_id: str, realtime: RealtimeSession, connection: Connection, expires_in_s: float) -> None:
        self.realtime = realtime
        self.connection = connection
        self.expires_in_s = expires_in_s
        self._call_id = call_id
        # Nobody is told this one: until a token is issued, nothing opens the call.
        self._held = self._offered = self._new()
        realtime.on_resumed = self.confirm

    def issue(self) -> str:
        """A new token, for the answer that is about to be sent; the one offered before is void."""
        self._offered = self._new()
        return self._offered

    def accepts(self, token: str) -> bool:
        """Whether `token` opens this call; compared in constant time."""
        given = token.encode()
        held = hmac.compare_digest(given, self._held.encode())
        if hmac.compare_digest(given, self._offered.encode()):
            self._held = self._offered
            return True
        return held

    def confirm(self) -> None:
        """The newest connection is up: the client has the newest token, all others are spent."""
        self._held = self._offered

    def _new(self) -> str:
        return f"{self._call_id}.{secrets.token_urlsafe(SECRET_BYTES)}"

    def take_over(self, connection: Connection, send: Callable[[str], None]) -> None:
        """Messages come over `connection` and go out through `send` from here on."""
        self.connection.current = False
        self.connection = connection
        self.realtime.resume(send)
