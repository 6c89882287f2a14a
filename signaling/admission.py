"""Which calls are whose, and who may start one more. No I/O; the agent's own table of live calls is the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from agent.errors import CallRefused
from agent.nlu.hook import Channel
from signaling.ports import AgentLike, CallLike, WebRtcPortLike
from signaling.problems import HttpFault
from signaling.resume import Resumption, call_of
from signaling.tokens import Claims

__all__ = ["CallRegistry", "OwnedCall", "resume_expired", "too_many_calls"]

BUSY_RETRY_S = 5
STARTING_RETRY_S = 2
DRAINING_RETRY_S = 10


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


class CallRegistry:
    """Calls made through signaling. Ended ones vanish by themselves: only ids the agent still lists are kept."""

    def __init__(self, agent: AgentLike) -> None:
        self._agent = agent
        self._owned: dict[str, OwnedCall] = {}
        self._starting: Counter[str] = Counter()

    @contextmanager
    def starting(self, claims: Claims, channel: Channel) -> Iterator[None]:
        """Hold a place while a call is being set up; CallRefused raised inside is counted as well.

        Raises:
            HttpFault: 403, the token does not open this channel; 429, its subject has as many calls as it may.
            CallRefused: draining, not ready, or full.
        """
        if not claims.allows(channel):
            raise HttpFault(
                403, "channel_not_allowed", f"the token does not open the channel {channel!r}", field="channel"
            )
        try:
            self._admit(claims)
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

    def _admit(self, claims: Claims) -> None:
        agent = self._agent
        if agent.draining:
            raise CallRefused("the server is shutting down", retry_after_s=DRAINING_RETRY_S)
        if len(agent.calls) + self._starting.total() >= agent.settings.server.max_calls:
            raise CallRefused("all lines are busy", retry_after_s=BUSY_RETRY_S)
        if not agent.ready:
            raise CallRefused(f"the server is not ready: {agent.not_ready_reason}", retry_after_s=STARTING_RETRY_S)
        if claims.max_calls is not None and self.count(claims.subject) >= claims.max_calls:
            raise too_many_calls(claims.max_calls)

    def count(self, subject: str) -> int:
        """Calls of `subject`, live or being set up."""
        self._prune()
        return self._starting[subject] + sum(owned.subject == subject for owned in self._owned.values())

    def add(
        self, subject: str, call: CallLike, port: WebRtcPortLike | None, resumption: Resumption | None = None
    ) -> None:
        """Remember a call that has started, or goes on over another port."""
        self._prune()
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
