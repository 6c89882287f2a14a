"""Calls over Asterisk's AudioSocket: a TCP door of its own, and POST /v1/audiosocket, which announces a call to it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import socket
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import hdrs, web

from agent.errors import CallRefused, EnvironmentFault, ProtocolError
from signaling.bridges.announced import Announced, Announcement
from signaling.bridges.audiosocket_messages import (
    DEFAULT_RATE_HZ,
    HANGUP,
    AudioSocketDialect,
    AudioSocketParser,
    Frame,
    call_uuid,
    frame_bytes,
    rate_of,
)
from signaling.bridges.parameters import Told, take_parameters, telephone_session
from signaling.guards import bearer_token
from signaling.stream_host import StreamHost
from signaling.streaming import StreamedCall
from signaling.tokens import Claims, Verifier
from signaling.websocket import limit_buffers

__all__ = ["AudioSocketDoor", "AudioSocketWire"]

UUID_TIMEOUT_S = 5.0
"""Asterisk writes it right after it has connected."""

FIRST_AUDIO_S = 1.0
"""How long the rate of the call is waited for; Asterisk sends audio as soon as the channel has any."""

CLOSE_TIMEOUT_S = 2.0
READ_BYTES = 4096
MAX_EARLY = 16
"""Keys that were pressed before any audio came."""

MAX_STRANGERS = 64
"""Connections that have not said which call they are."""

ANYONE = Claims(subject="audiosocket", expires_at=0, token_id="")
"""Whose calls they are that come without an announcement."""

logger = logging.getLogger(__name__)


class AudioSocketWire:
    """Implements Wire: whole messages over TCP."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._parser = AudioSocketParser()
        self._frames: deque[Frame] = deque()

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        return self._writer.transport

    async def next_frame(self) -> Frame | None:
        """The next message, None at the end of the stream; raises ProtocolError on what is none."""
        while not self._frames:
            try:
                data = await self._reader.read(READ_BYTES)
            except ConnectionError:
                return None
            if not data:
                return None
            self._frames.extend(self._parser.feed(data))
        return self._frames.popleft()

    def put_back(self, frames: list[Frame]) -> None:
        """Read them again, in their order."""
        self._frames.extendleft(reversed(frames))

    async def receive(self) -> bytes | None:
        frame = await self.next_frame()
        return None if frame is None else frame_bytes(frame.kind, frame.payload)

    async def send(self, item: bytes | str) -> None:
        """Text is not for the wire: it only marks where queued audio was dropped."""
        if isinstance(item, bytes):
            self._writer.write(item)
            await self._writer.drain()

    async def probe(self) -> None:
        """There is no message that asks; TCP keep-alive does."""

    async def tell(self, error: CallRefused | ProtocolError) -> None:
        """Asterisk has no use for our errors, so that the log is where it is told."""
        logger.info("an AudioSocket call was refused: %s", error)

    async def close(self, error: CallRefused | ProtocolError | None = None) -> None:  # noqa: ARG002
        """Hang up and close, or abort when the other side does not read."""
        transport = self._writer.transport
        if not transport.is_closing():
            self._writer.write(frame_bytes(HANGUP))
            self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        except (TimeoutError, ConnectionError):
            transport.abort()


