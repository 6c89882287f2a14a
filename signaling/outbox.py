"""What waits to be sent over a WebSocket: audio and messages in order, bounded. Pure.

A client that reads slowly loses the oldest audio, never messages; one that falls too far behind is given up.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Outbox"]

MAX_QUEUED_S = 1.0
"""Audio older than this no longer belongs to a conversation."""

MAX_BEHIND_S = 5.0
"""A client this far behind, in audio time since it last had caught up, will not recover."""

MAX_MESSAGES = 256
"""Messages are small and rare (tens a turn); more unread means that nobody reads."""

BYTES_PER_SAMPLE = 2


class Outbox:
    """Items in the order they were put. Audio is `bytes` of mono int16 at `rate_hz`; messages are `str`."""

    def __init__(self, rate_hz: int) -> None:
        self._max_bytes = int(MAX_QUEUED_S * rate_hz) * BYTES_PER_SAMPLE
        self._max_behind_bytes = int(MAX_BEHIND_S * rate_hz) * BYTES_PER_SAMPLE
        self._items: deque[bytes | str] = deque()
        self._audio_bytes = 0
        self._messages = 0
        self._dropped_bytes = 0
        self.dropped_frames = 0
        """Pieces of audio that were dropped for slowness, in all."""
        self.overrun = False
        """True once the client is too far behind; nothing more is taken."""

    def __len__(self) -> int:
        return len(self._items)

    @property
    def audio_bytes(self) -> int:
        """Audio waiting."""
        return self._audio_bytes

    def put_audio(self, pcm: bytes) -> None:
        """Queue audio; drops the oldest audio beyond a second, and sets `overrun` beyond five."""
        if self.overrun:
            return
        if not self._items:
            self._dropped_bytes = 0
        self._items.append(pcm)
        self._audio_bytes += len(pcm)
        while self._audio_bytes > self._max_bytes:
            self._dropped_bytes += self._drop_oldest_audio()
            self.dropped_frames += 1
        if self._dropped_bytes + self._audio_bytes > self._max_behind_bytes:
            self.overrun = True

    def put_message(self, text: str) -> None:
        """Queue a message behind all that is queued; sets `overrun` when too many wait."""
        if self._messages >= MAX_MESSAGES:
            self.overrun = True
            return
        self._items.append(text)
        self._messages += 1

    def put_clear(self, text: str) -> None:
        """Drop all queued audio, since the client is about to drop its own; then queue `text`."""
        self._items = deque(item for item in self._items if isinstance(item, str))
        self._audio_bytes = 0
        self._dropped_bytes = 0
        self.put_message(text)

    def pop(self) -> bytes | str | None:
        """The next item, or None."""
        if not self._items:
            return None
        item = self._items.popleft()
        if isinstance(item, str):
            self._messages -= 1
        else:
            self._audio_bytes -= len(item)
        return item

    def _drop_oldest_audio(self) -> int:
        for index, item in enumerate(self._items):
            if isinstance(item, bytes):
                del self._items[index]
                self._audio_bytes -= len(item)
                return len(item)
        raise AssertionError("audio bytes are counted but none is queued")
