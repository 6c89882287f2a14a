"""Memory with the slower tiers behind it, and the account of what was made ahead: used, or wasted."""

from __future__ import annotations

from collections import OrderedDict

from agent.observe.metrics import Metrics
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import SpeechKey
from agent.voicecache.lease import Lease
from agent.voicecache.memory import MemoryTier
from agent.voicecache.tiers import Tiers

__all__ = ["SpeechStore"]

MAX_UNSPENT = 4_096
"""Openings made ahead whose use is waited for; older ones count as wasted."""


class SpeechStore:
    """Where speech is kept.

    Args:
        memory_bytes: bound of the tier in memory.
        tiers: those behind it; opened and closed by whoever made them.
    """

    def __init__(self, memory_bytes: int, tiers: Tiers, metrics: Metrics) -> None:
        self.tiers = tiers
        self._memory = MemoryTier(memory_bytes, self._evicted)
        self._metrics = metrics
        self._unspent: OrderedDict[SpeechKey, None] = OrderedDict()

    def __contains__(self, key: SpeechKey) -> bool:
        """Whether it is in memory; counts as nothing."""
        return key in self._memory

    @property
    def memory_bytes(self) -> int:
        """What the tier in memory holds."""
        return self._memory.size_bytes

    def unspent(self, key: SpeechKey) -> bool:
        """Whether it was made ahead and nobody asked for it yet."""
        return key in self._unspent

    def hit(self, key: SpeechKey) -> CachedSpeech | None:
        """The entry from memory; counts as a request of it."""
        speech = self._memory.get(key)
        self._metrics.cache_request("memory", "miss" if speech is None else "hit")
        if speech is not None and key in self._unspent:
            del self._unspent[key]
            self._metrics.cache_prediction("used")
        return speech

    def newest(self, speech: CachedSpeech) -> CachedSpeech:
        """The entry as it is now, which may have more packets; counts as nothing."""
        return self._memory.peek(speech.key) or speech

    def keep(self, speech: CachedSpeech, lease: Lease | None = None, *, write: bool = True) -> bool:
        """Keep it in memory and, unless `write` is False or it is private, behind it.

        False: it will not be written, and a lease is still the caller's to give back.
        """
        self._memory.put(speech)
        self._metrics.cache_bytes("memory", self._memory.size_bytes)
        return write and self.tiers.put(speech, lease)

    def made_ahead(self, key: SpeechKey) -> None:
        """The entry was made before anybody asked for it."""
        if key not in self._memory:
            return
        self._unspent[key] = None
        while len(self._unspent) > MAX_UNSPENT:
            self._unspent.popitem(last=False)
            self._metrics.cache_prediction("wasted")

    def _evicted(self, key: SpeechKey) -> None:
        if key in self._unspent:
            del self._unspent[key]
            self._metrics.cache_prediction("wasted")
