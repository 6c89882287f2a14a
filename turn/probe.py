"""Does a relayed path work? An allocation, a packet through it to this machine, and the answer back through it.

The packet takes the way of a call: from a caller's TURN client over the relay to an address that the media server
offers, on a port that it uses. So this finds a wrong secret, a closed port, a certificate that nobody trusts, a relay
that may not reach the media server, and a firewall between the two. It is to be run on the media server.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from aioice.stun import TransactionError, TransactionFailed
from aioice.turn import TurnTransport, create_turn_endpoint

from agent.config import MediaSettings
from agent.errors import RejoinderError
from agent.media.addresses import ServerUrl, choose, describe, parse_advertised
from agent.media.gathering import BUSY, REFUSED, bind_udp, interfaces, network_problem
from turn.credentials import Credentials

__all__ = ["Finding", "Peer", "peers_of", "probe"]

ALLOCATE_S = 5.0
"""TCP, TLS and two round trips of TURN, on a bad network."""
PASS_S = 3.0
"""For a packet there and back, sent again each `RESEND_S`."""
RESEND_S = 0.3
CLOSE_S = 1.0
MAX_PEERS = 4
FORBIDDEN = 403


@dataclass(frozen=True, slots=True)
class Peer:
    """An address of this machine, and what callers are told that it is."""

    own: str
    offered: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of one URL: `found` is a sentence, `fix` what to do unless `works`."""

    transport: Literal["UDP", "TCP", "TLS"]
    works: bool
    found: str
    fix: str = ""


class _NoPath(RejoinderError):
    def __init__(self, found: str, fix: str) -> None:
        super().__init__(found)
        self.fix = fix


def peers_of(media: MediaSettings) -> list[Peer]:
    """The IPv4 addresses that calls use, as many as are worth trying (TURN allocations are of IPv4 by default)."""
    advertised = parse_advertised(media.advertised_addresses)
    found = [Peer(own, describe(own, advertised)) for own in choose(interfaces(), media.interfaces) if ":" not in own]
    return found[:MAX_PEERS]


async def probe(server: ServerUrl, credentials: Credentials, peers: Sequence[Peer], media: MediaSettings) -> Finding:
    """Try one URL. Never raises for what a network may do; ends within `ALLOCATE_S` and `PASS_S` a peer."""
    kind: Literal["UDP", "TCP", "TLS"] = "TLS" if server.tls else ("TCP" if server.transport == "tcp" else "UDP")
    try:
        transport, client = await _allocate(server, credentials)
    except _NoPath as exc:
        return Finding(kind, False, str(exc), exc.fix)
    relayed = "{}:{}".format(*transport.get_extra_info("sockname")[:2])
    try:
        failure = _NoPath("no IPv4 address of this machine is used for media", "check media.interfaces")
        for peer in peers:
            try:
                took_s = await _there_and_back(transport, client, peer, media)
            except _NoPath as exc:
                failure = exc
            else:
                found = f"a packet went over {relayed} to {peer.offered} and back in {took_s * 1000:.1f} ms"
                return Finding(kind, True, found)
        return Finding(kind, False, f"allocated {relayed}, but {failure}", failure.fix)
    finally:
        await _release(transport, client)


class _Client(asyncio.DatagramProtocol):
    """The caller's side of the allocation."""

    def __init__(self) -> None:
        self.received: asyncio.Queue[bytes] = asyncio.Queue(16)
        self.error: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self.lost = asyncio.Event()

    def datagram_received(self, data: bytes, _addr: Any) -> None:
        if not self.received.full():
            self.received.put_nowait(data)

    def error_received(self, exc: Exception) -> None:
        if not self.error.done():
            self.error.set_result(exc)

    def connection_lost(self, _exc: Exception | None) -> None:
        self.lost.set()


