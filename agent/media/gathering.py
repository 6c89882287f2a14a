"""Our side's ICE candidates: sockets on the chosen addresses and ports, STUN and TURN asked for at most a second.

Stock gathering takes any port of every address, waits five seconds for a dead server and keeps a refusal to itself.
Here each failure of a server is said in the log, with what to check, once a minute at most.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import random
import socket
import ssl
import struct
import time
from collections.abc import Callable
from typing import Any, cast

import ifaddr
from aioice import Candidate
from aioice.candidate import candidate_foundation, candidate_priority
from aioice.ice import Connection, StunProtocol, relayed_candidate, server_reflexive_candidate
from aioice.stun import TransactionError, TransactionFailed

from agent.config import MediaSettings
from agent.errors import CallRefused, ConfigError
from agent.media.addresses import Interface, ServerUrl, choose, parse_advertised, parse_server

__all__ = [
    "BUSY",
    "GATHER_S",
    "REFUSED",
    "Agent",
    "Complaints",
    "bind_udp",
    "check_media",
    "gather",
    "interfaces",
    "network_problem",
]

logger = logging.getLogger(__name__)

GATHER_S = 0.9
"""Longest wait for STUN and TURN servers; with all else, a call is answered within a second even if they are dead."""
MAX_PORT_TRIES = 512
"""Ports tried before a range counts as full: 4 ms of system calls at worst."""
RECEIVE_BUFFER_BYTES = 256 * 1024
DTLS_FIRST, DTLS_LAST = 20, 63
"""First bytes of DTLS datagrams (RFC 7983)."""
COMPLAIN_EVERY_S = 60.0
RETRY_AFTER_S = 5
REFUSED = (401, 403, 441)
"""Unauthorized, Forbidden, Wrong Credentials (RFC 8656 section 18.3, RFC 8489 section 14.8)."""
BUSY = (486, 508)
"""Allocation Quota Reached, Insufficient Capacity."""


class Agent(Connection):
    """An ICE agent that knows who may speak DTLS to it."""

    def admits(self, addr: tuple[str, int]) -> bool:
        """Whether `addr` is one that the peer named, or from which it proved itself by a STUN check."""
        return any(pair.remote_addr == addr for pair in self._check_list)


class PickyProtocol(StunProtocol):
    """aioice's protocol, to which strangers can say nothing.

    DTLS before the handshake's end is not authenticated: a single datagram from anywhere would break it off. And what
    the STUN parser cannot read it drops by ValueError, but by struct.error too, which would fill the log.
    """

    receiver: Agent

    def datagram_received(self, data: bytes | str, addr: tuple[Any, ...]) -> None:
        raw = cast(bytes, data)
        if raw and DTLS_FIRST <= raw[0] <= DTLS_LAST and not self.receiver.admits((addr[0], addr[1])):
            return
        try:
            super().datagram_received(data, addr)
        except struct.error:
            return


class Complaints:
    """Log lines that would come with every call, held to one a minute each.

    Args:
        warn: where they go.
        now: monotonic clock in seconds.
    """

    def __init__(self, warn: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._warn = warn
        self._now = now
        self._said: dict[str, float] = {}

    def __call__(self, text: str) -> None:
        """Say it, unless it was said less than a minute ago."""
        now = self._now()
        self._said = {known: at for known, at in self._said.items() if now - at < COMPLAIN_EVERY_S}
        if text not in self._said:
            self._said[text] = now
            self._warn(text)


complain = Complaints(logger.warning)


def interfaces() -> list[Interface]:
    """Every address of this machine that needs no scope."""
    found: list[Interface] = []
    for adapter in ifaddr.get_adapters():
        for ip in adapter.ips:
            if isinstance(ip.ip, str):
                found.append((adapter.name, ip.ip))
            elif ip.ip[2] == 0:
                found.append((adapter.name, ip.ip[0]))
    return found


def check_media(settings: MediaSettings, max_calls: int) -> None:
    """Before the first call: whether this machine has what the settings name. Raises ConfigError saying what it has."""
    have = interfaces()
    listed = ", ".join(f"{name} {address}" for name, address in have) or "none"
    for entry in settings.interfaces:
        if not choose(have, (entry,)):
            raise ConfigError(f"media.interfaces: nothing here matches {entry!r}; this machine has {listed}")
    own = {address for _, address in have}
    for address in parse_advertised(settings.advertised_addresses):
        if address not in ("4", "6") and address not in own:
            raise ConfigError(
                f"media.advertised_addresses: {address} is not an address of this machine, it has {listed}"
            )
    if settings.udp_port_min is not None and settings.udp_port_max is not None:
        ports = settings.udp_port_max - settings.udp_port_min + 1
        if ports < max_calls:
            logger.warning(
                "media.udp_port_min to udp_port_max are %d ports, fewer than server.max_calls (%d): "
                "a call takes one on each address, so calls beyond that are refused",
                ports,
                max_calls,
            )


async def gather(agent: Agent, settings: MediaSettings) -> list[Candidate]:
    """Bind, then ask the named servers together. The agent owns every socket as soon as it is open.

    Raises CallRefused when the port range is used up, no chosen address can be bound, or `ice_policy` asks for a relay
    and there is none.
    """
    # Through a relay only: what is not bound cannot be paired, offered or found by anybody.
    hosts = await _bind_all(agent, settings) if settings.ice_policy == "all" else []
    candidates = [protocol.local_candidate for protocol in hosts]
    asking: dict[asyncio.Task[Candidate], Callable[[BaseException | None], str]] = {}
    for url in settings.stun_servers:
        server = parse_server(url, turn=False)
        for protocol in hosts:
            if ":" not in protocol.local_candidate.host:  # aioice asks over IPv4 only
                task = asyncio.create_task(_ask_stun(protocol, server), name="ice-stun")
                asking[task] = lambda exc, server=server: _stun_problem(server, exc)  # type: ignore[misc]
    if settings.turn_server is not None:
        server = parse_server(settings.turn_server, turn=True)
        task = asyncio.create_task(_ask_turn(agent, server, settings), name="ice-turn")
        asking[task] = lambda exc, server=server: _turn_problem(server, exc)  # type: ignore[misc]
    if not asking:
        return candidates
    try:
        await asyncio.wait(asking, timeout=GATHER_S)
    finally:
        for task in asking:
            task.cancel()
    await asyncio.wait(asking)
    for task, problem in asking.items():
        if task.cancelled():
            complain(problem(None))
        elif (exc := task.exception()) is not None:
            complain(problem(exc))
        elif task.result() not in candidates:
            candidates.append(task.result())
    if not candidates:
        raise CallRefused(
            "the relay that all media is to go through (media.ice_policy) gave no address; the log says why",
            retry_after_s=RETRY_AFTER_S,
        )
    return candidates


# --- sockets


async def _bind_all(agent: Agent, settings: MediaSettings) -> list[StunProtocol]:
    addresses = choose(interfaces(), settings.interfaces)
    full = False
    hosts: list[StunProtocol] = []
    for address in addresses:
        try:
            sock = bind_udp(address, settings.udp_port_min, settings.udp_port_max)
        except OSError as exc:
            full = full or exc.errno == errno.EADDRINUSE
            complain(f"media cannot use {address}: {exc.strerror}")
            continue
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_datagram_endpoint(lambda: PickyProtocol(agent), sock=sock)
        agent._protocols.append(protocol)
        host, port = sock.getsockname()[:2]
        protocol.local_candidate = Candidate(
            foundation=candidate_foundation("host", "udp", host),
            component=1,
            transport="udp",
            priority=candidate_priority(1, "host"),
            host=host,
            port=port,
            type="host",
        )
        hosts.append(protocol)
    if hosts:
        return hosts
    if full and settings.udp_port_min is not None:
        raise CallRefused(
            f"all UDP ports from {settings.udp_port_min} to {settings.udp_port_max} are in use "
            "(media.udp_port_min, media.udp_port_max)",
            retry_after_s=RETRY_AFTER_S,
        )
    wanted = f" of media.interfaces ({', '.join(settings.interfaces)})" if settings.interfaces else ""
    raise CallRefused(f"no local network address{wanted} could be bound", retry_after_s=RETRY_AFTER_S)


def bind_udp(address: str, low: int | None, high: int | None) -> socket.socket:
    """A UDP socket on this address and a port of the range. Raises OSError; EADDRINUSE when none is free."""
    sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        if low is None or high is None:
            sock.bind((address, 0))
            return sock
        count = high - low + 1
        # From a random port on, so that a port just left by one call is not at once another's (late packets).
        first = random.randrange(count)
        for step in range(min(count, MAX_PORT_TRIES)):
            try:
                sock.bind((address, low + (first + step) % count))
            except OSError as exc:
                if exc.errno != errno.EADDRINUSE:
                    raise
            else:
                return sock
        raise OSError(errno.EADDRINUSE, "no free port in the range")
    except BaseException:
        sock.close()
        raise


# --- servers


async def _ask_stun(protocol: StunProtocol, server: ServerUrl) -> Candidate:
    candidate, _ = await server_reflexive_candidate(protocol, (server.host, server.port))
    return candidate


async def _ask_turn(agent: Agent, server: ServerUrl, settings: MediaSettings) -> Candidate:
    secret = settings.turn_password
    candidate, protocol = await relayed_candidate(
        component=1,
        hide_related_address=False,
        protocol_factory=lambda: PickyProtocol(agent),
        turn_server=(server.host, server.port),
        turn_username=settings.turn_username,
        turn_password=secret.get_secret_value() if secret else None,
        turn_ssl=server.tls,
        turn_transport=server.transport,
    )
    agent._protocols.append(protocol)
    return candidate


def _stun_problem(server: ServerUrl, exc: BaseException | None) -> str:
    return f"STUN server {server} {network_problem(exc)}: check media.stun_servers. Calls go on without it."


def _turn_problem(server: ServerUrl, exc: BaseException | None) -> str:
    code, reason = 0, ""
    if isinstance(exc, TransactionFailed) and "ERROR-CODE" in exc.response.attributes:
        code, reason = exc.response.attributes["ERROR-CODE"]
    name = f"TURN server {server}"
    if code in REFUSED:
        return (
            f"{name} refused the credentials ({code} {reason}): check media.turn_username and "
            "REJOINDER_MEDIA__TURN_PASSWORD, or REJOINDER_TURN__SECRET if that makes them; a time-limited username may "
            "have expired. Calls go on without a relay."
        )
    if code in BUSY:
        return f"{name} has no room ({code} {reason}): check its quotas. Calls go on without a relay."
    if code:
        return f"{name} answered {code} {reason}: check media.turn_server. Calls go on without a relay."
    return f"{name} {network_problem(exc)}: check media.turn_server and the firewall. Calls go on without a relay."


def network_problem(exc: BaseException | None, within_s: float = GATHER_S) -> str:
    """What became of a server that gave no answer, as the end of a sentence; None: it was given up."""
    match exc:
        case None | TimeoutError() | TransactionError():
            return f"did not answer within {within_s:g} s"
        case ssl.SSLCertVerificationError():
            return "has a certificate that is not trusted (SSL_CERT_FILE names another authority)"
        case socket.gaierror():
            return "has a name that cannot be resolved"
        case OSError():
            return f"cannot be reached ({exc.strerror or type(exc).__name__})"
    return f"gave an answer that is not understood ({type(exc).__name__})"
