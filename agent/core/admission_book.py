"""Admission in one process. The rules, pure and fed `now` (`AdmissionBook`), and their thin shell (`LocalAdmission`).

`admission.lua` is the same in Redis: a change here is a change there, and the same tests run over both. Times are whole
milliseconds, memory is in thousandths, so that both count alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

from agent.core.admission import AdmissionLimits, Admitted, Answer, Load, Overview, Queued, Reason, Refused

__all__ = ["RETRY_AFTER_S", "AdmissionBook", "LocalAdmission"]

RETRY_AFTER_S = {Reason.STREAMS: 5, Reason.MEMORY: 15, Reason.QUEUE_FULL: 10, Reason.WAITED: 5}
"""Calls end every few seconds in a full house; memory comes back slower; a full queue needs a third of its deadline."""


@dataclass(slots=True)
class _Waiting:
    number: int
    until_ms: int
    seen_until_ms: int


@dataclass(frozen=True, slots=True)
class _Report:
    memory: int
    first_packet_ms: int
    answers: int
    until_ms: int


class AdmissionBook:
    """Leases, queue and thresholds.

    Args:
        limits: where the thresholds are.

    `now_ms` is any clock that never goes back, in whole milliseconds, everywhere.
    """

    def __init__(self, limits: AdmissionLimits) -> None:
        self.limits = limits
        self._leases: dict[str, int] = {}
        """Until when, by ticket."""
        self._queue: dict[str, _Waiting] = {}
        """By ticket, in order of arrival; also those whose time is over and who have not been told."""
        self._reports: dict[str, _Report] = {}
        self._full = self._memory = self._slow = False
        self._held = False
        """Any of them was closed when last looked at."""
        self._next_ms = 0
        """When the first of the queue may go in, the second a pace later, and so on: they ask when they ask, and a slow
        one is not to keep those behind it."""
        self._number = 0

    def ask(self, ticket: str, now_ms: int) -> Answer:
        """See `Admission.ask`."""
        self._update(now_ms)
        if ticket in self._leases:
            self._leases[ticket] = now_ms + _ms(self.limits.lease_s)
            return Admitted()
        waiting = self._queue.get(ticket)
        if waiting is not None and waiting.until_ms <= now_ms:
            del self._queue[ticket]
            return _refused(Reason.WAITED)
        if waiting is None:
            if self._full:
                return _refused(Reason.STREAMS)
            if self._memory:
                return _refused(Reason.MEMORY)
        order = self._waiting(now_ms)
        rank = len(order) if waiting is None else order.index(ticket)
        if self._held or now_ms < self._next_ms + rank * _ms(self.limits.pace_s):
            return self._enqueue(ticket, waiting, order, now_ms)
        if order:
            self._queue.pop(ticket, None)
            self._next_ms += _ms(self.limits.pace_s)
        self._leases[ticket] = now_ms + _ms(self.limits.lease_s)
        self._update(now_ms)
        return Admitted()

    def renew(self, tickets: Collection[str], now_ms: int) -> None:
        """See `Admission.renew`."""
        self._update(now_ms)
        for ticket in tickets:
            self._queue.pop(ticket, None)
            self._leases[ticket] = now_ms + _ms(self.limits.lease_s)
        self._update(now_ms)

    def release(self, ticket: str, now_ms: int) -> None:
        """See `Admission.release`."""
        self._update(now_ms)
        self._leases.pop(ticket, None)
        self._queue.pop(ticket, None)
        self._update(now_ms)

    def report(self, member: str, load: Load, now_ms: int) -> None:
        """See `Admission.report`."""
        answers = 0 if load.first_packet_ms is None else load.answers
        self._reports[member] = _Report(
            round(load.memory * 1000), round(load.first_packet_ms or 0), answers, now_ms + _ms(self.limits.load_s)
        )
        self._update(now_ms)

    def overview(self, now_ms: int) -> Overview:
        """See `Admission.overview`."""
        self._update(now_ms)
        return Overview(len(self._leases), len(self._waiting(now_ms)), self._full, self._memory, self._slow)

    def _waiting(self, now_ms: int) -> list[str]:
        return [ticket for ticket, waiting in self._queue.items() if waiting.until_ms > now_ms]

    def _enqueue(self, ticket: str, waiting: _Waiting | None, order: list[str], now_ms: int) -> Answer:
        seen_until_ms = now_ms + _ms(self.limits.presence_s)
        if waiting is None:
            if len(order) >= self.limits.queue:
                return _refused(Reason.QUEUE_FULL)
            self._number += 1
            waiting = self._queue[ticket] = _Waiting(self._number, now_ms + _ms(self.limits.queue_s), seen_until_ms)
            return Queued(len(order) + 1, (waiting.until_ms - now_ms) / 1000)
        waiting.seen_until_ms = seen_until_ms
        return Queued(order.index(ticket) + 1, (waiting.until_ms - now_ms) / 1000)

    def _update(self, now_ms: int) -> None:
        """Forget what has lapsed, and move the thresholds."""
        limits = self.limits
        self._leases = {ticket: until for ticket, until in self._leases.items() if until > now_ms}
        self._queue = {ticket: one for ticket, one in self._queue.items() if one.seen_until_ms > now_ms}
        self._reports = {member: one for member, one in self._reports.items() if one.until_ms > now_ms}

        taken = len(self._leases)
        self._full = taken > limits.streams_reopen if self._full else taken >= limits.streams

        # The least of all: one core with room is enough, and placement finds it.
        memory = min((one.memory for one in self._reports.values()), default=0)
        high, low = round(limits.memory_high * 1000), round(limits.memory_low * 1000)
        self._memory = memory > low if self._memory else memory >= high

        answers = sum(one.answers for one in self._reports.values())
        total = sum(one.first_packet_ms * one.answers for one in self._reports.values())
        bound = round(limits.first_packet_low_ms if self._slow else limits.first_packet_high_ms)
        self._slow = total > bound * answers

        held = self._full or self._memory or self._slow
        if self._held and not held:
            self._next_ms = now_ms
        self._held = held


class LocalAdmission:
    """The book of this process as an `Admission`.

    Args:
        limits: where the thresholds are.
        now: a monotonic clock in seconds.
    """

    def __init__(self, limits: AdmissionLimits, now: Callable[[], float] = time.monotonic) -> None:
        self._book = AdmissionBook(limits)
        self._now = now

    async def ask(self, ticket: str) -> Answer:
        """See `Admission.ask`."""
        return self._book.ask(ticket, self._now_ms())

    async def renew(self, tickets: Collection[str]) -> None:
        """See `Admission.renew`."""
        self._book.renew(tickets, self._now_ms())

    async def release(self, ticket: str) -> None:
        """See `Admission.release`."""
        self._book.release(ticket, self._now_ms())

    async def report(self, member: str, load: Load) -> None:
        """See `Admission.report`."""
        self._book.report(member, load, self._now_ms())

    async def overview(self) -> Overview:
        """See `Admission.overview`."""
        return self._book.overview(self._now_ms())

    async def close(self) -> None:
        """Nothing is held."""

    def _now_ms(self) -> int:
        return int(self._now() * 1000)


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _refused(reason: Reason) -> Refused:
    return Refused(reason, RETRY_AFTER_S[reason])
