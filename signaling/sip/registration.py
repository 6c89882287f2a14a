"""Keeping one address registered at a provider (RFC 3261 section 10.2): refresh, fail-over, unregister. Pure.

Registrars are tried in their order. When all have failed the next round waits, longer each time (RFC 5626 section 4.5);
a refused password waits longest, since asking again and again earns a ban.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from itertools import count

from signaling.sip.errors import SipError
from signaling.sip.fields import NameAddr, parse_delta, parse_name_addr
from signaling.sip.grammar import get_param
from signaling.sip.message import Request, Response
from signaling.sip.peer import same_host
from signaling.sip.protocol import RegistrationChanged
from signaling.sip.routing import next_hop
from signaling.sip.stack import Exchange, Stack
from signaling.sip.timers import Deadlines
from signaling.sip.uri import Uri

__all__ = ["Registration", "RegistrationSettings", "RegistrationState"]

MIN_EXPIRES_S, MAX_EXPIRES_S = 10, 86_400
REFRESH_AT = 0.75
"""Of the time that was granted: a registrar that is lost then can still be replaced before the end."""
RETRY_S, MAX_RETRY_S = 30.0, 1800.0
"""RFC 5626 section 4.5."""
REFUSED_RETRY_S = 600.0
REFUSED = (401, 403, 404, 407)
"""What waiting a little will not change: name or password are wrong."""
GIVE_UP_S = 2.0
"""For the answer to the last REGISTER: the process wants to end."""


class RegistrationState(Enum):
    """How far it has come."""

    IDLE = auto()
    ASKING = auto()
    """A REGISTER is out."""
    REGISTERED = auto()
    WAITING = auto()
    """All registrars have failed."""
    LEAVING = auto()
    OVER = auto()


@dataclass(frozen=True, slots=True)
class RegistrationSettings:
    """What to register, and where."""

    user: str
    registrars: tuple[Uri, ...]
    """In the order in which they are tried, as `sip:provider.example`."""
    domain: str = ""
    """Of the address; "": the registrar's host."""
    expires_s: int = 600


