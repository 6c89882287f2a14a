"""The line between supervisor and worker: JSON messages in order, sockets along with them (SCM_RIGHTS, unix(7)).

A pair of SOCK_SEQPACKET sockets: a message is one packet, and the end of a process is the end of the line, whatever it
ended by.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

from agent.errors import EnvironmentFault, RejoinderError

__all__ = ["Channel", "ChannelBroken", "channel_pair"]

Message = Mapping[str, Any]

MAX_MESSAGE_BYTES = 128 * 1024
"""Below the kernel's default send buffer (208 KiB): a packet goes whole or not at all."""

MAX_WAITING = 1024
"""Messages kept while the other side does not read; more means that it never will."""

BATCH = 64
"""Messages taken in one turn of the event loop."""


class ChannelBroken(RejoinderError):
    """The other side is gone, does not read, or sends what is no message."""

    retryable = True


def channel_pair() -> tuple[socket.socket, socket.socket]:
    """Both ends. Raises EnvironmentFault where the system has no such sockets."""
    try:
        return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    except (AttributeError, OSError) as exc:
        raise EnvironmentFault("server.workers: more than one worker needs Linux; set it to 1 here") from exc


class Channel:
    """One end, on the event loop. `start` before the first message is due, `close` at the end.

    Args:
        sock: the end; owned from here on.
        on_message: called with each message and the descriptor that came along, which is then the callee's.
        on_closed: called once, when the other side is gone or the line is unusable.
    """

    def __init__(
        self,
        sock: socket.socket,
        on_message: Callable[[dict[str, Any], int | None], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._sock = sock
        self._on_message = on_message
        self._on_closed = on_closed
        self._waiting: deque[bytes] = deque()
        self._loop = asyncio.get_running_loop()
        self.closed = False
        sock.setblocking(False)

    def start(self) -> None:
        """Begin to read."""
        self._loop.add_reader(self._sock.fileno(), self._read)

    def close(self) -> None:
        """Let go of the line; `on_closed` is not called."""
        if not self.closed:
            self.closed = True
            self._loop.remove_reader(self._sock.fileno())
            self._loop.remove_writer(self._sock.fileno())
            self._sock.close()

    def send(self, message: Message) -> None:
        """Send, or keep until the other side reads; never blocks. Raises ChannelBroken."""
        data = self._encode(message)
        if not self._waiting and self._push(data, None):
            return
        if len(self._waiting) >= MAX_WAITING:
            raise ChannelBroken(f"{MAX_WAITING} messages wait for the other side")
        self._waiting.append(data)
        self._loop.add_writer(self._sock.fileno(), self._flush)

    def pass_socket(self, message: Message, descriptor: int) -> None:
        """Send a message with a descriptor, now or not at all: whoever waits on it should go elsewhere instead.

        The receiver gets a duplicate; the sender's own copy stays the sender's. Raises ChannelBroken.
        """
        data = self._encode(message)
        if self._waiting or not self._push(data, descriptor):
            raise ChannelBroken("the other side does not read")

    def _encode(self, message: Message) -> bytes:
        data = json.dumps(message, separators=(",", ":")).encode()
        if self.closed:
            raise ChannelBroken("the line is closed")
        if len(data) > MAX_MESSAGE_BYTES:
            raise ChannelBroken(f"a message of {len(data)} bytes; at most {MAX_MESSAGE_BYTES} fit")
        return data

    def _push(self, data: bytes, descriptor: int | None) -> bool:
        try:
            if descriptor is None:
                self._sock.send(data)
            else:
                socket.send_fds(self._sock, [data], [descriptor])
        except BlockingIOError:
            return False
        except OSError as exc:
            raise ChannelBroken(f"the other side is gone ({exc.strerror})") from exc
        return True

    def _flush(self) -> None:
        try:
            while self._waiting:
                if not self._push(self._waiting[0], None):
                    return
                self._waiting.popleft()
        except ChannelBroken:
            self._fail()
            return
        self._loop.remove_writer(self._sock.fileno())

    def _read(self) -> None:
        for _ in range(BATCH):
            if self.closed:
                return
            try:
                data, descriptors, flags, _ = socket.recv_fds(self._sock, MAX_MESSAGE_BYTES, 1)
            except BlockingIOError:
                return
            except OSError:
                self._fail()
                return
            for descriptor in descriptors:
                os.set_inheritable(descriptor, False)
            if not data or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                for descriptor in descriptors:
                    os.close(descriptor)
                self._fail()
                return
            self._on_message(json.loads(data), descriptors[0] if descriptors else None)

    def _fail(self) -> None:
        if not self.closed:
            self.close()
            self._on_closed()
