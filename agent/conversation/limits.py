"""How long a call may be silent, and how long it may last. Pure."""

from __future__ import annotations

from enum import Enum

from agent.config import ConversationSettings

__all__ = ["GOODBYE_S", "Due", "Limits"]

GOODBYE_S = 10.0
"""The goodbye of a call that has lasted too long may take this long; then the line is cut."""


class Due(Enum):
    """What is to be done when nobody speaks."""

    ASK = "ask whether somebody is there"
    GOODBYE = "say goodbye"
    WARN = "warn that time is nearly up"
    IDLE = "end the call"


class Limits:
    """The clocks of one call. Times are seconds on the machine's clock.

    Args:
        settings: `still_there_after_s`, `still_there_times`, `end_warning_s`, `max_call_s` and `idle_s`.
        now: the call begins.
    """

    def __init__(self, settings: ConversationSettings, now: float) -> None:
        self._settings = settings
        self._ends_at = now + settings.max_call_s
        # A warning before the first word would say nothing.
        warned = 0 < settings.end_warning_s < settings.max_call_s
        self._warn_at = self._ends_at - settings.end_warning_s if warned else None
        self._quiet_since = now
        self._active_at = now
        self._asked = 0

    def sound(self, now: float) -> None:
        """Somebody makes a sound or is about to: it is not silent."""
        self._quiet_since = now

    def activity(self, now: float) -> None:
        """The call is in use: the caller makes a sound or a key's tone, or is being answered."""
        self._quiet_since = self._active_at = now

    def caller_acted(self, now: float) -> None:
        """The caller said, typed or pressed something: somebody is there."""
        self.activity(now)
        self._asked = 0

    def due(self, now: float) -> Due | None:
        """What is to be done now, if nobody speaks or thinks. Asking and warning count as done."""
        settings = self._settings
        if now - self._active_at >= settings.idle_s:
            return Due.IDLE
        if self._warn_at is not None and now >= self._warn_at:
            self._warn_at = None
            return Due.WARN
        if settings.still_there_after_s and now - self._quiet_since >= settings.still_there_after_s:
            if self._asked >= settings.still_there_times:
                return Due.GOODBYE
            self._asked += 1
            return Due.ASK
        return None

    def time_is_up(self, now: float) -> bool:
        """The longest call is over: it is time to say goodbye."""
        return now >= self._ends_at

    def overdue(self, now: float) -> bool:
        """The goodbye had its time as well."""
        return now >= self._ends_at + GOODBYE_S
