"""Shared admission while Redis answers, this process's own limits while it does not.

What is live here is known to both all the time, so that the change in either direction starts from the truth: local
limits count the calls that Redis admitted, and Redis is told of those that were admitted without it.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Collection
from typing import TypeVar

from agent.core.admission import Admission, AdmissionUnavailable, Admitted, Answer, Load, Overview, Queued
from agent.core.breaker import Breaker

__all__ = ["FallbackAdmission"]

T = TypeVar("T")

log = logging.getLogger(__name__)


class FallbackAdmission:
    """An `Admission` that never raises AdmissionUnavailable.

    Args:
        shared: Redis. Owned.
        local: stands in. Owned.
        breaker: so that not every caller waits for a Redis that is down; the next real request is its probe.
        now: a monotonic clock in seconds.
    """

    def __init__(
        self,
        shared: Admission,
        local: Admission,
        *,
        breaker: Breaker | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._shared = shared
        self._local = local
        self.breaker = breaker if breaker is not None else Breaker(failures=1)
        self._now = now

    async def ask(self, ticket: str) -> Answer:
        """See `Admission.ask`."""
        answer = await self._try(lambda: self._shared.ask(ticket))
        if answer is None:
            return await self._local.ask(ticket)
        match answer:
            case Admitted():
                await self._local.renew([ticket])
            case Queued():
                pass
            case _:
                await self._local.release(ticket)
        return answer

    async def renew(self, tickets: Collection[str]) -> None:
        """See `Admission.renew`."""
        await self._local.renew(tickets)
        await self._try(lambda: self._shared.renew(tickets))

    async def release(self, ticket: str) -> None:
        """See `Admission.release`. When Redis cannot be told, its lease ends by itself."""
        await self._local.release(ticket)
        await self._try(lambda: self._shared.release(ticket))

    async def report(self, member: str, load: Load) -> None:
        """See `Admission.report`."""
        await self._local.report(member, load)
        await self._try(lambda: self._shared.report(member, load))

    async def overview(self) -> Overview:
        """Of whichever decides now."""
        return await self._try(self._shared.overview) or await self._local.overview()

    async def close(self) -> None:
        """Close both."""
        await self._shared.close()
        await self._local.close()

    async def _try(self, ask: Callable[[], Awaitable[T]]) -> T | None:
        """What Redis says, or None when it is not asked or does not answer."""
        probing = not self.breaker.allows()
        if probing and not self.breaker.probe(self._now()):
            return None
        try:
            answer = await ask()
        except AdmissionUnavailable as exc:
            if not probing:
                log.warning("%s; local limits decide until it answers", exc)
            self.breaker.failed(self._now())
            return None
        except BaseException:
            if probing:
                self.breaker.gave_up(self._now())
            raise
        if probing:
            log.info("admission: Redis answers again")
        self.breaker.worked()
        return answer
