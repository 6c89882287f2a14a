"""Keeps one stream of a call on a working replica of its shard. Pure: fed `(event, now)`, answers with what to do.

A replica is left when it reports an error, or takes in nothing for 200 ms while something is waiting for it. The stream
is opened on another one and what the caller said lately is sent again (`ReplayBuffer`). With nowhere to go the call is
told so (it plays its cached phrase, and the caller may go on) and the shard is tried again as its breaker says.

Every attempt has a generation, counted from 1. What arrives from any but the current one is dropped (`is_current`), so
that nothing is understood or said twice. Speech that broke off in a clause is the business of
`agent.tts.fallback.FallbackSynthesizer`, which begins again at the first word that was not heard.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from agent.core.breaker import Breaker
from agent.core.credits import FRAME_MS

__all__ = [
    "Action",
    "Cause",
    "Close",
    "Failover",
    "Open",
    "Replay",
    "ReplayBuffer",
    "StreamState",
    "Unavailable",
]

F = TypeVar("F")

PROGRESS_S = 0.2
"""Ten frames without an ack. A core acks within a tick; a busy one shrinks its window instead of falling silent."""

OPEN_S = 0.2
"""An open answers in one round trip over a link that is up already."""

REPLAY_MS = 400
"""What may not have been understood when a core is found dead: 200 ms until it shows, 160 ms on the way, and a tick
at each end."""

RETRY_MIN_S = 0.1
RETRY_MAX_S = 0.5
"""How often a stream without a replica looks again: another stream's probe may have closed the breaker meanwhile."""


class StreamState(Enum):
    """What `Failover.state` says."""

    NEW = "new"
    OPENING = "opening"
    LIVE = "live"
    MOVING = "moving"
    """Live, and its successor is being opened."""
    UNAVAILABLE = "unavailable"
    CLOSED = "closed"


class Cause(Enum):
    """Why a replica was left; a label of metrics."""

    ERROR = "error"
    STALLED = "stalled"
    NOT_OPENED = "not_opened"
    MOVED = "moved"
    """On purpose: it drains, or the call changed its language or voice."""


@dataclass(frozen=True, slots=True)
class Open:
    """Open the stream on this replica; tell the outcome by `opened` or `failed`."""

    replica: str
    generation: int


@dataclass(frozen=True, slots=True)
class Replay:
    """The new stream is up: send it the replay first, then go on."""

    generation: int


@dataclass(frozen=True, slots=True)
class Close:
    """Cancel and close this attempt, if it is still there; nothing it says counts any more."""

    replica: str
    generation: int
    cause: Cause


@dataclass(frozen=True, slots=True)
class Unavailable:
    """No replica works. Once until one does."""


Action = Open | Replay | Close | Unavailable


@dataclass(frozen=True, slots=True)
class _Attempt:
    replica: str
    generation: int
    deadline: float
    """Until when it must be open."""