class _Echo(asyncio.DatagramProtocol):
    """The media server's side: what carries the token goes back to where it came from."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.heard = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: Any) -> None:
        if data == self._token:
            self.heard = True
            self._transport.sendto(data[::-1], addr)


async def _allocate(server: ServerUrl, credentials: Credentials) -> tuple[TurnTransport, _Client]:
    try:
        async with asyncio.timeout(ALLOCATE_S):
            return await create_turn_endpoint(
                _Client,
                server_addr=(server.host, server.port),
                username=credentials.username,
                password=credentials.password,
                ssl=True if server.tls else None,
                transport=server.transport,
            )
    except TransactionFailed as exc:
        code, reason = exc.response.attributes.get("ERROR-CODE", (0, "no reason given"))
        if code in REFUSED:
            fix = "give relay and server the same REJOINDER_TURN__SECRET and set both clocks"
            raise _NoPath(f"the relay refused the credentials ({code} {reason})", fix) from exc
        if code in BUSY:
            raise _NoPath(f"the relay has no room ({code} {reason})", "raise its quotas (turn.total_quota)") from exc
        raise _NoPath(f"the relay answered {code} {reason}", "read the relay's log") from exc
    except (TransactionError, OSError) as exc:  # TimeoutError and ssl.SSLError are OSErrors
        fix = "check the address, that the relay runs (rejoinder turn), and the firewall"
        raise _NoPath(f"the relay {network_problem(exc, ALLOCATE_S)}", fix) from exc


async def _there_and_back(transport: TurnTransport, client: _Client, peer: Peer, media: MediaSettings) -> float:
    """Seconds that a packet took. Raises _NoPath."""
    token = secrets.token_bytes(16)
    loop = asyncio.get_running_loop()
    try:
        sock = bind_udp(peer.own, media.udp_port_min, media.udp_port_max)
    except OSError as exc:
        raise _NoPath(f"{peer.own} cannot be bound: {exc.strerror}", "stop the server, or widen its ports") from exc
    own, echo = await loop.create_datagram_endpoint(lambda: _Echo(token), sock=sock)
    target = (peer.offered, sock.getsockname()[1])
    client.error = loop.create_future()
    try:
        async with asyncio.timeout(PASS_S):
            while True:
                sent_at = time.monotonic()
                transport.sendto(token, target)
                if await _answer(client, token[::-1], RESEND_S):
                    return time.monotonic() - sent_at
                if client.error.done():
                    raise client.error.result()
    except TransactionFailed as exc:
        code, reason = exc.response.attributes.get("ERROR-CODE", (0, "no reason given"))
        if code == FORBIDDEN:
            found = f"it may not send to this machine's address {peer.offered} ({code} {reason})"
            raise _NoPath(found, _allow(peer)) from exc
        raise _NoPath(f"it will not send to {peer.offered} ({code} {reason})", "read the relay's log") from exc
    except (TransactionError, OSError) as exc:
        where = f"{peer.offered}, UDP port {target[1]}"
        if echo.heard:
            raise _NoPath(
                f"what {where} answers does not come back", "let UDP from here to the relay's ports through"
            ) from exc
        fix = "let UDP from the relay to the media ports through; check media.advertised_addresses"
        raise _NoPath(f"nothing arrives at {where}", fix) from exc
    finally:
        own.close()


def _allow(peer: Peer) -> str:
    text = f'if calls are taken here, add "{peer.offered}" to turn.allowed_peers of the relay'
    # A relay behind the same NAT knows itself by its own address (turn.external_address).
    return text if peer.own == peer.offered else f'{text} ("{peer.own}" where the relay runs on this machine)'


async def _answer(client: _Client, expected: bytes, within_s: float) -> bool:
    """True once `expected` came; False when it did not in time, or sending failed."""
    receiving = asyncio.ensure_future(client.received.get())
    try:
        await asyncio.wait((receiving, client.error), timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        return receiving.done() and receiving.result() == expected
    finally:
        receiving.cancel()


async def _release(transport: TurnTransport, client: _Client) -> None:
    transport.close()
    try:
        async with asyncio.timeout(CLOSE_S):
            await client.lost.wait()
    except TimeoutError:
        return  # The relay lets go of it by itself when its time is over.
