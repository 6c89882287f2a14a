"""Who may talk to us: address lists, rates, digest, bans (pure).

A stranger learns nothing: what it gets, silence, a challenge or 403, is the same for every extension, existing or not,
and the same for every product name it may look for. Counts are bounded whatever the addresses are.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from signaling.limits import RateLimiter, address_key
from signaling.sip.digest import DigestServer, Proof
from signaling.sip.message import Request
from signaling.sip.peer import Peer

__all__ = ["Admission", "Door", "DoorSettings", "Stance"]

MAX_OFFENDERS = 20_000
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Stance(Enum):
    """What a stranger gets who may not come in."""

    SILENCE = "silence"
    FORBID = "forbid"
    """403."""


@dataclass(frozen=True, slots=True)
class DoorSettings:
    """Who is let in.

    Without trusted networks and without digest everybody is: for a network of one's own.
    """

    trusted: Sequence[Network] = ()
    """Addresses of trunks and PBXs; neither limited nor challenged."""
    open_to_all: bool = False
    """Take calls of strangers who prove nothing."""
    stance: Stance = Stance.SILENCE
    requests_per_minute: int = 120
    """Of one stranger's address, an IPv6 /64 being one."""
    failures: int = 5
    """Wrong passwords of one address within `ban_s`, and it is banned."""
    ban_s: float = 600.0


@dataclass(frozen=True, slots=True)
class Admission:
    """What is done with a request. `status` 0: it is let in; None: dropped without a word."""

    status: int | None = 0
    headers: tuple[tuple[str, str], ...] = ()
    user: str = ""


ADMITTED = Admission()
DROPPED = Admission(None)


class Door:
    """Judges what comes from outside any call.

    Args:
        digest: challenges strangers' calls; None: there are no passwords.
    """

    def __init__(self, settings: DoorSettings, digest: DigestServer | None = None) -> None:
        self._settings = settings
        self._digest = digest
        self._limiter = RateLimiter(settings.requests_per_minute)
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self.dropped = 0
        """Messages dropped so far: by rate, ban or stance."""

    def trusts(self, peer: Peer) -> bool:
        """The peer's address is on the list."""
        try:
            address = ipaddress.ip_address(peer.host)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._settings.trusted)

    def hears(self, peer: Peer, now: float) -> bool:
        """Whether a message from there is looked at at all."""
        if self.trusts(peer):
            return True
        key = address_key(peer.host)
        heard = not self._banned(key, now) and self._limiter.take(key, now) == 0.0
        self.dropped += not heard
        return heard

    def judge(self, request: Request, peer: Peer, now: float) -> Admission:
        """What becomes of a request from outside any call, from a peer that is heard."""
        if self.trusts(peer) or self._settings.open_to_all:
            return ADMITTED
        if self._digest is None or request.method not in ("INVITE", "REGISTER"):
            return self._turn_away()
        values = request.headers.all("Authorization")
        proof, user = self._digest.check(values, request.method, str(request.uri), request.body, now)
        if proof is Proof.GOOD:
            self._failures.pop(address_key(peer.host), None)
            return Admission(0, (), user)
        if proof is Proof.WRONG:
            self._fail(address_key(peer.host), now)
            return Admission(403)
        stale = proof is Proof.STALE
        challenges = tuple(("WWW-Authenticate", value) for value in self._digest.challenges(now, stale=stale))
        return Admission(401, challenges)

    def refuses_quietly(self, peer: Peer) -> bool:
        """A fault of a stranger's message is not worth an answer: it would tell that somebody is here."""
        stranger = not self.trusts(peer) and not self._settings.open_to_all
        return stranger and self._settings.stance is Stance.SILENCE

    def _turn_away(self) -> Admission:
        if self._settings.stance is Stance.SILENCE:
            self.dropped += 1
            return DROPPED
        return Admission(403)

    def _banned(self, key: str, now: float) -> bool:
        count, since = self._failures.get(key, (0, now))
        if now - since > self._settings.ban_s:
            del self._failures[key]
            return False
        return count >= self._settings.failures

    def _fail(self, key: str, now: float) -> None:
        count, _ = self._failures.get(key, (0, now))
        # The ban runs from the last failure, so that slow guessing is no way around it.
        self._failures[key] = (count + 1, now)
        self._failures.move_to_end(key)
        while len(self._failures) > MAX_OFFENDERS:
            self._failures.popitem(last=False)
