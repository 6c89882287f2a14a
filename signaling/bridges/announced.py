"""Calls that were announced with a token and are about to come over a connection that has no room for one. Pure.

A UUID is given out once, works once, and soon expires: whoever can connect must also have been told it.
"""

from __future__ import annotations

import uuid
from collections import OrderedDict
from dataclasses import dataclass

from agent.errors import CallRefused
from signaling.bridges.parameters import Told
from signaling.tokens import Claims

__all__ = ["TTL_S", "Announced", "Announcement"]

TTL_S = 30.0
"""A dialplan connects at once; a slow machine needs seconds."""

MAX_WAITING = 1000


@dataclass(frozen=True, slots=True)
class Announcement:
    """Whose call comes, and what is known about it."""

    claims: Claims
    told: Told


class Announced:
    """Announcements by UUID; bounded."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[uuid.UUID, tuple[float, Announcement]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._waiting)

    def announce(self, announcement: Announcement, now: float) -> uuid.UUID:
        """A UUID for the call, good for `TTL_S`. `now` is monotonic. Raises CallRefused when too many wait."""
        self._expire(now)
        if len(self._waiting) >= MAX_WAITING:
            raise CallRefused("too many announced calls have not come")
        made = uuid.uuid4()
        self._waiting[made] = (now, announcement)
        return made

    def take(self, call: uuid.UUID, now: float) -> Announcement | None:
        """What was announced under this UUID, once; None when nothing was, or it is too late."""
        self._expire(now)
        _, announcement = self._waiting.pop(call, (0.0, None))
        return announcement

    def _expire(self, now: float) -> None:
        while self._waiting:
            call, (at, _) = next(iter(self._waiting.items()))
            if now - at < TTL_S:
                return
            del self._waiting[call]