class Registration:
    """One address of record. `begin` it once, `leave` it once; both may be called at any time."""

    def __init__(self, stack: Stack, settings: RegistrationSettings) -> None:
        self.state = RegistrationState.IDLE
        self._stack = stack
        self._settings = settings
        self._call_id = stack.new_token()
        self._tag = stack.new_token()
        self._sequence = count(1)
        self._deadlines = Deadlines(stack.schedule, self)
        self._at = 0
        self._tried = 0
        """Registrars that have failed in this round."""
        self._rounds = 0
        self._expires_s = settings.expires_s
        self._granted = False
        """A registrar has us in its book, for all we know."""
        self._exchange: Exchange | None = None
        self._told: tuple[bool, int] | None = None

    def begin(self, now: float) -> None:
        """Register."""
        if self.state is RegistrationState.IDLE:
            self._ask(self._expires_s, now)

    def leave(self, now: float) -> None:
        """Unregister, and be over at the answer or after `GIVE_UP_S`."""
        if self.state in (RegistrationState.LEAVING, RegistrationState.OVER):
            return
        self._deadlines.clear()
        if self._exchange is not None:
            self._exchange.abandon()
        # Also when a REGISTER is out whose answer we shall not hear.
        if not self._granted and self.state is not RegistrationState.ASKING:
            self.state = RegistrationState.OVER
            return
        self._ask(0, now)
        self.state = RegistrationState.LEAVING
        self._deadlines.set("leaving", now + GIVE_UP_S)

    def tick(self, now: float) -> None:
        """Act on deadlines."""
        for name in self._deadlines.take_due(now):
            if name == "leaving":
                self.state = RegistrationState.OVER
            elif name == "expired":
                self._granted = False
                self._tell(False, 408)
            else:
                self._ask(self._expires_s, now)

    def on_answer(self, exchange: Exchange, response: Response, now: float) -> None:
        """A registrar's answer, or that there was none."""
        if exchange is not self._exchange or response.status < 200:
            return
        self._exchange = None
        if self.state is RegistrationState.LEAVING:
            self._deadlines.clear()
            self.state = RegistrationState.OVER
            self._tell(False, response.status)
            return
        if response.status < 300:
            self._registered(response, now)
        elif response.status == 423 and self._longer(response):
            self._ask(self._expires_s, now)
        else:
            self._failed(response, now)

    def _registered(self, response: Response, now: float) -> None:
        granted_s = self._granted_s(response)
        self.state, self._granted = RegistrationState.REGISTERED, True
        self._tried = self._rounds = 0
        self._deadlines.set("refresh", now + granted_s * REFRESH_AT)
        self._deadlines.set("expired", now + granted_s)
        self._tell(True, response.status)

    def _failed(self, response: Response, now: float) -> None:
        self._tried += 1
        if self._tried < len(self._settings.registrars):
            self._at = (self._at + 1) % len(self._settings.registrars)
            self._ask(self._expires_s, now)
            return
        self._at = self._tried = 0
        self.state = RegistrationState.WAITING
        wait_s = min(MAX_RETRY_S, RETRY_S * 2**self._rounds)
        self._rounds = min(self._rounds + 1, 16)
        if response.status in REFUSED:
            wait_s = max(wait_s, REFUSED_RETRY_S)
        wait_s = max(wait_s * (0.5 + self._stack.random() / 2), self._asked_to_wait(response))
        self._deadlines.set("retry", now + wait_s)
        self._tell(False, response.status)

    def _ask(self, expires_s: int, now: float) -> None:
        registrar = self._settings.registrars[self._at]
        hop = next_hop(registrar, [], self._stack.settings.proxy, None)
        address = Uri.sip(self._settings.user, self._settings.domain or registrar.host)
        request = Request(
            "REGISTER", Uri(registrar.scheme, registrar.host, port=registrar.port, params=registrar.params)
        )
        request.headers.add("Max-Forwards", "70")
        request.headers.add("From", str(NameAddr(address).with_tag(self._tag)))
        request.headers.add("To", str(NameAddr(address)))
        request.headers.add("Call-ID", self._call_id)
        request.headers.add("CSeq", f"{next(self._sequence)} REGISTER")
        self._stack.dress(request, hop, contact=True)
        request.headers.add("Expires", str(expires_s))
        self.state = RegistrationState.ASKING
        self._exchange = self._stack.send(request, hop, self, lambda: next(self._sequence), now, home=hop.host)

    def _granted_s(self, response: Response) -> int:
        """What the registrar says of our own contact, else of all (section 10.2.4)."""
        try:
            return _bounded(self._own_expires_s(response) or self._all_expires_s(response))
        except SipError:
            # It has us in its book, however badly it says for how long.
            return self._expires_s

    def _own_expires_s(self, response: Response) -> int | None:
        for value in response.headers.values("Contact"):
            contact = parse_name_addr(value, "Contact")
            expires = get_param(contact.params, "expires")
            if expires and any(same_host(contact.uri.host, host) for host in self._own_hosts()):
                return parse_delta(expires, "Contact")
        return None

    def _all_expires_s(self, response: Response) -> int:
        return parse_delta(response.headers.get("Expires") or str(self._expires_s), "Expires")

    def _own_hosts(self) -> list[str]:
        return [host for host, _ in self._stack.settings.contacts.values()]

    def _longer(self, response: Response) -> bool:
        """The registrar wants a longer interval: ask for it, once."""
        try:
            wanted_s = parse_delta(response.headers.get("Min-Expires") or "0", "Min-Expires")
        except SipError:
            return False
        if not self._expires_s < wanted_s <= MAX_EXPIRES_S:
            return False
        self._expires_s = wanted_s
        return True

    def _asked_to_wait(self, response: Response) -> float:
        try:
            return float(min(parse_delta(response.headers.get("Retry-After") or "0", "Retry-After"), MAX_RETRY_S))
        except SipError:
            return 0.0

    def _tell(self, registered: bool, status: int) -> None:
        if (registered, status) != self._told:
            self._told = (registered, status)
            self._stack.tell(RegistrationChanged(registered, status))


def _bounded(seconds: int) -> int:
    return max(MIN_EXPIRES_S, min(seconds, MAX_EXPIRES_S))
