"""The links over gRPC, by unix socket or TCP: one bidirectional stream a pair of processes, all calls in it.

A request of the stream is a batch of messages (`agent.core.codec`), not protobuf: gRPC's generic handlers carry bytes.
Frames of all calls leave together once a tick. HTTP/2's flow control is no back-pressure for audio (minutes of it were
seen to queue before a slow reader), so windows are small and credits rule; what does not fit waits in the bounded
outbox.

A dead host is noticed twice. Its kernel acknowledges nothing: TCP_USER_TIMEOUT (tcp(7)), which gRPC sets to the
keepalive timeout, ends the connection that long after the first unanswered byte, and a link that is quiet sends a
heartbeat every quarter of a second (measured with a link set down: 0.41 and 0.65 s). Where something between still
acknowledges (a proxy), HTTP/2 pings find out; gRPC sends them no oftener than once a second. Both sides need matching
options: a server with gRPC's defaults takes such pings for an attack and cuts quiet calls.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent.core.codec import MAX_BATCH_BYTES, decode_batch, join_batch
from agent.core.health import health_handler
from agent.core.link import SILENCE_S, Link, LinkState
from agent.core.sockets import claim_path, claim_port, remove_socket
from agent.core.tls import TlsFiles
from agent.errors import CoreLost, EnvironmentFault, ProtocolError

# What it has to say comes as an error with the right words from here; its own lines would stand beside them.
os.environ.setdefault("GRPC_VERBOSITY", "NONE")

try:
    import grpc
    import grpc.aio
except ImportError as exc:
    raise EnvironmentFault("links over gRPC need grpcio: pip install 'rejoinder[core]', or use shm: links") from exc

__all__ = ["GrpcLink", "GrpcServer", "connect_grpc"]

SERVICE = "rejoinder.core.v1.Core"
METHOD = "Link"

BATCH_S = 0.015
"""Below the tick's 20 ms, so that a tick which comes a little early is not held up."""

KEEPALIVE_MS = 1000
"""gRPC 1.85 takes anything below for this."""

KEEPALIVE_TIMEOUT_MS = 400
"""For the kernel of a dead host: with a heartbeat each 250 ms it is noticed after 400 to 700 ms."""

PING_TIMEOUT_MS = 2000
"""For a process: one that has too little CPU must not be taken for dead."""

MAX_STREAMS = 16
"""HTTP/2 streams of a connection: one link, health checks, and an edge that has just come back."""

LOOKAHEAD_BYTES = 64 * 1024
"""A hundred calls' audio of one tick."""

DRAIN_S = 0.5
"""What was written last may take so long to leave when a link is closed."""

CONNECT_DEADLINE_S = 3.0
STOP_GRACE_S = 0.5

