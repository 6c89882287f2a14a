"""The newest seconds of a caller's audio, for whoever must look back at the whole turn. Pure."""

from __future__ import annotations

import numpy as np

from agent.media.frames import Pcm

__all__ = ["RecentAudio"]


class RecentAudio:
    """A ring of int16 samples.

    Args:
        samples: how many it keeps.
    """

    def __init__(self, samples: int) -> None:
        if samples <= 0:
            raise ValueError(f"samples: expected more than 0, got {samples}")
        self._ring = np.zeros(samples, np.int16)
        self._at = 0
        self.position = 0
        """Samples pushed so far."""

    def push(self, pcm: Pcm) -> None:
        """Add int16 [n]; only the newest samples are kept."""
        kept = pcm[-len(self._ring) :]
        head = min(len(kept), len(self._ring) - self._at)
        self._ring[self._at : self._at + head] = kept[:head]
        self._ring[: len(kept) - head] = kept[head:]
        self._at = (self._at + len(kept)) % len(self._ring)
        self.position += len(pcm)

    def since(self, position: int) -> Pcm:
        """A copy of what is kept from `position` on, oldest first: int16 [n]."""
        wanted = max(0, min(self.position - position, self.position, len(self._ring)))
        first = (self._at - wanted) % len(self._ring)
        if first + wanted <= len(self._ring):
            return self._ring[first : first + wanted].copy()
        return np.concatenate([self._ring[first:], self._ring[: first + wanted - len(self._ring)]])
