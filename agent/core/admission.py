"""Who may start a call: two thresholds, a queue, and the words for it. Docs: docs/admission.md.

The hard threshold (places taken, memory) refuses. The soft one (mean time to the first packet of an answer) lets
callers wait in a queue with a deadline. Both close at one value and open again at a lower one, so that they do not
flutter.

The rules are written twice, with one suite of tests over both: `admission_book` in Python for one process, and
`admission.lua` for many, run by Redis in one step (`admission_redis`). `admission_fallback` is Redis with local limits
for when it is down.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from agent.errors import RejoinderError

__all__ = [
    "Admission",
    "AdmissionLimits",
    "AdmissionUnavailable",
    "Admitted",
    "Answer",
    "Load",
    "Overview",
    "Queued",
    "Reason",
    "Refused",
]

REOPEN_SHARE = 0.95
"""Full at 40 places, open again at 38: a caller who hangs up is no reason to open and close within a second."""


class AdmissionUnavailable(RejoinderError):
    """Whoever decides cannot be asked now."""

    retryable = True


class Reason(StrEnum):
    """Why a call is refused; a label of metrics."""

    STREAMS = "streams"
    """All places are taken."""
    MEMORY = "memory"
    """No core has memory left for one more."""
    QUEUE_FULL = "queue_full"
    WAITED = "waited"
    """Its time in the queue is over."""


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """Where the thresholds are."""

    streams: int = 40
    """Calls at once: the hard threshold."""
    memory_high: float = 0.90
    """Used share of memory, 0 to 1, from which on calls are refused; until it is `memory_low` again."""
    memory_low: float = 0.80
    first_packet_high_ms: float = 400.0
    """Mean time to the first packet above which callers queue, the soft threshold; until it is `_low_ms` again."""
    first_packet_low_ms: float = 300.0
    queue: int = 100
    """Callers that may wait."""
    queue_s: float = 30.0
    """How long one waits at most."""
    pace_s: float = 0.5
    """Between two that leave the queue: the mean follows seconds later, and all at once would close it again."""
    lease_s: float = 15.0
    """A place that is not renewed for so long is free: its process died."""
    presence_s: float = 5.0
    """A waiting caller that does not ask for so long has left."""
    load_s: float = 10.0
    """A core's load that is not reported for so long counts no more."""

    def __post_init__(self) -> None:
        """Raises ValueError naming the limit."""
        if self.streams < 1:
            raise ValueError("streams: expected at least 1")
        if not 0 < self.memory_low <= self.memory_high <= 1:
            raise ValueError("memory_low: expected above 0 and not above memory_high, and that at most 1")
        if not 0 < self.first_packet_low_ms <= self.first_packet_high_ms:
            raise ValueError("first_packet_low_ms: expected above 0 and not above first_packet_high_ms")
        if self.queue < 0:
            raise ValueError("queue: expected 0 or more")
        for name in ("queue_s", "lease_s", "presence_s", "load_s"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name}: expected more than 0 seconds")
        if self.pace_s < 0:
            raise ValueError("pace_s: expected 0 or more seconds")

    @property
    def streams_reopen(self) -> int:
        """Places taken at which a full house is open again."""
        return min(self.streams - 1, int(self.streams * REOPEN_SHARE))


@dataclass(frozen=True, slots=True)
class Load:
    """What one core or process says of itself."""

    memory: float
    """Used share, 0 to 1, of the memory that runs out first (GPU or host)."""
    first_packet_ms: float | None = None
    """Mean over its answers of the last seconds; None without any."""
    answers: int = 0
    """How many that were: its weight in the mean over all."""


@dataclass(frozen=True, slots=True)
class Admitted:
    """Go ahead: the place is yours until it is released, or not renewed."""


@dataclass(frozen=True, slots=True)
class Queued:
    """Wait, and ask again within `presence_s`."""

    position: int
    """1 is next."""
    deadline_s: float
    """How much longer you may wait."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Not now."""

    reason: Reason
    retry_after_s: int


Answer = Admitted | Queued | Refused


@dataclass(frozen=True, slots=True)
class Overview:
    """How things stand."""

    leases: int
    queue: int
    full: bool
    """The hard threshold on places is closed."""
    memory: bool
    """The hard threshold on memory is closed."""
    slow: bool
    """The soft threshold is closed."""


class Admission(Protocol):
    """Decides. A ticket is any unique text of the caller's choice: one for each call, kept until its end.

    Every method raises AdmissionUnavailable when the decision cannot be had.
    """

    async def ask(self, ticket: str) -> Answer:
        """May this call start? Asked again by one that waits; safe to repeat by one that was admitted."""
        ...

    async def renew(self, tickets: Collection[str]) -> None:
        """These calls are live: their places are theirs, whatever the thresholds say now."""

    async def release(self, ticket: str) -> None:
        """This call is over, or its caller waits no longer."""

    async def report(self, member: str, load: Load) -> None:
        """The load of a core, by its name."""

    async def overview(self) -> Overview:
        """For metrics."""
        ...

    async def close(self) -> None:
        """Give back connections."""
