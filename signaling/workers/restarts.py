"""When a worker that ended is started again: exponential back-off with jitter, and when to give up. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable

__all__ = ["Restarts"]

FIRST_S = 0.25
"""One death is most often a single bad call: its worker is wanted back at once."""

LONGEST_S = 30.0

HEALTHY_S = 30.0
"""Who served this long before it ended did not end for the reason it ended for before."""

MAX_START_FAILURES = 4
"""In a row, before the server as a whole has ever been up. Later there is no limit: the other workers serve."""


class Restarts:
    """One worker's history.

    Args:
        uniform: a random number of [0, 1); half of each wait is drawn, so that workers that fell together do not load
            their engines together.
    """

    def __init__(self, uniform: Callable[[], float] = random.random) -> None:
        self.failures = 0
        """Ends in a row without a healthy stretch between them."""
        self._uniform = uniform

    def ended(self, served_s: float | None) -> float:
        """Count an end; returns how many seconds to wait before the next start.

        Args:
            served_s: how long it took calls; None when it never got ready.
        """
        if served_s is not None and served_s >= HEALTHY_S:
            self.failures = 0
        self.failures += 1
        # The exponent is bounded, or a month of failures would overflow.
        longest = min(LONGEST_S, FIRST_S * 2.0 ** min(self.failures - 1, 16))
        return longest * (0.5 + 0.5 * self._uniform())

    @property
    def hopeless(self) -> bool:
        """True when a server that has never been up should end with an error instead of trying on."""
        return self.failures >= MAX_START_FAILURES
