"""The one place that knows aiortc and aioice from inside: ICE, DTLS-SRTP and SCTP of one call, without their media.

aiortc's RTCPeerConnection brings its own receiver (a thread and an unbounded queue a track, a jitter buffer that
stalls), sender (an executor hop a frame) and SDP answer (no FEC, no refusal of video). We use its transports and
nothing above them. SRTP is taken off the ICE socket before aiortc sees it and protected packets are put straight on the
socket: no task switch a packet. RELIED_ON lists every name used here that is not documented; a test fails when one is
gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import struct
import time
from collections.abc import Callable
from copy import copy
from typing import Any, Protocol, cast

import pylibsrtp
from aioice import Candidate as IceCandidate
from aioice.ice import CandidatePair, StunProtocol
from aioice.stun import Message, TransactionError
from aiortc import RTCCertificate, RTCDataChannel, RTCDtlsTransport, RTCSctpTransport
from aiortc.rtcdtlstransport import RTCDtlsFingerprint, RTCDtlsParameters
from aiortc.rtcsctptransport import RTCSctpCapabilities

from agent.config import MediaSettings
from agent.media.addresses import describe, parse_advertised
from agent.media.gathering import Agent, gather
from agent.media.rtp import is_rtcp
from agent.media.sdp import MAX_CANDIDATES, Candidate, Offer

__all__ = ["RELIED_ON", "PeerTransport", "TransportEvents"]

logger = logging.getLogger(__name__)

RELIED_ON: tuple[tuple[str, str], ...] = (
    ("aioice.ice.Connection", "_nominated"),
    ("aioice.ice.Connection", "_queue"),
    ("aioice.ice.Connection", "_remote_candidates"),
    ("aioice.ice.Connection", "check_incoming"),
    ("aioice.ice.Connection", "data_received"),
    ("aioice.ice.Connection", "get_component_candidates"),
    ("aioice.ice.Connection", "query_consent"),
    ("aioice.ice.Connection", "_protocols"),
    ("aioice.ice.Connection", "_check_list"),
    ("aioice.ice.StunProtocol", "receiver"),
    ("aioice.turn.TurnTransport", "_close"),
    ("aioice.turn.TurnTransport", "__close_task"),
    ("aioice.turn.TurnTransport", "__send_tasks"),
    ("aioice.ice", "relayed_candidate"),
    ("aioice.ice", "server_reflexive_candidate"),
    ("aioice.candidate", "candidate_foundation"),
    ("aioice.candidate", "candidate_priority"),
    ("aioice.ice.Connection", "build_request"),
    ("aioice.ice.StunProtocol", "request"),
    ("aioice.ice.StunProtocol", "datagram_received"),
    ("aiortc.RTCDtlsTransport", "_role"),
    ("aiortc.RTCDtlsTransport", "_rx_srtp"),
    ("aiortc.RTCDtlsTransport", "_tx_srtp"),
    ("aiortc.RTCDtlsTransport", "_task"),
    ("aiortc.RTCDtlsTransport", "_set_role"),
    ("aiortc.RTCSctpTransport", "_handle_data"),
)
"""(class or module, name); those that gather are used in `agent.media.gathering`. Also: RTCDtlsTransport calls only
`role`, `_recv` and `_send` of its ICE transport."""

MAX_ADDRESSES = 2 * MAX_CANDIDATES
"""Of a peer: those it named, and those that its checks came from."""
MAX_WAITING_DATAGRAMS = 256
"""DTLS datagrams not yet read; more is an attack, as SCTP's own window is smaller."""
CERTIFICATE_LIFE_S = 7 * 86_400
"""aiortc's certificates are valid for 30 days."""
EXPIRY_FACTOR = 1.5
"""Consent ends after interval * failures * this without an answer: 6 s with the defaults (RFC 7675 allows 30)."""
CLOSE_S = 1.0
"""For the goodbyes to the peer; with `RELEASE_S` less than the 2 s that `WebRtcPort.close` promises."""
RELEASE_S = 0.5
"""For the goodbye to a TURN server. A dead one is asked for 32 s otherwise; it frees the relay by itself in the end."""

_certificate: tuple[float, RTCCertificate] | None = None


