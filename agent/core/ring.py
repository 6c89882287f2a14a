"""A ring of fixed slots in memory that two processes share: one writes, one reads, neither locks. No I/O, no clock.

A message takes as many slots in a row as it needs; a frame of 20 ms takes one. Both cursors count slots for ever. The
writer publishes its cursor after the slots are written, the reader its own after they are copied. Who must be woken is
told by `put` and `take`, so that a busy ring costs no system call:
- the writer wakes the reader when the reader had taken everything there was before;
- the reader wakes the writer when that one said that it waits for room.
Each side stores its word, then looks at the other's. That order needs a fence (x86 too lets a load pass an earlier
store), without which both may sleep.

Nothing in the memory is trusted: the other process may be broken.
"""

from __future__ import annotations

import struct
import threading
from collections import deque

from agent.core.codec import MAX_MESSAGE_BYTES
from agent.errors import ProtocolError

__all__ = ["SLOT_BYTES", "RingReader", "RingWriter", "ring_bytes"]

SLOT_BYTES = 1024
"""A frame of 20 ms at 24 kHz (960 bytes), the message's header (9) and the slot's own (4)."""

HEADER_BYTES = 256
"""Each of the four words alone in its cache line, since each is written by one side and watched by the other."""

_WRITTEN, _READ, _WRITER_WAITS = 0, 8, 16
"""Places of the words, in units of 8 bytes."""

_SLOT = struct.Struct("<I")
_MORE = 1 << 31
"""Set in a slot's length when the message goes on in the next one."""

_ROOM = SLOT_BYTES - _SLOT.size
_MAX_SLOTS_PER_MESSAGE = -(-MAX_MESSAGE_BYTES // _ROOM)

_barrier = threading.Lock()


def ring_bytes(slots: int) -> int:
    """Memory of one ring."""
    return HEADER_BYTES + slots * SLOT_BYTES


def _fence() -> None:
    """Order memory accesses before and after: taking and freeing a lock does, twice for processors weaker than x86."""
    _barrier.acquire()
    _barrier.release()
    _barrier.acquire()
    _barrier.release()


class _Ring:
    def __init__(self, memory: memoryview, slots: int) -> None:
        if slots <= _MAX_SLOTS_PER_MESSAGE:
            raise ValueError(f"a ring needs more than {_MAX_SLOTS_PER_MESSAGE} slots, got {slots}")
        if len(memory) != ring_bytes(slots):
            raise ValueError(f"expected {ring_bytes(slots)} bytes of memory, got {len(memory)}")
        self._slots = slots
        # Eight bytes stored at once, which struct with a given byte order does not promise.
        self._words = memory[:HEADER_BYTES].cast("Q")
        self._data = memory[HEADER_BYTES:]

    def close(self) -> None:
        """Let go of the memory. Idempotent."""
        self._words.release()
        self._data.release()


class RingWriter(_Ring):
    """The side that writes."""

    def __init__(self, memory: memoryview, slots: int) -> None:
        super().__init__(memory, slots)
        self._written = 0

    def put(self, messages: deque[bytes]) -> tuple[list[bytes], bool]:
        """Write messages from the left of `messages`, whole ones, as many as there is room for; they are removed.

        Returns:
            those written, and whether the reader must be woken. What is left waits until `take` says so over there.

        Raises:
            ProtocolError: the other side's cursor is impossible.
        """
        before = self._written
        done = self._write(messages)
        if messages:
            # Room may have come between the look and the word: look again behind the fence.
            self._words[_WRITER_WAITS] = 1
            _fence()
            done += self._write(messages)
            if not messages:
                self._words[_WRITER_WAITS] = 0
        if not done:
            return done, False
        _fence()
        self._words[_WRITTEN] = self._written
        _fence()
        return done, self._words[_READ] == before

    def _write(self, messages: deque[bytes]) -> list[bytes]:
        used = self._written - self._words[_READ]
        if not 0 <= used <= self._slots:
            raise ProtocolError(f"ring: {used} slots in use of {self._slots}", field="ring.read", code="bad_message")
        free = self._slots - used
        done: list[bytes] = []
        while messages:
            data = messages[0]
            needed = -(-len(data) // _ROOM)
            if needed > free:
                break
            free -= needed
            at = 0
            while True:
                offset = self._written % self._slots * SLOT_BYTES
                part = data[at : at + _ROOM] if needed > 1 else data
                at += len(part)
                _SLOT.pack_into(self._data, offset, len(part) | (_MORE if at < len(data) else 0))
                self._data[offset + 4 : offset + 4 + len(part)] = part
                self._written += 1
                if at >= len(data):
                    break
            done.append(messages.popleft())
        return done


class RingReader(_Ring):
    """The side that reads."""

    def __init__(self, memory: memoryview, slots: int) -> None:
        super().__init__(memory, slots)
        self._read = 0

    def take(self) -> tuple[list[bytes], bool]:
        """All messages that are whole, copied out, and whether the writer waits and must be woken.

        Call it again until it returns none: only then the writer knows that it must wake this side.

        Raises:
            ProtocolError: the other side wrote what cannot be.
        """
        ready = self._words[_WRITTEN] - self._read
        if ready == 0:
            return [], False
        if not 0 < ready <= self._slots:
            raise ProtocolError(f"ring: {ready} slots of {self._slots}", field="ring.written", code="bad_message")
        _fence()
        messages: list[bytes] = []
        parts: list[bytes] = []
        for _ in range(ready):
            offset = self._read % self._slots * SLOT_BYTES
            (head,) = _SLOT.unpack_from(self._data, offset)
            length = head & ~_MORE
            if length > _ROOM or len(parts) >= _MAX_SLOTS_PER_MESSAGE:
                raise ProtocolError("ring: a slot is damaged", field="ring.slot", code="bad_message")
            part = bytes(self._data[offset + 4 : offset + 4 + length])
            self._read += 1
            if head & _MORE:
                parts.append(part)
            elif parts:
                messages.append(b"".join([*parts, part]))
                parts.clear()
            else:
                messages.append(part)
        if parts:
            # A writer publishes whole messages only.
            raise ProtocolError("ring: a message has no end", field="ring.slot", code="bad_message")
        self._words[_READ] = self._read
        _fence()
        waits = self._words[_WRITER_WAITS] == 1
        if waits:
            self._words[_WRITER_WAITS] = 0
        return messages, waits
