"""How often something was asked for lately, in a fixed few kilobytes. Pure.

A count-min sketch of 4 rows with small counters that are all halved after a sample of requests, as TinyLFU has it
(Einziger, Friedman, Manes: TinyLFU, ACM ToS 2017). Estimates are never too low before ageing, sometimes too high.
"""

from __future__ import annotations

import numpy as np

__all__ = ["FrequencySketch"]

ROWS = 4
MAX_COUNT = 15
"""What a 4-bit counter holds; more says nothing about what to keep."""

SAMPLE_FACTOR = 10
"""Counters are halved after this many requests a column, as the paper recommends."""


class FrequencySketch:
    """Counts of byte strings that are hashes already (at least 16 bytes).

    Args:
        width: columns, a power of two; about the number of things told apart.
    """

    def __init__(self, width: int = 4096) -> None:
        if width < 16 or width & (width - 1):
            raise ValueError("width must be a power of two, 16 or more")
        self._mask = width - 1
        self._table = np.zeros((ROWS, width), np.uint8)
        self._requests = 0
        self._sample = SAMPLE_FACTOR * width

    def add(self, digest: bytes) -> None:
        """One more request."""
        columns = self._columns(digest)
        low = min(int(self._table[row, column]) for row, column in enumerate(columns))
        if low < MAX_COUNT:
            # Only the lowest counters grow ("conservative update"): fewer collisions are taken for popularity.
            for row, column in enumerate(columns):
                if self._table[row, column] == low:
                    self._table[row, column] += 1
        self._requests += 1
        if self._requests >= self._sample:
            self._table >>= 1
            self._requests //= 2

    def estimate(self, digest: bytes) -> int:
        """About how often it was asked for, 0 to 15."""
        return min(int(self._table[row, column]) for row, column in enumerate(self._columns(digest)))

    def _columns(self, digest: bytes) -> list[int]:
        return [int.from_bytes(digest[4 * row : 4 * row + 4], "little") & self._mask for row in range(ROWS)]