def certificate() -> RTCCertificate:
    """The process's DTLS certificate: making one costs 10 ms, in which every other call would wait."""
    global _certificate
    now = time.monotonic()
    if _certificate is None or now - _certificate[0] > CERTIFICATE_LIFE_S:
        _certificate = (now, RTCCertificate.generateCertificate())
    return _certificate[1]


class TransportEvents(Protocol):
    """What a transport tells its port, on the event loop."""

    def on_rtp(self, data: bytes) -> None:
        """One decrypted, authenticated RTP packet."""

    def on_rtcp(self, data: bytes) -> None:
        """One decrypted, authenticated compound RTCP packet."""

    def on_channel(self, channel: RTCDataChannel) -> None:
        """The peer opened a data channel."""

    def on_gone(self, reason: str) -> None:
        """The transport has ended by itself; may be called more than once."""


class _Ice(Agent):
    """aioice's agent: media taken off before its queue, our own consent timing, bounded gathering.

    It stands in for aiortc's RTCIceTransport too, of which RTCDtlsTransport uses `role`, `_recv` and `_send`.
    """

    def __init__(self, settings: MediaSettings, on_media: Callable[[bytes], None], on_expired: Callable[[], None]):
        super().__init__(ice_controlling=False)
        self._settings = settings
        self._recv = self.recv
        self._send = self.send
        self._on_media = on_media
        self._on_expired = on_expired
        self.consent_at = 0.0
        """When the peer last answered a consent check, on the loop's clock."""
        self._consent_interval_s = settings.consent_interval_s
        self._consent_expiry_s = settings.consent_interval_s * settings.consent_failures * EXPIRY_FACTOR

    @property
    def role(self) -> str:
        return "controlling" if self.ice_controlling else "controlled"

    async def get_component_candidates(
        self,
        component: int,  # noqa: ARG002
        addresses: list[str],  # noqa: ARG002
        timeout: int = 5,  # noqa: ARG002
    ) -> list[IceCandidate]:
        return await gather(self, self._settings)

    def data_received(self, data: bytes, component: int) -> None:
        if not data:
            return
        first = data[0]
        if 128 <= first <= 191:  # RFC 7983: SRTP and SRTCP
            self._on_media(data)
        elif 20 <= first <= 63 and self._queue.qsize() < MAX_WAITING_DATAGRAMS:  # DTLS
            super().data_received(data, component)

    def check_incoming(self, message: Message, addr: tuple[str, int], protocol: StunProtocol) -> None:
        """A check that the peer's password vouches for. Each new address is one more to check and to remember, so a
        peer gets only so many; and RFC 8445 section 7.1.1 wants a PRIORITY, without which aioice raises."""
        known = any((c.host, c.port) == addr for c in self._remote_candidates)
        if "PRIORITY" in message.attributes and (known or len(self._remote_candidates) < MAX_ADDRESSES):
            super().check_incoming(message, addr, protocol)

    def divert_media(self) -> None:
        """From now on media goes to us before aioice tries to read it as STUN, which costs 5 us a packet."""
        for protocol in cast(list[Any], self._protocols):
            protocol.datagram_received = self._diverted(protocol.datagram_received)

    def _diverted(self, stun: Callable[[bytes, Any], None]) -> Callable[[bytes, Any], None]:
        def received(data: bytes, addr: Any) -> None:
            if data and 128 <= data[0] <= 191:
                self._on_media(data)
            else:
                stun(data, addr)

        return received

    async def query_consent(self) -> None:
        """RFC 7675 with our interval; a request is repeated once, so that a slow path is not taken for a dead one."""
        loop = asyncio.get_running_loop()
        heard = loop.time()
        while (left := heard + self._consent_expiry_s - loop.time()) > 0:
            await asyncio.sleep(min(left, self._consent_interval_s * (0.8 + 0.4 * random.random())))
            left = heard + self._consent_expiry_s - loop.time()
            pair = self._nominated.get(1)
            if left <= 0 or pair is None or _is_closed(pair):
                break
            with contextlib.suppress(TransactionError, TimeoutError):
                async with asyncio.timeout(left):
                    await pair.protocol.request(
                        self.build_request(pair, nominate=False),
                        pair.remote_addr,
                        integrity_key=(self.remote_password or "").encode(),
                        retransmissions=1,
                    )
                heard = self.consent_at = loop.time()
        self._on_expired()

    def send_now(self, data: bytes) -> int:
        """Put one datagram on the socket of the nominated pair; raises ConnectionError without one."""
        pair = self._nominated.get(1)
        if pair is None or _is_closed(pair):
            raise ConnectionError("no nominated candidate pair")
        pair.protocol.transport.sendto(data, pair.remote_addr)
        return len(data)


