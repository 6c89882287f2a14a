"""Back-pressure between the edge and a core: how many frames a call may have on the way. Pure: no I/O, fed `now`.

HTTP/2 flow control is none for audio: a stream lets minutes of it wait in front of a slow reader. Here the core grants
each call a window (`CreditWindow`) and tells it in its acks. The edge sends no more than that (`CreditedQueue`), and
what has to be lost is lost where it costs least: the oldest silence first, and counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Generic, TypeVar

__all__ = ["FRAME_MS", "MAX_CREDITS", "MAX_QUEUED_MS", "CreditWindow", "CreditedQueue", "DroppedFrames", "Sendable"]

F = TypeVar("F")

FRAME_MS = 20
"""One frame of audio."""

MAX_CREDITS = 8
"""160 ms on the way: a tick of batching at each side, a round trip, and a scheduling hiccup of 100 ms."""

MIN_CREDITS = 1
"""With none a call could never learn that the core is quick again."""

SLOW_MS = 40.0
"""Two frames: an idle core hands a frame on within the tick, so that older ones mean it does not keep up."""

EASY_MS = SLOW_MS / 2
"""Only below this does the window grow: between the two it stays, or it would swing."""

HALVE_EVERY_S = 0.04
"""A halving shows in the queue's age only when the frames already sent are through."""

GROW_EVERY_S = 0.1
"""One frame a step: 1 to 8 takes 0.7 s, which is slower than any burst of a batch."""

MAX_QUEUED_MS = 200
"""Audio that may stand between the microphone and the core, on the way and waiting. Older is no conversation."""


class CreditWindow:
    """The core's side: the window of one call, or of all calls of a core, from how long frames wait there."""

    def __init__(self, now: float) -> None:
        self.frames = MAX_CREDITS
        """What acks grant: frames sent and not yet acknowledged, at most."""
        self._halved_at = now - HALVE_EVERY_S
        self._grown_at = now

    def observe(self, queue_age_ms: float, now: float) -> int:
        """The window after the oldest frame of the core's queue was seen to be this old (0 for an empty queue)."""
        if queue_age_ms > SLOW_MS:
            if now - self._halved_at >= HALVE_EVERY_S:
                self.frames = max(MIN_CREDITS, self.frames // 2)
                self._halved_at = now
            self._grown_at = now
        elif queue_age_ms >= EASY_MS:
            self._grown_at = now
        elif self.frames < MAX_CREDITS and now - self._grown_at >= GROW_EVERY_S:
            self.frames += 1
            self._grown_at = now
        return self.frames


@dataclass(frozen=True, slots=True)
class Sendable(Generic[F]):
    """A frame that may go out now."""

    seq: int
    """Counts all frames of the stream from 1, also those that were dropped: a gap is a loss, and is seen as one."""
    frame: F
    speech: bool


@dataclass(slots=True)
class DroppedFrames:
    """What never went out, by what was in it."""

    silence: int = 0
    speech: int = 0

    @property
    def total(self) -> int:
        return self.silence + self.speech


class CreditedQueue(Generic[F]):
    """The edge's side: frames of one call to one core, in order.

    At most `MAX_QUEUED_MS` of audio is ever between here and the core's ack. Beyond it the oldest waiting frame without
    speech goes, or the oldest of all when every one has speech.
    """

    def __init__(self) -> None:
        self.dropped = DroppedFrames()
        self._window = MAX_CREDITS
        self._next_seq = 1
        self._in_flight: deque[int] = deque()
        self._waiting: deque[Sendable[F]] = deque()

    @property
    def window(self) -> int:
        """What the core granted last."""
        return self._window

    @property
    def in_flight(self) -> int:
        """Frames sent and not acknowledged."""
        return len(self._in_flight)

    @property
    def waiting(self) -> int:
        """Frames that have no credit yet."""
        return len(self._waiting)

    @property
    def queued_ms(self) -> int:
        """Audio that the core has not acknowledged."""
        return (len(self._in_flight) + len(self._waiting)) * FRAME_MS

    def push(self, frame: F, *, speech: bool) -> list[Sendable[F]]:
        """One more frame from the microphone; returns what may be sent now, oldest first."""
        self._waiting.append(Sendable(self._next_seq, frame, speech))
        self._next_seq += 1
        # Credits first: a frame that may go is no reason to drop one.
        ready = self._take()
        while self.queued_ms > MAX_QUEUED_MS and self._waiting:
            self._drop_one()
        return ready

    def acked(self, seq: int, window: int) -> list[Sendable[F]]:
        """The core has taken all frames up to `seq` and grants `window`; returns what may be sent now.

        A window outside 1 to 8 is cut to that, and an ack of what was never sent acknowledges nothing more.
        """
        self._window = min(MAX_CREDITS, max(MIN_CREDITS, window))
        while self._in_flight and self._in_flight[0] <= seq:
            self._in_flight.popleft()
        return self._take()

    def restart(self) -> list[Sendable[F]]:
        """The stream goes to another core: nothing is on the way any more, the window is new; what may be sent now.

        What was on the way is not sent again here: that is the replay's part (`agent.core.failover`).
        """
        self._in_flight.clear()
        self._window = MAX_CREDITS
        return self._take()

    def _take(self) -> list[Sendable[F]]:
        ready: list[Sendable[F]] = []
        while self._waiting and len(self._in_flight) < self._window:
            item = self._waiting.popleft()
            self._in_flight.append(item.seq)
            ready.append(item)
        return ready

    def _drop_one(self) -> None:
        for index, item in enumerate(self._waiting):
            if not item.speech:
                del self._waiting[index]
                self.dropped.silence += 1
                return
        self._waiting.popleft()
        self.dropped.speech += 1
