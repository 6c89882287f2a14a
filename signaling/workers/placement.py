"""Which worker takes the next call, and whose call is where. Pure: no I/O and no clock.

A place is taken before the worker hears of the call and given up when the worker says that the call is over (or is over
itself), so the counts here are never behind the truth: two calls that arrive at once do not go to the same last line.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from agent.errors import CallRefused

__all__ = ["Placed", "Roster", "Seat"]

BUSY_RETRY_S = 5
"""A line becomes free when somebody hangs up."""

RECOVERY_RETRY_S = 2
"""A late clock or a restart is over sooner than a call."""


@dataclass(slots=True)
class Seat:
    """One worker as placement sees it."""

    number: int
    up: bool = False
    reason: str = "starting"
    """Why it takes no call now; empty when it does. `up` and its lines are judged apart."""
    calls: set[str] = field(default_factory=set)
    placed_at: int = 0
    """The serial number of the last call that went here."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A call and where it is."""

    call_id: str
    subject: str
    worker: int


class Roster:
    """Workers 1 to `workers`, each with `max_calls` lines. All are down at first."""

    def __init__(self, workers: int, max_calls: int) -> None:
        self.max_calls = max_calls
        self._seats = {number: Seat(number) for number in range(1, workers + 1)}
        self._placed: dict[str, Placed] = {}
        self._serial = 0

    @property
    def seats(self) -> Collection[Seat]:
        """All workers, in order."""
        return self._seats.values()

    @property
    def placed(self) -> Mapping[str, Placed]:
        """All calls by id."""
        return self._placed

    def up(self, number: int) -> None:
        """The worker is ready."""
        seat = self._seats[number]
        seat.up, seat.reason = True, ""

    def down(self, number: int, reason: str) -> list[str]:
        """The worker is gone: the ids of the calls that went with it."""
        seat = self._seats[number]
        seat.up, seat.reason = False, reason
        lost = list(seat.calls)
        for call_id in lost:
            self.release(call_id)
        return lost

    def judge(self, number: int, reason: str) -> None:
        """What the worker says of itself (or is said of it): why it takes no call now, or an empty string."""
        seat = self._seats[number]
        if seat.up:
            seat.reason = reason

    def place(self, call_id: str, subject: str, *, without: Collection[int] = ()) -> int:
        """Take a line of the least loaded worker, the one not used for longest among equals; returns its number.

        Args:
            without: workers that have just failed on this very call.

        Raises:
            CallRefused: no worker takes a call.
        """
        free = [seat for seat in self._seats.values() if seat.number not in without and not self.why_not(seat)]
        if not free:
            busy = all(seat.up and len(seat.calls) >= self.max_calls for seat in self._seats.values())
            reason = self.not_ready_reason or "the process that was given this call ended"
            raise CallRefused(reason, retry_after_s=BUSY_RETRY_S if busy else RECOVERY_RETRY_S)
        seat = min(free, key=lambda seat: (len(seat.calls), seat.placed_at))
        self._serial += 1
        seat.placed_at = self._serial
        seat.calls.add(call_id)
        self._placed[call_id] = Placed(call_id, subject, seat.number)
        return seat.number

    def why_not(self, seat: Seat) -> str:
        """Why this worker takes no call now; empty when it does."""
        if seat.reason or not seat.up:
            return seat.reason or "down"
        return f"all {self.max_calls} lines are busy" if len(seat.calls) >= self.max_calls else ""

    @property
    def not_ready_reason(self) -> str:
        """Why no worker takes a call; empty when one does. Workers with the same reason are named together."""
        reasons: dict[str, list[str]] = {}
        for seat in self._seats.values():
            why = self.why_not(seat)
            if not why:
                return ""
            reasons.setdefault(why, []).append(str(seat.number))
        if len(reasons) == 1:
            (reason,) = reasons
            return f"every worker: {reason}"
        return "; ".join(f"worker {', '.join(numbers)}: {reason}" for reason, numbers in reasons.items())

    def find(self, call_id: str, subject: str) -> Placed | None:
        """The call of that id if it is this subject's; others' calls do not exist for it."""
        placed = self._placed.get(call_id)
        return placed if placed is not None and placed.subject == subject else None

    def release(self, call_id: str) -> bool:
        """The call is over. False when that was known."""
        placed = self._placed.pop(call_id, None)
        if placed is None:
            return False
        self._seats[placed.worker].calls.discard(call_id)
        return True

    def count(self, subject: str) -> int:
        """Calls of `subject` on all workers, live or being set up."""
        return sum(placed.subject == subject for placed in self._placed.values())