def _is_closed(pair: CandidatePair) -> bool:
    # asyncio gives a socket up after an error it does not know, and then fails on every use of it; a relay's
    # transport drops what it cannot send.
    is_closing = getattr(pair.protocol.transport, "is_closing", None)
    return is_closing is not None and bool(is_closing())


def _relay_tasks(transport: Any) -> list[asyncio.Task[None]]:
    """What still talks to the TURN server of a relay that is being closed; empty for other sockets."""
    closing: asyncio.Task[None] | None = getattr(transport, "_TurnTransport__close_task", None)
    sending: set[asyncio.Task[None]] = getattr(transport, "_TurnTransport__send_tasks", set())
    return [*([closing] if closing is not None else []), *sending]


class _Sctp(RTCSctpTransport):
    """aiortc's association, for which a malformed message is not the end of the call."""

    malformed = 0

    async def _handle_data(self, data: bytes) -> None:
        try:
            await super()._handle_data(data)
        except (AssertionError, ValueError, KeyError, IndexError, struct.error):
            self.malformed += 1


class PeerTransport:
    """ICE, DTLS-SRTP and SCTP with one peer: `meet` its description, `gather`, then `connect`.

    Args:
        settings: STUN, TURN and consent.
        events: where to report; see TransportEvents.
        data: carry data channels.
        controlling: ICE role; the one who offers controls (RFC 8445 section 6.1.1).
    """

    def __init__(
        self, settings: MediaSettings, events: TransportEvents, *, data: bool, controlling: bool = False
    ) -> None:
        self._peer: Offer | None = None
        self._events = events
        self._advertised = parse_advertised(settings.advertised_addresses)
        self._ice = _Ice(settings, self._media, lambda: events.on_gone("peer vanished"))
        self._ice.ice_controlling = controlling
        self._dtls = RTCDtlsTransport(cast(Any, self._ice), [certificate()])
        self._sctp = _Sctp(self._dtls) if data else None
        self._candidates = 0
        self._closed = False
        self.rejected = 0
        """Media packets that did not authenticate, or were replayed."""

    async def meet(self, peer: Offer) -> None:
        """Take the peer's side of the transport, from its offer (or its answer, which reads the same)."""
        self._peer = peer
        self._ice.remote_username, self._ice.remote_password = peer.ufrag, peer.password
        self._ice.remote_is_lite = peer.lite
        self._ice.ice_controlling = self._ice.ice_controlling or peer.lite
        self._dtls._set_role("client" if peer.setup == "active" else "server")
        for candidate in peer.candidates:
            await self.add_candidate(candidate)

    async def gather(self) -> None:
        """Find our candidates, within a second. Raises CallRefused if there is no address or port for them."""
        await self._ice.gather_candidates()

    @property
    def ufrag(self) -> str:
        return self._ice.local_username

    @property
    def password(self) -> str:
        return self._ice.local_password

    @property
    def candidates(self) -> list[str]:
        """Ours, as SDP values, with the addresses that callers reach us by (media.advertised_addresses)."""
        return [self._offered(candidate).to_sdp() for candidate in self._ice.local_candidates]

    def _offered(self, candidate: IceCandidate) -> IceCandidate:
        # A copy: aioice binds and pairs by the address we really have.
        offered = copy(candidate)
        if candidate.type == "host":
            offered.host = describe(candidate.host, self._advertised)
        elif candidate.related_address is not None:
            offered.related_address = describe(candidate.related_address, self._advertised)
        return offered

    @property
    def fingerprints(self) -> list[tuple[str, str]]:
        """Ours; SHA-256 is the one all peers know."""
        return [
            (print_.algorithm, print_.value)
            for print_ in self._dtls.getLocalParameters().fingerprints
            if print_.algorithm == "sha-256"
        ]

    @property
    def consent_at(self) -> float:
        """When the peer last answered a consent check, on the monotonic clock; 0.0 before the first answer."""
        return self._ice.consent_at

    async def add_candidate(self, candidate: Candidate) -> None:
        """One more address of the peer; more than MAX_CANDIDATES are ignored.

        The end of candidates is not passed on: it would make ICE give up before a peer that hides its addresses (mDNS)
        has reached us by its own checks. The deadline for connecting bounds the wait instead.
        """
        if self._candidates >= MAX_CANDIDATES or self._closed:
            return
        self._candidates += 1
        await self._ice.add_remote_candidate(
            IceCandidate(
                foundation=candidate.foundation,
                component=candidate.component,
                transport="udp",
                priority=candidate.priority,
                host=candidate.address,
                port=candidate.port,
                type=candidate.kind,
            )
        )

    async def connect(self) -> None:
        """ICE, then DTLS, then SCTP. Raises ConnectionError saying which failed."""
        peer = self._peer
        if peer is None:
            raise ConnectionError("the peer's description is missing")
        await self._ice.connect()
        self._ice.divert_media()
        prints = [RTCDtlsFingerprint(algorithm=name, value=value) for name, value in peer.fingerprints]
        await self._dtls.start(RTCDtlsParameters(fingerprints=prints))
        if self._dtls.state != "connected":
            raise ConnectionError(f"DTLS {self._dtls.state}")
        self._dtls.on("statechange", self._dtls_changed)
        if self._sctp is not None:
            self._sctp.on("datachannel", self._events.on_channel)
            caps = RTCSctpCapabilities(maxMessageSize=peer.max_message_bytes)
            await self._sctp.start(caps, peer.sctp_port)

    def send(self, packet: bytes) -> int:
        """Protect and send one RTP or RTCP packet; returns the bytes on the wire, 0 if it could not be sent."""
        session = self._dtls._tx_srtp
        if session is None or self._closed:
            return 0
        try:
            return self._ice.send_now(session.protect_rtcp(packet) if is_rtcp(packet) else session.protect(packet))
        except (ConnectionError, OSError, pylibsrtp.Error):
            return 0

    async def close(self) -> None:
        """Say goodbye as far as the peer still listens, and free sockets, timers and tasks. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._dtls.remove_all_listeners()
        pump = self._dtls._task
        try:
            async with asyncio.timeout(CLOSE_S):
                if self._sctp is not None:
                    await self._sctp.stop()
                await self._dtls.stop()
        except (TimeoutError, ConnectionError, OSError) as exc:
            logger.debug("goodbye not delivered: %s", type(exc).__name__)
        finally:
            if pump is not None:
                pump.cancel()
                await asyncio.wait({pump})
            await self._release()

    async def _release(self) -> None:
        """Free the sockets; a relay whose server does not answer is left to expire."""
        protocols = list(cast(list[Any], self._ice._protocols))
        closing = asyncio.create_task(self._ice.close(), name="ice close")
        try:
            _, late = await asyncio.wait({closing}, timeout=RELEASE_S)
            if late:
                logger.info("a TURN server did not answer the goodbye")
        finally:
            # Nothing is left to cancel unless a server is dead, or whoever closes us lost patience.
            for task in [task for protocol in protocols for task in _relay_tasks(protocol.transport)]:
                task.cancel()
            await asyncio.wait({closing}, timeout=RELEASE_S)
            closing.cancel()

    def _media(self, data: bytes) -> None:
        session = self._dtls._rx_srtp
        if session is None or self._closed:
            return
        try:
            if is_rtcp(data):
                self._events.on_rtcp(session.unprotect_rtcp(data))
            else:
                self._events.on_rtp(session.unprotect(data))
        except (pylibsrtp.Error, ValueError, TypeError):
            self.rejected += 1

    def _dtls_changed(self) -> None:
        if self._dtls.state in ("closed", "failed"):
            self._events.on_gone("peer closed")
