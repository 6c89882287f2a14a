"""What to make ahead next, and whether the budget allows it. Pure: fed `(event, now)`.

A candidate is worth its probability. A call's newer predictions replace its older ones, and what two calls want counts
twice. The budget is a bucket of CPU seconds that fills evenly and holds an hour's worth at most.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

__all__ = ["Candidate", "CpuBudget", "PrefetchPlan"]

MAX_CALLS = 256
"""Calls with open predictions; a process serves about forty."""

MAX_PER_CALL = 32


@dataclass(frozen=True, slots=True)
class Candidate:
    """Something that could be made ahead."""

    key: Hashable
    probability: float


class CpuBudget:
    """CPU seconds, `per_hour` of them an hour; begins full to a tenth.

    Raises ValueError for a negative one.
    """

    def __init__(self, per_hour: float, now: float) -> None:
        if per_hour < 0:
            raise ValueError("per_hour must not be negative")
        self.per_hour = per_hour
        self._left = per_hour / 10
        self._at = now

    def left(self, now: float) -> float:
        """Seconds that may be spent now; negative after a costly piece."""
        self._left = min(self.per_hour, self._left + max(0.0, now - self._at) * self.per_hour / 3600)
        self._at = max(now, self._at)
        return self._left

    def spend(self, seconds: float, now: float) -> None:
        """Something was made; it may overdraw."""
        self.left(now)
        self._left -= seconds


class PrefetchPlan:
    """Candidates of all calls, the likeliest first."""

    def __init__(self, budget: CpuBudget) -> None:
        self.budget = budget
        self._calls: OrderedDict[str, tuple[Candidate, ...]] = OrderedDict()

    def want(self, call: str, candidates: Sequence[Candidate]) -> None:
        """The call's newest predictions, in place of its older ones."""
        self._calls[call] = tuple(candidates[:MAX_PER_CALL])
        self._calls.move_to_end(call)
        while len(self._calls) > MAX_CALLS:
            self._calls.popitem(last=False)

    def forget(self, call: str) -> None:
        """The call spoke, or is over."""
        self._calls.pop(call, None)

    def done(self, key: Hashable) -> None:
        """It was made, or cannot be: no call needs it any more."""
        for call, candidates in list(self._calls.items()):
            self._calls[call] = tuple(candidate for candidate in candidates if candidate.key != key)

    def next(self, now: float) -> Candidate | None:
        """What is most worth making; None when nothing is, or the budget is spent."""
        if self.budget.left(now) <= 0:
            return None
        worth: dict[Hashable, float] = {}
        for candidates in self._calls.values():
            for candidate in candidates:
                worth[candidate.key] = worth.get(candidate.key, 0.0) + candidate.probability
        if not worth:
            return None
        key = max(worth, key=lambda name: worth[name])
        return Candidate(key, worth[key])

    @property
    def open(self) -> int:
        """Candidates that wait."""
        return sum(map(len, self._calls.values()))
