"""Where RTP is sent and whose RTP is heard: symmetric RTP (RFC 4961) with latching. Pure.

A telephone behind a NAT describes an address that nobody can reach, so that the source of its first packets counts
(RFC 7362 section 4). Once one source is believed, others are not: who guesses the port later changes nothing. A new
description opens the choice again, since a telephone may move; the source that was heard before stays good until
another has proved itself.

Whoever calls can describe a stranger's address. Until something comes from there, only a small allowance is sent.
"""

from __future__ import annotations

from agent.media.rtp_session import Address

__all__ = ["ALLOWANCE_PACKETS", "PROBATION_PACKETS", "Latch"]

PROBATION_PACKETS = 3
"""Of one source and SSRC in a row, before an address that nobody has described is believed: 60 ms of speech."""
ALLOWANCE_PACKETS = 500
"""To an address that has sent nothing yet: ten seconds, about 100 KB, for the whole call. A callee who listens first
hears the greeting, and a stranger whose address was given gets no more than one spam mail's worth."""


class Latch:
    """One call's far end."""

    def __init__(self, *, allowance: int = ALLOWANCE_PACKETS) -> None:
        self.target: Address | None = None
        """Where to send."""
        self.proven = False
        """Something came from there, or the signalling does."""
        self.refused = 0
        """Packets of sources that are not believed."""
        self._allowance = allowance
        self._signalled: Address | None = None
        self._open = True
        self._candidate: tuple[Address, int] | None = None
        self._seen = 0

    def describe(self, address: Address, *, known: bool) -> None:
        """A description of the peer was agreed on.

        Args:
            address: what it says.
            known: the peer's signalling comes from that host.
        """
        if address != self._signalled:
            self._signalled = self.target = address
            self.proven = known
        self._open = True
        self._candidate = None

    def take(self, source: Address, ssrc: int) -> bool:
        """Whether a packet from there is the peer's."""
        if source == self.target or source == self._signalled:
            self._believe(source)
            return True
        if not self._open:
            self.refused += 1
            return False
        if self._candidate != (source, ssrc):
            self._candidate, self._seen = (source, ssrc), 0
        self._seen += 1
        if self._seen < PROBATION_PACKETS:
            self.refused += 1
            return False
        self._believe(source)
        return True

    def is_peer(self, host: str) -> bool:
        """Whether RTCP from this host may be the peer's; its port is often another one."""
        return self.target is not None and host == self.target[0]

    def may_send(self) -> bool:
        """Whether one more packet may go to `target`; counts it while nothing is proven."""
        if self.target is None:
            return False
        if self.proven:
            return True
        self._allowance -= 1
        return self._allowance >= 0

    def _believe(self, source: Address) -> None:
        self.target = source
        self.proven = True
        self._open = False
        self._candidate = None
