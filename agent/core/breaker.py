"""A circuit breaker: leaves alone what fails, and tries it again now and then. Pure: fed `now`.

After M. Nygard, "Release It!" (2007), chapter 5. The libraries that were looked at (purgatory 3.0.1, aiobreaker 1.2.0,
pybreaker 1.4.1) read the wall clock inside, so that a clock set back keeps them open; wait the same time on every
machine, so that all of them knock at once on a core that comes back; and say "open" by raising.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

__all__ = ["JITTER", "Breaker", "BreakerState", "ShardBreakers"]

JITTER = 0.25
"""A wait is up to a quarter shorter or longer: edges that saw a core die together come back one after the other."""

PROBE_LOST_S = 10.0
"""A probe whose outcome nobody told (its task died with its call) is given up then; every probe here ends sooner."""


class BreakerState(Enum):
    CLOSED = "closed"
    """All goes through."""
    OPEN = "open"
    """Nothing does."""
    HALF_OPEN = "half-open"
    """One probe is out to see whether it works again."""


class Breaker:
    """Opens after `failures` in a row; then one probe after `first_s`, doubling up to `max_s`.

    Args:
        failures: how many in a row open it.
        first_s, max_s: wait before the first probe, and the longest.
        random: uniform in [0, 1), spreads each wait by `JITTER`; None waits exactly.
    """

    def __init__(
        self,
        *,
        failures: int = 3,
        first_s: float = 0.5,
        max_s: float = 30.0,
        random: Callable[[], float] | None = None,
    ) -> None:
        self.state = BreakerState.CLOSED
        self._limit = failures
        self._first_s = first_s
        self._max_s = max_s
        self._random = random
        self._failures = 0
        self._wait_s = first_s
        self._retry_at = 0.0

    def allows(self) -> bool:
        """Whether a caller may go through. Probes are not callers: see `probe`."""
        return self.state is BreakerState.CLOSED

    def probe(self, now: float) -> bool:
        """True once when it is time for a probe; its outcome is to be told by `worked` or `failed`."""
        if self.state is BreakerState.CLOSED or now < self._retry_at:
            return False
        self.state = BreakerState.HALF_OPEN
        self._retry_at = now + PROBE_LOST_S
        return True

    def retry_in_s(self, now: float) -> float:
        """Seconds until the next probe may go; 0 when closed or due."""
        return 0.0 if self.allows() else max(0.0, self._retry_at - now)

    def gave_up(self, now: float) -> None:
        """The probe ended without an outcome: another may go at once."""
        if self.state is BreakerState.HALF_OPEN:
            self.state = BreakerState.OPEN
            self._retry_at = now

    def worked(self) -> None:
        """An attempt succeeded."""
        self.state = BreakerState.CLOSED
        self._failures = 0
        self._wait_s = self._first_s

    def failed(self, now: float) -> None:
        """An attempt failed."""
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN:
            self._wait_s = min(self._max_s, self._wait_s * 2)
        elif self._failures < self._limit:
            return
        self.state = BreakerState.OPEN
        spread = 1.0 if self._random is None else 1.0 + JITTER * (2 * self._random() - 1)
        self._retry_at = now + self._wait_s * spread


class ShardBreakers:
    """One breaker a shard (`asr:en`, `tts:heart`), made when first asked for.

    A breaker is for "no replica of this shard works": one dead replica among several is the fail-over's matter.

    Args:
        make: makes the breaker of a shard.
    """

    def __init__(self, make: Callable[[], Breaker]) -> None:
        self._make = make
        self._breakers: dict[str, Breaker] = {}

    def of(self, shard: str) -> Breaker:
        """The shard's breaker. Only for shards of the settings: what a caller names is checked before."""
        breaker = self._breakers.get(shard)
        if breaker is None:
            breaker = self._breakers[shard] = self._make()
        return breaker

    def __iter__(self) -> Iterator[tuple[str, BreakerState]]:
        """Shards and their states, for metrics."""
        return ((shard, breaker.state) for shard, breaker in self._breakers.items())