_COMMON: list[tuple[str, int]] = [
    ("grpc.keepalive_time_ms", KEEPALIVE_MS),
    ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    # Without it an unanswered ping is waited for a minute.
    ("grpc.http2.ping_timeout_ms", PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.http2.bdp_probe", 0),
    ("grpc.http2.lookahead_bytes", LOOKAHEAD_BYTES),
    ("grpc.max_receive_message_length", MAX_BATCH_BYTES + 1024),
    ("grpc.max_send_message_length", MAX_BATCH_BYTES + 1024),
]
_SERVER = [
    *_COMMON,
    ("grpc.http2.min_recv_ping_interval_without_data_ms", KEEPALIVE_MS // 2),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.max_concurrent_streams", MAX_STREAMS),
    # Two cores on one port would share its edges by chance.
    ("grpc.so_reuseport", 0),
]
_CLIENT = [
    *_COMMON,
    # Each link has a connection of its own: one that another link still has says nothing of a core that was killed.
    ("grpc.use_local_subchannel_pool", 1),
    # An edge reconnects itself, at its own pace.
    ("grpc.enable_retries", 0),
    # No proxy of the environment stands between an edge and its core.
    ("grpc.enable_http_proxy", 0),
]

log = logging.getLogger(__name__)


class GrpcLink(Link):
    """One end of the stream.

    Args:
        name: see Link.
        read: the next batch; None or gRPC's EOF at the end.
        write: sends one; returns when gRPC has taken it.
        finish: ends the stream.
    """

    def __init__(
        self,
        name: str,
        read: Callable[[], Awaitable[Any]],
        write: Callable[[bytes], Awaitable[None]],
        finish: Callable[[], Awaitable[None]],
        *,
        silence_s: float = SILENCE_S,
    ) -> None:
        super().__init__(name, batch_s=BATCH_S, silence_s=silence_s)
        self._read = read
        self._write = write
        self._finish = finish
        self._news = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self.ended = asyncio.Event()
        """Set when the link has been shut."""
        self._tasks = [
            asyncio.create_task(self._read_all(), name=f"{name} reader"),
            asyncio.create_task(self._write_all(), name=f"{name} writer"),
        ]

    def _transmit(self) -> None:
        self._idle.clear()
        self._news.set()

    async def _write_all(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._waiting():
                    await self._write(join_batch(self._take()))
                if not self._news.is_set():
                    self._idle.set()
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as exc:
            self._fail(f"cannot send ({_told(exc)})")
        finally:
            self._idle.set()

    async def _read_all(self) -> None:
        try:
            while True:
                batch = await self._read()
                if batch is None or batch is grpc.aio.EOF:
                    self._fail("the other side ended the stream")
                    return
                try:
                    messages = decode_batch(batch)
                except ProtocolError as exc:
                    self._fail_protocol(exc)
                    return
                self._received_messages(messages)
        except (grpc.RpcError, grpc.aio.UsageError, asyncio.InvalidStateError) as exc:
            self._fail(_told(exc))

    async def _drain(self) -> None:
        try:
            async with asyncio.timeout(DRAIN_S):
                await self._idle.wait()
        except TimeoutError:
            log.debug("what was sent last did not leave", extra={"link": self.name})

    def _break(self) -> None:
        for task in self._tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async def _shut(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._finish()


class GrpcServer:
    """The core's side: an async context manager. Serves links and the health service of gRPC.

    Args:
        address: `unix:/path` or `host:port` as gRPC wants it; port 0 takes a free one, see `port`.
        on_link: called with each new link, not yet greeted; the callee owns it.
        serving: whether a health check is answered with SERVING, by service name ("" is the whole core, or a shard).
        tls: certificates; none for a plain connection.

    Raises:
        EnvironmentFault: the address cannot be listened on.
        ConfigError: a certificate is unusable.
    """

    def __init__(
        self,
        address: str,
        on_link: Callable[[Link], None],
        serving: Callable[[str], bool | None],
        *,
        tls: TlsFiles | None = None,
        silence_s: float = SILENCE_S,
    ) -> None:
        self.address = address
        self.port = 0
        self._on_link = on_link
        self._serving = serving
        self._tls = tls if tls is not None else TlsFiles()
        self._silence_s = silence_s
        self._server: Any = None
        self._links: set[GrpcLink] = set()

    @property
    def _path(self) -> Path | None:
        return Path(self.address.removeprefix("unix:")) if self.address.startswith("unix:") else None

    async def __aenter__(self) -> Self:
        if self._path is not None:
            claim_path(self._path)
        else:
            await claim_port(self.address)
        server = grpc.aio.server(options=_SERVER)
        methods = {
            METHOD: grpc.stream_stream_rpc_method_handler(self._serve),
        }
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, methods), health_handler(grpc, self._serving))
        )
        try:
            if self._tls.given:
                ca, key, certificate = self._tls.read(core=True)
                credentials = grpc.ssl_server_credentials(
                    [(key, certificate)], root_certificates=ca, require_client_auth=ca is not None
                )
                self.port = server.add_secure_port(self.address, credentials)
            else:
                self.port = server.add_insecure_port(self.address)
        except RuntimeError as exc:
            raise EnvironmentFault(f"cannot listen on {self.address}; set core.listen to another address") from exc
        if self._path is not None:
            self._path.chmod(0o600)
        await server.start()
        self._server = server
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for link in tuple(self._links):
            await link.close()
        if self._server is not None:
            await self._server.stop(STOP_GRACE_S)
            self._server = None
        if self._path is not None:
            remove_socket(self._path)

    async def _serve(self, _requests: Any, context: Any) -> None:
        async def finish() -> None:
            """The handler's return ends the stream."""

        link = GrpcLink(f"grpc:{context.peer()}", context.read, context.write, finish, silence_s=self._silence_s)
        self._links.add(link)
        try:
            self._on_link(link)
            await link.ended.wait()
        finally:
            self._links.discard(link)
            # The edge is gone and gRPC cancels its handlers: whoever owns the link must hear of it.
            if link.state not in (LinkState.CLOSED, LinkState.LOST):
                link._fail("the edge ended the stream")


async def connect_grpc(
    address: str,
    *,
    tls: TlsFiles | None = None,
    silence_s: float = SILENCE_S,
    deadline_s: float = CONNECT_DEADLINE_S,
) -> GrpcLink:
    """The edge's side. Not yet greeted.

    Args:
        address: `unix:/path` or `host:port`.

    Raises:
        CoreLost: nobody answers there within `deadline_s`, or the certificates do not fit.
        ConfigError: a certificate of ours is unusable.
    """
    options: list[tuple[str, Any]] = list(_CLIENT)
    if tls is not None and tls.given:
        ca, key, certificate = tls.read(core=False)
        if tls.server_name:
            options.append(("grpc.ssl_target_name_override", tls.server_name))
        credentials = grpc.ssl_channel_credentials(ca, key, certificate)
        channel = grpc.aio.secure_channel(address, credentials, options=options)
    else:
        channel = grpc.aio.insecure_channel(address, options=options)
    try:
        async with asyncio.timeout(deadline_s):
            await _ready(channel, address)
    except TimeoutError:
        await channel.close()
        raise CoreLost(f"grpc:{address}: no core answers there") from None
    except BaseException:
        await channel.close()
        raise
    call = channel.stream_stream(f"/{SERVICE}/{METHOD}")()

    async def finish() -> None:
        call.cancel()
        await channel.close()

    return GrpcLink(f"grpc:{address}", call.read, call.write, finish, silence_s=silence_s)


async def _ready(channel: Any, address: str) -> None:
    """Wait for the first attempt to connect, not for those that gRPC would make after it failed."""
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state in (grpc.ChannelConnectivity.TRANSIENT_FAILURE, grpc.ChannelConnectivity.SHUTDOWN):
            raise CoreLost(f"grpc:{address}: no core answers there, or the certificates do not fit")
        await channel.wait_for_state_change(state)
        state = channel.get_state()


def _told(exc: BaseException) -> str:
    """What gRPC says of an error, in a line."""
    code = getattr(exc, "code", None)
    if code is None:
        return type(exc).__name__
    status = code()
    details = getattr(exc, "details", lambda: "")() or ""
    return f"{getattr(status, 'name', status)}: {details.splitlines()[0] if details else 'no details'}"
