"""Messages out of a byte stream, by Content-Length (RFC 3261 section 18.3), and keep-alives (RFC 5626). Pure."""

from __future__ import annotations

from dataclasses import dataclass

from signaling.sip.errors import SipError
from signaling.sip.message import Request, Response
from signaling.sip.parser import MAX_HEAD_BYTES, MAX_MESSAGE_BYTES, UnreadableMessage, content_length, parse_head

__all__ = ["PING", "PONG", "BrokenStream", "Framer", "Ping", "Pong"]

PING = b"\r\n\r\n"
"""A keep-alive, to be answered with PONG (RFC 5626 section 3.5.1)."""
PONG = b"\r\n"


@dataclass(frozen=True, slots=True)
class Ping:
    """The peer sent a keep-alive and waits for PONG."""


@dataclass(frozen=True, slots=True)
class Pong:
    """The peer answered ours."""


@dataclass(frozen=True, slots=True)
class BrokenStream:
    """Where the next message begins cannot be known: answer `fault` if it has a partial request, then close."""

    fault: UnreadableMessage


class Framer:
    """Fed what a connection delivers. Holds at most one message and what the last delivery has beyond it."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._message: Request | Response | UnreadableMessage | None = None
        self._missing = 0
        self._broken = False

    @property
    def waiting(self) -> bool:
        """A message has begun and not ended: it must come within the caller's deadline."""
        return bool(self._buffer) or self._message is not None

    def feed(
        self, data: bytes, most: int | None = None
    ) -> list[Request | Response | UnreadableMessage | Ping | Pong | BrokenStream]:
        """What `data` completes, in its order. Nothing after BrokenStream.

        Args:
            most: how many to return; what more there is stays for the next call. None: all.
        """
        found: list[Request | Response | UnreadableMessage | Ping | Pong | BrokenStream] = []
        if not self._broken:
            self._buffer += data
            while not self._broken and len(found) != most and self._step(found):
                pass
        return found

    def _step(self, found: list[Request | Response | UnreadableMessage | Ping | Pong | BrokenStream]) -> bool:
        buffer = self._buffer
        if self._message is not None:
            if len(buffer) < self._missing:
                return False
            message, self._message = self._message, None
            if not isinstance(message, UnreadableMessage):
                message.body = bytes(buffer[: self._missing])
            del buffer[: self._missing]
            found.append(message)
            return True
        if buffer.startswith(PONG):
            if buffer.startswith(PING):
                found.append(Ping())
                del buffer[: len(PING)]
                return True
            if len(buffer) < len(PING) and PING.startswith(bytes(buffer)) and len(buffer) > len(PONG):
                return False
            found.append(Pong())
            del buffer[: len(PONG)]
            return True
        end = buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES + 4)
        if end < 0:
            if len(buffer) > MAX_HEAD_BYTES:
                self._break(found, SipError(f"header: over {MAX_HEAD_BYTES} bytes", status=513), None)
            return False
        head = bytes(buffer[:end])
        del buffer[: end + 4]
        self._begin(head, found)
        return True

    def _begin(
        self, head: bytes, found: list[Request | Response | UnreadableMessage | Ping | Pong | BrokenStream]
    ) -> None:
        message: Request | Response | UnreadableMessage
        try:
            message = parse_head(head)
        except UnreadableMessage as fault:
            message = fault
        partial = message.partial if isinstance(message, UnreadableMessage) else message
        headers = partial.headers if partial is not None else None
        try:
            length = content_length(headers) if headers is not None else None
            if length is None:
                raise SipError("Content-Length: required once on a stream", field="Content-Length")
            if length > MAX_MESSAGE_BYTES:
                raise SipError(f"Content-Length: over {MAX_MESSAGE_BYTES}", field="Content-Length", status=513)
        except SipError as exc:
            fault_at = message if isinstance(message, UnreadableMessage) else exc
            self._break(found, fault_at, partial if isinstance(partial, Request) else None)
            return
        self._message, self._missing = message, length

    def _break(
        self,
        found: list[Request | Response | UnreadableMessage | Ping | Pong | BrokenStream],
        fault: SipError,
        partial: Request | None,
    ) -> None:
        self._broken = True
        self._buffer.clear()
        found.append(BrokenStream(UnreadableMessage(fault, partial)))
