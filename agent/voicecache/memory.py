"""The tier in memory: bounded by bytes, and what is asked for often stays. Pure.

W-TinyLFU for entries of unequal size (Einziger, Eytan, Friedman, Manes: Lightweight Robust Size Aware Cache Management,
ACM ToS 2022). New entries live in a small window, least recently used first out. What falls out of the window is taken
into the main part only if it was asked for more often than each that it would push out: text said once passes through.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator

from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import SpeechKey
from agent.voicecache.sketch import FrequencySketch

__all__ = ["MemoryTier"]

WINDOW_SHARE = 0.1
"""Of the bytes: a new reply's clauses stay for a few turns, the tested ones have the rest."""


class MemoryTier:
    """Speech by key.

    Args:
        max_bytes: bound over all entries.
        on_evicted: called with each key that had to go (not with those that are replaced or removed).
    """

    def __init__(self, max_bytes: int, on_evicted: Callable[[SpeechKey], None] | None = None) -> None:
        if max_bytes < 1:
            raise ValueError("max_bytes must be at least 1")
        self.max_bytes = max_bytes
        self._on_evicted = on_evicted
        self._window_bytes = max(1, int(max_bytes * WINDOW_SHARE))
        self._window: OrderedDict[SpeechKey, CachedSpeech] = OrderedDict()
        self._main: OrderedDict[SpeechKey, CachedSpeech] = OrderedDict()
        self._window_size = 0
        self._main_size = 0
        self._sketch = FrequencySketch()

    @property
    def size_bytes(self) -> int:
        """What all entries hold; never above `max_bytes`."""
        return self._window_size + self._main_size

    def __len__(self) -> int:
        return len(self._window) + len(self._main)

    def __contains__(self, key: SpeechKey) -> bool:
        """Whether it is here; does not count as asked for."""
        return key in self._window or key in self._main

    def __iter__(self) -> Iterator[SpeechKey]:
        yield from tuple(self._main)
        yield from tuple(self._window)

    def get(self, key: SpeechKey) -> CachedSpeech | None:
        """The entry, or None; counts as asked for either way."""
        self._sketch.add(key.digest)
        for part in (self._main, self._window):
            speech = part.get(key)
            if speech is not None:
                part.move_to_end(key)
                return speech
        return None

    def peek(self, key: SpeechKey) -> CachedSpeech | None:
        """The entry, or None; does not count as asked for."""
        return self._main.get(key) or self._window.get(key)

    def put(self, speech: CachedSpeech) -> bool:
        """Keep an entry, in place of the one that has its key. False: larger than the whole tier."""
        size = speech.size_bytes
        key = speech.key
        if size > self.max_bytes:
            self.remove(key)
            return False
        if key in self._main:
            self._main_size += size - self._main[key].size_bytes
            self._main[key] = speech
        else:
            old = self._window.get(key)
            self._window_size += size - (old.size_bytes if old is not None else 0)
            self._window[key] = speech
            self._window.move_to_end(key)
        self._settle()
        return True

    def remove(self, key: SpeechKey) -> None:
        """Forget an entry, if it is here."""
        if (speech := self._main.pop(key, None)) is not None:
            self._main_size -= speech.size_bytes
        if (speech := self._window.pop(key, None)) is not None:
            self._window_size -= speech.size_bytes

    def clear(self) -> None:
        """Forget all entries."""
        self._window.clear()
        self._main.clear()
        self._window_size = self._main_size = 0

    def _settle(self) -> None:
        while self._window_size > self._window_bytes and len(self._window) > 1:
            key, speech = self._window.popitem(last=False)
            self._window_size -= speech.size_bytes
            self._admit(key, speech)
        while self.size_bytes > self.max_bytes:
            # A window of one large entry, or an entry that grew by its packets.
            if self._main:
                key, speech = self._main.popitem(last=False)
                self._main_size -= speech.size_bytes
            else:
                key, speech = self._window.popitem(last=False)
                self._window_size -= speech.size_bytes
            self._evicted(key)

    def _admit(self, key: SpeechKey, speech: CachedSpeech) -> None:
        """Into the main part, if it is worth more than what must go for it."""
        room = self.max_bytes - self._window_bytes - self._main_size
        wanted = self._sketch.estimate(key.digest)
        victims: list[SpeechKey] = []
        for other, held in self._main.items():
            if room >= speech.size_bytes:
                break
            if self._sketch.estimate(other.digest) >= wanted:
                # The oldest is still worth more. It gets a new term, so that the next one is tried next time.
                self._main.move_to_end(other)
                self._evicted(key)
                return
            victims.append(other)
            room += held.size_bytes
        if room < speech.size_bytes:
            self._evicted(key)
            return
        for other in victims:
            self._main_size -= self._main.pop(other).size_bytes
            self._evicted(other)
        self._main[key] = speech
        self._main_size += speech.size_bytes

    def _evicted(self, key: SpeechKey) -> None:
        if self._on_evicted is not None:
            self._on_evicted(key)