class AudioSocketDoor:
    """The listening socket and the announcements."""

    def __init__(self, host: StreamHost, verifier: Verifier) -> None:
        self._host = host
        self._verifier = verifier
        self._settings = host.agent.settings.bridges
        self._sources = [ipaddress.ip_network(entry) for entry in self._settings.audiosocket_sources]
        self._announced = Announced()
        self._strangers = 0
        self._connections: set[asyncio.Task[None]] = set()
        self.port = 0
        """Where it listens, once it does."""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """Take connections; on the way out the calls are over already, what is left is cut off.

        Raises EnvironmentFault when the address cannot be bound.
        """
        host, port = self._settings.audiosocket_host, self._settings.audiosocket_port
        try:
            server = await asyncio.start_server(self._connected, host, port, limit=READ_BYTES)
        except OSError as exc:
            raise EnvironmentFault(
                f"bridges.audiosocket_port: cannot listen on {host}:{port}: {exc.strerror or type(exc).__name__}"
            ) from exc
        self.port = server.sockets[0].getsockname()[1]
        logger.info("listening for AudioSocket", extra={"host": host, "port": self.port})
        try:
            yield
        finally:
            server.close()
            tasks = list(self._connections)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def announce(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/audiosocket: 201 with the UUID for one call, as plain text, which a dialplan can use as it is.

        `caller`, `language` and the names of `bridges.parameters` may be in the query.
        """
        claims = self._verifier.verify(bearer_token(request))
        told = take_parameters(request.query, self._settings.parameters, "query")
        made = self._announced.announce(Announcement(claims, told), time.monotonic())
        return web.Response(status=201, text=str(made), headers={hdrs.CACHE_CONTROL: "no-store"})

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        wire = AudioSocketWire(reader, writer)
        try:
            if self._may_enter(writer):
                assert isinstance(writer.transport, asyncio.Transport)
                limit_buffers(writer.transport)
                _keep_alive(writer)
                await self._serve(wire)
        except (CallRefused, ProtocolError) as error:
            await wire.tell(error)
        except Exception as error:
            self._host.agent.metrics.error("signaling", error)
            logger.exception("an AudioSocket connection failed")
        finally:
            self._connections.discard(task)
            await wire.close()

    def _may_enter(self, writer: asyncio.StreamWriter) -> bool:
        address = ipaddress.ip_address(writer.get_extra_info("peername")[0].partition("%")[0])
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        if not any(address.version == network.version and address in network for network in self._sources):
            logger.info("an AudioSocket connection came from an address that bridges.audiosocket_sources lacks")
            return False
        if self._strangers >= MAX_STRANGERS:
            logger.warning("too many AudioSocket connections have not said which call they are")
            return False
        return True

    async def _serve(self, wire: AudioSocketWire) -> None:
        self._strangers += 1
        try:
            call = await _await_uuid(wire)
            announcement = self._admit(call)
            rate_hz = await _await_rate(wire)
        finally:
            self._strangers -= 1
        session = telephone_session(announcement.told, self._host.agent.settings.asr.language)
        stream = StreamedCall(wire, AudioSocketDialect(rate_hz), rate_hz, leaves_on_transfer=True)
        await self._host.carry(stream, rate_hz, announcement.claims, session)

    def _admit(self, call: uuid.UUID) -> Announcement:
        announcement = self._announced.take(call, time.monotonic())
        if announcement is not None:
            return announcement
        if self._settings.audiosocket_calls == "any":
            return Announcement(ANYONE, Told())
        raise ProtocolError(
            "payload: this UUID was not announced (POST /v1/audiosocket)", field="payload", code="unauthorized"
        )


async def _await_uuid(wire: AudioSocketWire) -> uuid.UUID:
    try:
        async with asyncio.timeout(UUID_TIMEOUT_S):
            frame = await wire.next_frame()
    except TimeoutError as exc:
        raise ProtocolError(
            f"type: expected the UUID (0x01) within {UUID_TIMEOUT_S:.0f} s", field="type", code="uuid_missing"
        ) from exc
    if frame is None:
        raise ProtocolError("type: the connection closed before the UUID", field="type", code="uuid_missing")
    return call_uuid(frame)


async def _await_rate(wire: AudioSocketWire) -> int:
    """The rate of the first audio; that of the application when none comes, since the greeting must not wait for it."""
    early: list[Frame] = []
    rate_hz: int | None = None
    try:
        async with asyncio.timeout(FIRST_AUDIO_S):
            while rate_hz is None and len(early) < MAX_EARLY and (frame := await wire.next_frame()) is not None:
                early.append(frame)
                rate_hz = rate_of(frame)
    except TimeoutError:
        logger.debug("no audio came, the rate is taken to be %d Hz", DEFAULT_RATE_HZ)
    wire.put_back(early)
    return rate_hz or DEFAULT_RATE_HZ


def _keep_alive(writer: asyncio.StreamWriter) -> None:
    sock = writer.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