class Failover:
    """One stream's way from replica to replica.

    Args:
        replicas: live replicas of the shard, best first (`agent.core.rendezvous.rank`); asked at each opening.
        breaker: the shard's.
        progress_s: longest time without progress while something is outstanding.
    """

    def __init__(
        self, replicas: Callable[[], Sequence[str]], breaker: Breaker, *, progress_s: float = PROGRESS_S
    ) -> None:
        self._replicas = replicas
        self._breaker = breaker
        self._progress_s = progress_s
        self._generation = 0
        self._live: _Attempt | None = None
        self._opening: _Attempt | None = None
        self._left: set[str] = set()
        """Replicas that failed and from which nothing better was heard since."""
        self._phase = StreamState.NEW
        """Where it is while there is no attempt; UNAVAILABLE until a replica made progress, so that it is told once."""
        self._owed_since: float | None = None
        self._probing = False
        """This stream is the breaker's probe: it may try one replica after the other."""
        self._retry_at = 0.0

    @property
    def state(self) -> StreamState:
        """Where the stream is."""
        if self._live is not None:
            return StreamState.LIVE if self._opening is None else StreamState.MOVING
        return self._phase if self._opening is None else StreamState.OPENING

    @property
    def replica(self) -> str | None:
        """The one in use."""
        return None if self._live is None else self._live.replica

    @property
    def deadline(self) -> float | None:
        """When `tick` is to be called at the latest; None when nothing is waited for."""
        times = [] if self._opening is None else [self._opening.deadline]
        if self._live is not None and self._owed_since is not None:
            times.append(self._owed_since + self._progress_s)
        if self.state is StreamState.UNAVAILABLE:
            times.append(self._retry_at)
        return min(times, default=None)

    def is_current(self, generation: int) -> bool:
        """Whether an answer of this generation counts."""
        return self._live is not None and self._live.generation == generation

    def start(self, now: float) -> list[Action]:
        """Open the stream."""
        return self._open(now) if self.state is StreamState.NEW else []

    def opened(self, generation: int) -> list[Action]:
        """That attempt is up."""
        if self._opening is None or self._opening.generation != generation:
            return []
        before, self._live, self._opening = self._live, self._opening, None
        self._owed_since = None
        actions: list[Action] = [Replay(generation)]
        if before is not None:
            actions.append(Close(before.replica, before.generation, Cause.MOVED))
        return actions

    def sent(self, now: float) -> None:
        """Something went to the live replica, and its ack is awaited."""
        if self._live is not None and self._owed_since is None:
            self._owed_since = now

    def progress(self, generation: int, now: float, *, outstanding: bool) -> None:
        """The replica acknowledged or answered; `outstanding`: something is still awaited."""
        if self.is_current(generation):
            self._owed_since = now if outstanding else None
            # Not at `opened`: a core that opens streams and then hangs must not look well each time anew.
            self._left.clear()
            self._phase = StreamState.LIVE
            self._probing = False
            self._breaker.worked()

    def failed(self, generation: int, now: float) -> list[Action]:
        """That attempt ended with an error, or its link did."""
        return self._lost(generation, Cause.ERROR, now)

    def move(self, now: float) -> list[Action]:
        """Go to another replica before this one is left: it drains, or another shard is wanted from now on.

        Stays where it is when there is no other.
        """
        if self._live is None or self._opening is not None:
            return []
        self._left.add(self._live.replica)
        self._opening = self._next(now)
        return [] if self._opening is None else [Open(self._opening.replica, self._opening.generation)]

    def tick(self, now: float) -> list[Action]:
        """Time has passed: see `deadline`."""
        if self._live is not None and self._owed_since is not None and now >= self._owed_since + self._progress_s:
            return self._lost(self._live.generation, Cause.STALLED, now)
        if self._opening is not None and now >= self._opening.deadline:
            return self._lost(self._opening.generation, Cause.NOT_OPENED, now)
        if self.state is StreamState.UNAVAILABLE and now >= self._retry_at:
            self._left.clear()
            return self._open(now)
        return []

    def close(self, now: float) -> list[Action]:
        """The call needs it no more."""
        if self._probing:
            self._probing = False
            self._breaker.gave_up(now)
        ending = [attempt for attempt in (self._live, self._opening) if attempt is not None]
        self._live = self._opening = None
        self._phase = StreamState.CLOSED
        return [Close(attempt.replica, attempt.generation, Cause.MOVED) for attempt in ending]

    def _lost(self, generation: int, cause: Cause, now: float) -> list[Action]:
        actions: list[Action] = []
        if self._opening is not None and self._opening.generation == generation:
            lost, self._opening = self._opening, None
        elif self._live is not None and self._live.generation == generation:
            lost, self._live = self._live, None
            self._owed_since = None
        else:
            return actions
        self._left.add(lost.replica)
        actions.append(Close(lost.replica, generation, cause))
        if self._opening is None and self._live is None:
            actions += self._open(now)
        return actions

    def _open(self, now: float) -> list[Action]:
        if self._breaker.allows() or self._probing or self._breaker.probe(now):
            self._probing = not self._breaker.allows()
            self._opening = self._next(now)
            if self._opening is not None:
                return [Open(self._opening.replica, self._opening.generation)]
            self._probing = False
            self._breaker.failed(now)
        first, self._phase = self._phase is not StreamState.UNAVAILABLE, StreamState.UNAVAILABLE
        self._retry_at = now + min(RETRY_MAX_S, max(RETRY_MIN_S, self._breaker.retry_in_s(now)))
        return [Unavailable()] if first else []

    def _next(self, now: float) -> _Attempt | None:
        replica = next((name for name in self._replicas() if name not in self._left), None)
        if replica is None:
            return None
        self._generation += 1
        return _Attempt(replica, self._generation, now + OPEN_S)


class ReplayBuffer(Generic[F]):
    """The newest frames that were sent, to be sent again to another core.

    Args:
        keep_ms: how much. 400 ms bridge the change for an engine that carries its state in words already told; one that
            reads a whole turn at a time needs the turn so far.
    """

    def __init__(self, keep_ms: int = REPLAY_MS) -> None:
        self._frames: deque[F] = deque(maxlen=max(1, keep_ms // FRAME_MS))

    def add(self, frame: F) -> None:
        """One frame went out."""
        self._frames.append(frame)

    def frames(self) -> list[F]:
        """Oldest first."""
        return list(self._frames)

    def clear(self) -> None:
        """A new turn begins."""
        self._frames.clear()
