"""The data channel `oai-events`: text messages both ways, bounded, whether it opens before or after they are sent."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

from aiortc import InvalidStateError, RTCDataChannel

__all__ = ["LABEL", "EventChannel"]

logger = logging.getLogger(__name__)

LABEL = "oai-events"
MAX_MESSAGE_BYTES = 64 * 1024
MAX_WAITING = 256
"""Messages queued until the channel opens."""
MAX_BUFFERED_BYTES = 1024 * 1024
"""In aiortc's own queue; a page that does not read is not worth more memory."""


class EventChannel:
    """Texts to and from the page.

    Args:
        on_message: called with each text message of at most 64 KB.
        on_close: called when the peer closes the channel.
    """

    def __init__(self, on_message: Callable[[str], None], on_close: Callable[[], None]) -> None:
        self.dropped = 0
        self.ignored = 0
        self._on_message = on_message
        self._on_close = on_close
        self._channel: RTCDataChannel | None = None
        self._waiting: deque[str] = deque()
        self._closed = False

    def adopt(self, channel: RTCDataChannel) -> None:
        """Take a channel the peer opened; only the first with our label is used, others are closed."""
        if channel.label != LABEL or self._channel is not None or self._closed:
            self.ignored += 1
            channel.close()
            return
        self._channel = channel
        channel.on("message", self._received)
        channel.on("open", self._flush)
        channel.on("close", self._gone)
        # A channel made by the peer is open when it arrives, and says so to nobody.
        self._flush()

    def send(self, text: str) -> None:
        """Send, or queue until the channel opens; what does not fit is dropped and counted."""
        if self._closed:
            self.dropped += 1
        elif self._channel is not None and self._channel.readyState == "open":
            self._transmit(text)
        elif len(self._waiting) < MAX_WAITING:
            self._waiting.append(text)
        else:
            self.dropped += 1

    def close(self) -> None:
        """Forget everything; later messages are dropped."""
        self._closed = True
        self.dropped += len(self._waiting)
        self._waiting.clear()

    def _flush(self) -> None:
        while self._waiting and self._channel is not None and self._channel.readyState == "open":
            self._transmit(self._waiting.popleft())

    def _transmit(self, text: str) -> None:
        assert self._channel is not None
        if self._channel.bufferedAmount > MAX_BUFFERED_BYTES:
            self.dropped += 1
            return
        try:
            self._channel.send(text)
        except (ValueError, InvalidStateError):
            # Longer than the peer takes, or it closed in between.
            self.dropped += 1

    def _received(self, message: str | bytes) -> None:
        if self._closed:
            return
        if not isinstance(message, str) or len(message.encode()) > MAX_MESSAGE_BYTES:
            self.ignored += 1
            return
        try:
            self._on_message(message)
        except Exception:
            # A fault in handling one message must not end the transport that carries the call's audio.
            logger.exception("handling a data channel message failed")

    def _gone(self) -> None:
        if not self._closed:
            self.close()
            self._on_close()
