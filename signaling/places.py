"""Places for calls, as shared admission gives them: asked for, held while a call lives, and given back.

With `admission.mode` off there is none of this, and `server.max_calls` alone decides. Docs: docs/admission.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import secrets
import time
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import StringConstraints

from agent.config import AdmissionSettings
from agent.core.admission import (
    Admission,
    AdmissionLimits,
    AdmissionUnavailable,
    Admitted,
    Answer,
    Queued,
    Reason,
    Refused,
)
from agent.core.admission_book import LocalAdmission
from agent.core.admission_fallback import FallbackAdmission
from agent.core.admission_load import FirstPackets, memory_share
from agent.core.breaker import Breaker
from agent.errors import CallRefused
from agent.events import CallEvent, Observer, TurnTimings
from signaling.ports import AgentLike
from signaling.problems import HttpFault

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from agent.core.admission_redis import RedisAdmission

__all__ = ["POLL_S", "CallQueued", "Places", "QueueTicket", "create_places", "new_ticket", "place_of", "refusal"]

POLL_S = 2
"""How often a waiting caller asks: twice and more within the time after which it counts as gone."""

KEEP_S = 1.0
"""How often ended calls are looked for."""

REPORT_S = 2.0

QueueTicket = Annotated[str, StringConstraints(pattern=r"^wait_[0-9a-f]{24}$")]

_SENTENCES = {
    Reason.STREAMS: "all lines are busy",
    Reason.MEMORY: "the servers have no memory left for another call",
    Reason.QUEUE_FULL: "all lines are busy, and so is the queue for them",
    Reason.WAITED: "no line became free in time",
}

logger = logging.getLogger(__name__)


class CallQueued(HttpFault):
    """Not yet: ask again with the ticket. A caller who does not know of queues reads it as a refusal."""

    def __init__(self, ticket: str, answer: Queued) -> None:
        wait_s = round(answer.deadline_s, 1)
        super().__init__(
            503,
            "call_queued",
            f"all lines are busy: place {answer.position} in the queue",
            headers={"Retry-After": str(POLL_S)},
            extra={"queue": {"ticket": ticket, "position": answer.position, "wait_s": wait_s}},
        )
        self.ticket = ticket
        self.position = answer.position
        self.wait_s = wait_s


def new_ticket() -> str:
    """A place in the queue that cannot be guessed: 96 random bits."""
    return f"wait_{secrets.token_hex(12)}"


def place_of(ticket: str, subject: str) -> str:
    """The name of a place: a ticket is worth something only to the subject that it was given to."""
    return f"{ticket}.{hashlib.sha256(subject.encode()).hexdigest()[:16]}"


def refusal(answer: Refused) -> CallRefused:
    """The answer as what a caller is told."""
    return CallRefused(_SENTENCES[answer.reason], retry_after_s=answer.retry_after_s)


class Places:
    """This process's places. `async with` keeps them.

    Args:
        agent: its live calls are what places are held for, whoever started them.
        admission: decides. Owned.
        lease_s: after how long a place that is not renewed is lost.
        shared: the part of it that is asked once at the start, so that a wrong password is told.
        redis: closed at the end.
        now: a monotonic clock in seconds.
        memory: used share of memory.
    """

    def __init__(
        self,
        agent: AgentLike,
        admission: Admission,
        *,
        lease_s: float,
        shared: RedisAdmission | None = None,
        redis: Redis | None = None,
        now: Callable[[], float] = time.monotonic,
        memory: Callable[[], float] = memory_share,
    ) -> None:
        self._agent = agent
        self._admission = admission
        self._renew_s = lease_s / 3
        self._shared = shared
        self._redis = redis
        self._now = now
        self._memory = memory
        self._member = secrets.token_hex(6)
        self._packets = FirstPackets()
        self._held: dict[str, str | None] = {}
        """Calls by place; None while a call is being set up."""
        self._leaving: list[str] = []
        self._renewed = self._reported = float("-inf")
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Raises ConfigError for a wrong password of Redis. A Redis that is down is no reason not to start."""
        if self._shared is not None:
            try:
                await self._shared.check()
            except AdmissionUnavailable as exc:
                logger.warning("%s; local limits decide until it answers", exc)
        self._task = asyncio.create_task(self._keep(), name="places")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        # Calls are over by now; what cannot be told any more lapses.
        for place in [*self._held, *self._leaving]:
            await self._admission.release(place)
        await self._admission.close()
        if self._redis is not None:
            await self._redis.aclose()

    async def ask(self, place: str) -> Answer:
        """May this call start? When it may, the place is held until `leave`, or until the call bound to it ends."""
        try:
            answer = await self._admission.ask(place)
        except BaseException:
            # Cancelled: the caller went, and the answer may have been yes.
            self.leave(place)
            raise
        match answer:
            case Admitted():
                self._held[place] = None
                self._agent.metrics.admission("admit", "")
            case Queued():
                self._agent.metrics.admission("queue", "")
            case Refused():
                self._agent.metrics.admission("refuse", answer.reason)
        return answer

    def bind(self, place: str, call_id: str) -> None:
        """The place is that call's from now on."""
        if place in self._held:
            self._held[place] = call_id

    def leave(self, place: str) -> None:
        """The call did not come about, or its caller waits no longer."""
        self._held.pop(place, None)
        self._leaving.append(place)
        self._wake.set()

    def watched(self, observer: Observer) -> Observer:
        """The observer of a call, whose first packets count for the mean from now on."""

        def watch(event: CallEvent) -> None:
            if isinstance(event, TurnTimings) and event.tts_first_ms is not None:
                self._packets.add(event.tts_first_ms, self._now())
            observer(event)

        return watch

    async def _keep(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._look()
            except Exception as exc:
                # Places that nobody renews are lost to live calls, so that one failure must not be the last look.
                self._agent.metrics.error("signaling", exc)
                logger.exception("places could not be kept")
            try:
                async with asyncio.timeout(KEEP_S):
                    await self._wake.wait()
            except TimeoutError:
                continue

    async def _look(self) -> None:
        live = self._agent.calls
        for place in [place for place, call_id in self._held.items() if call_id and call_id not in live]:
            self.leave(place)
        leaving, self._leaving = self._leaving, []
        for place in leaving:
            await self._admission.release(place)
        now = self._now()
        if now - self._renewed >= self._renew_s:
            bound = set(self._held.values())
            # Calls that came in by another way take places too.
            self._held |= {call_id: call_id for call_id in live if call_id not in bound}
            await self._admission.renew(list(self._held))
            self._renewed = now
        if now - self._reported >= REPORT_S:
            await self._admission.report(self._member, self._packets.load(self._memory(), now))
            self._agent.metrics.admission_queue((await self._admission.overview()).queue)
            self._reported = now


def create_places(agent: AgentLike) -> Places | None:
    """As the settings say; None when admission is off.

    Raises ConfigError for an address of Redis that means nothing.
    """
    settings = agent.settings.admission
    limits = _limits(settings, settings.streams or agent.settings.server.max_calls)
    if settings.mode == "off":
        return None
    if settings.mode == "local":
        return Places(agent, LocalAdmission(limits), lease_s=limits.lease_s)
    # Here and not above, since redis takes its time to load and few need it.
    from agent.core.admission_redis import RedisAdmission, connect_redis

    password = None if settings.redis_password is None else settings.redis_password.get_secret_value()
    redis = connect_redis(settings.redis_url, password)
    shared = RedisAdmission(redis, limits, pool=settings.pool)
    local = LocalAdmission(_limits(settings, agent.settings.server.max_calls))
    breaker = Breaker(failures=1, max_s=5.0, random=secrets.SystemRandom().random)
    return Places(
        agent, FallbackAdmission(shared, local, breaker=breaker), lease_s=limits.lease_s, shared=shared, redis=redis
    )


def _limits(settings: AdmissionSettings, streams: int) -> AdmissionLimits:
    return AdmissionLimits(
        streams=streams,
        memory_high=settings.memory_high,
        memory_low=settings.memory_low,
        first_packet_high_ms=settings.first_packet_high_ms,
        first_packet_low_ms=settings.first_packet_low_ms,
        queue=settings.queue,
        queue_s=settings.queue_s,
    )
