"""Session timers (RFC 4028): a call whose end got lost is noticed. Pure.

A peer that lacks `timer` is refreshed by us and never cut off for its silence: many trunks lack it.
"""

from __future__ import annotations

from dataclasses import dataclass

from signaling.sip.errors import SipError
from signaling.sip.fields import parse_delta
from signaling.sip.grammar import get_param, parse_params
from signaling.sip.message import Request, Response

__all__ = ["MIN_SE_S", "SessionTimer", "interval_from_422"]

MIN_SE_S = 90
"""RFC 4028 section 5: no less may be asked for."""
INTERVAL_S = 1800
"""Its recommendation."""
EARLY_S = 32.0
"""A call expires this long before its interval, or a third of it, whichever is less (section 10)."""


def _session_expires(value: str) -> tuple[int, str]:
    seconds, _, rest = value.partition(";")
    refresher = get_param(parse_params(rest, "Session-Expires"), "refresher") if rest.strip() else None
    return parse_delta(seconds, "Session-Expires"), (refresher or "").lower()


def interval_from_422(response: Response) -> int | None:
    """The interval that a 422 asks for, or None when it does not say."""
    value = response.headers.get("Min-SE")
    return None if value is None else max(MIN_SE_S, parse_delta(value, "Min-SE"))


@dataclass(frozen=True, slots=True)
class SessionTimer:
    """The timer one INVITE or UPDATE agreed on."""

    interval_s: int
    we_refresh: bool
    peer_has_timer: bool

    @property
    def refresh_after_s(self) -> float:
        """When we send a refresh, in seconds from the last one."""
        return self.interval_s / 2

    @property
    def expires_after_s(self) -> float | None:
        """When the call is dead without a refresh by the peer; None: never."""
        if self.we_refresh:
            return None
        return self.interval_s - min(EARLY_S, self.interval_s / 3)

    @classmethod
    def as_server(cls, request: Request, *, interval_s: int = INTERVAL_S) -> SessionTimer:
        """What we agree to in a 2xx (section 9). Raises SipError 422 when the interval asked for is too small."""
        supported = "timer" in request.headers.tokens("Supported") | request.headers.tokens("Require")
        asked = request.headers.get("Session-Expires")
        least = request.headers.get("Min-SE")
        floor = max(MIN_SE_S, parse_delta(least, "Min-SE") if least is not None else 0)
        if not supported:
            return cls(max(interval_s, floor), True, False)
        if asked is None:
            return cls(max(interval_s, floor), True, True)
        seconds, refresher = _session_expires(asked)
        if seconds < MIN_SE_S:
            headers = (("Min-SE", str(MIN_SE_S)),)
            raise SipError("Session-Expires: too small", status=422, field="Session-Expires", headers=headers)
        return cls(max(floor, min(seconds, interval_s)), refresher == "uas", True)

    @classmethod
    def as_client(cls, response: Response, *, interval_s: int) -> SessionTimer:
        """What a 2xx to our request means (section 7.2)."""
        value = response.headers.get("Session-Expires")
        if value is None:
            return cls(interval_s, True, False)
        seconds, refresher = _session_expires(value)
        return cls(max(seconds, MIN_SE_S), refresher != "uas", True)

    def headers_as_server(self) -> list[tuple[str, str]]:
        """For our 2xx."""
        refresher = "uas" if self.we_refresh else "uac"
        found = [("Session-Expires", f"{self.interval_s};refresher={refresher}")]
        if self.peer_has_timer:
            # Demanding it of a peer that lacks it would make it refuse the call.
            found.insert(0, ("Require", "timer"))
        return found

    def headers_as_client(self) -> list[tuple[str, str]]:
        """For a refresh of ours."""
        refresher = f";refresher={'uac' if self.we_refresh else 'uas'}"
        return [("Session-Expires", f"{self.interval_s}{refresher}"), ("Min-SE", str(MIN_SE_S))]
