"""Which calls are whose, and who may start one more. The agent's own table of live calls is the truth; places that are
shared with other processes are asked for on top (`signaling.places`)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from agent.core.admission import Admitted, Queued, Refused
from agent.errors import CallRefused
from agent.nlu.hook import Channel
from signaling.places import POLL_S, CallQueued, Places, new_ticket, place_of, refusal
from signaling.ports import AgentLike, CallLike, WebRtcPortLike
from signaling.problems import HttpFault
from signaling.resume import Resumption, call_of
from signaling.tokens import Claims

__all__ = ["CallRegistry", "OwnedCall", "resume_expired", "too_many_calls"]

BUSY_RETRY_S = 5
STARTING_RETRY_S = 2
DRAINING_RETRY_S = 10

MISSED_POLLS_S = 3.0 * POLL_S
"""A waiting caller that has not asked for so long counts no more against its subject's calls."""


def resume_expired() -> HttpFault:
    """The refusal of a resume token, whatever is wrong with it."""
    return HttpFault(404, "resume_expired", "there is no call to come back to with this token", field="resume")


def too_many_calls(limit: int) -> HttpFault:
    """The refusal of one more call than a token allows."""
    return HttpFault(
        429,
        "too_many_calls",
        f"this token's subject may have {limit} calls at once",
        headers={"Retry-After": str(BUSY_RETRY_S)},
    )


@dataclass(frozen=True, slots=True)
class OwnedCall:
    """A live call, the subject that made it, its port if that takes candidates, and how to come back to it."""

    subject: str
    call: CallLike
    port: WebRtcPortLike | None
    resumption: Resumption | None = None


@dataclass(frozen=True, slots=True)
class _Waiting:
    subject: str
    until: float


class CallRegistry:
    """Calls made through signaling. Ended ones vanish by themselves: only ids the agent still lists are kept."""

    def __init__(
        self, agent: AgentLike, places: Places | None = None, *, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._agent = agent
        self.places = places
        """None: no places are shared."""
        self._now = now
        self._owned: dict[str, OwnedCall] = {}
        self._starting: Counter[str] = Counter()
        self._waiting: dict[str, _Waiting] = {}

    @contextmanager
    def holding(self, claims: Claims, channel: Channel, place: str = "") -> Iterator[None]:
        """`starting` for callers who cannot wait in a queue: a shared place is taken once their call lives.

        Args:
            place: one that this caller waits at, which does not count against it.

        Raises HttpFault and CallRefused as `starting`.
        """
        if not claims.allows(channel):
            raise HttpFault(
                403, "channel_not_allowed", f"the token does not open the channel {channel!r}", field="channel"
            )
        try:
            self._admit(claims, place)
            self._starting[claims.subject] += 1
            try:
                yield
            finally:
                self._starting[claims.subject] -= 1
                if not self._starting[claims.subject]:
                    del self._starting[claims.subject]
        except CallRefused:
            self._agent.metrics.call_refused(channel)
            raise
        except HttpFault as error:
            if error.status == 429:
                self._agent.metrics.call_refused(channel)
            raise

    @asynccontextmanager
    async def starting(self, claims: Claims, channel: Channel, ticket: str | None = None) -> AsyncIterator[str]:
        """Hold a place while a call is being set up; gives its name, for `add`. CallRefused raised inside is counted.

        Args:
            ticket: of the caller who has waited so far.

        Raises:
            HttpFault: 403, the token does not open this channel; 429, its subject has as many calls as it may.
            CallQueued: it is to wait, and to ask again with the ticket inside.
            CallRefused: draining, not ready, full, or waited for too long.
        """
        ticket = new_ticket() if ticket is None else ticket
        place = place_of(ticket, claims.subject)
        with self.holding(claims, channel, place):
            async with self._taken(ticket, place, claims.subject):
                yield place

    @asynccontextmanager
    async def _taken(self, ticket: str, place: str, subject: str) -> AsyncIterator[None]:
        if self.places is None:
            yield
            return
        match await self.places.ask(place):
            case Queued() as answer:
                self._waiting[place] = _Waiting(subject, self._now() + MISSED_POLLS_S)
                raise CallQueued(ticket, answer)
            case Refused() as answer:
                self._waiting.pop(place, None)
                raise refusal(answer)
            case Admitted():
                self._waiting.pop(place, None)
        try:
            yield
        except BaseException:
            self.places.leave(place)
            raise

    def leave(self, claims: Claims, ticket: str) -> None:
        """The caller waits no longer."""
        place = place_of(ticket, claims.subject)
        if self._waiting.pop(place, None) is not None and self.places is not None:
            self.places.leave(place)

    def _admit(self, claims: Claims, place: str) -> None:
        agent = self._agent
        if agent.draining:
            raise CallRefused("the server is shutting down", retry_after_s=DRAINING_RETRY_S)
        if len(agent.calls) + self._starting.total() >= agent.settings.server.max_calls:
            raise CallRefused("all lines are busy", retry_after_s=BUSY_RETRY_S)
        if not agent.ready:
            raise CallRefused(f"the server is not ready: {agent.not_ready_reason}", retry_after_s=STARTING_RETRY_S)
        if claims.max_calls is not None and self.count(claims.subject, without=place) >= claims.max_calls:
            raise too_many_calls(claims.max_calls)

    def count(self, subject: str, *, without: str = "") -> int:
        """Calls of `subject`: live, being set up, or waiting at any place but `without`."""
        self._prune()
        waiting = sum(one.subject == subject for place, one in self._waiting.items() if place != without)
        return self._starting[subject] + waiting + sum(owned.subject == subject for owned in self._owned.values())

    def add(
        self,
        subject: str,
        call: CallLike,
        port: WebRtcPortLike | None,
        resumption: Resumption | None = None,
        *,
        place: str = "",
    ) -> None:
        """Remember a call that has started, or goes on over another port. `place`: what it holds from now on."""
        self._prune()
        if self.places is not None and place:
            self.places.bind(place, call.id)
        self._owned[call.id] = OwnedCall(subject, call, port, resumption)

    def resumable(self, token: str, claims: Claims) -> tuple[OwnedCall, Resumption]:
        """The call that a resume token opens; it counts already, so no place is needed.

        Raises:
            CallRefused: draining.
            HttpFault: 404, the token is wrong or spent, its call is over, or another subject's: which is not told;
                403, the subject's token no longer opens the call's channel.
        """
        if self._agent.draining:
            raise CallRefused("the server is shutting down", retry_after_s=DRAINING_RETRY_S)
        owned = self.find(call_of(token), claims.subject)
        if owned is None or owned.resumption is None or not owned.resumption.accepts(token):
            raise resume_expired()
        if not claims.allows(owned.call.session.channel):
            raise HttpFault(403, "channel_not_allowed", "the token does not open this call's channel", field="channel")
        return owned, owned.resumption

    def find(self, call_id: str, subject: str) -> OwnedCall | None:
        """The live call of that id if it is this subject's; others' calls do not exist for it."""
        self._prune()
        owned = self._owned.get(call_id)
        return owned if owned is not None and owned.subject == subject else None

    def forget(self, call_id: str) -> None:
        """Drop a call that is being hung up, so that it no longer answers or counts."""
        self._owned.pop(call_id, None)

    def _prune(self) -> None:
        live = self._agent.calls
        for call_id in [call_id for call_id in self._owned if call_id not in live]:
            del self._owned[call_id]
        now = self._now()
        self._waiting = {place: one for place, one in self._waiting.items() if one.until > now}
