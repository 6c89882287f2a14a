"""Which link an address means: opens one, or listens for them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from agent.core.address import CoreAddress, Transport
from agent.core.link import SILENCE_S, Link
from agent.core.shm import RingPlace, ShmServer, connect_shm
from agent.core.tls import TlsFiles
from agent.errors import ConfigError

__all__ = ["LinkOptions", "connect", "listening"]


@dataclass(frozen=True, slots=True)
class LinkOptions:
    """What the transports can be told."""

    tls: TlsFiles = field(default_factory=TlsFiles)
    place: RingPlace = field(default_factory=RingPlace)
    silence_s: float = SILENCE_S


async def connect(address: CoreAddress, options: LinkOptions) -> Link:
    """The edge's end of a new link, not yet greeted.

    Raises:
        CoreLost: nobody answers there.
        EnvironmentFault, ConfigError: what must be mended first.
    """
    match address.transport:
        case Transport.SHM:
            assert address.path is not None
            return await connect_shm(address.path, silence_s=options.silence_s)
        case Transport.GRPC_UNIX | Transport.GRPC_TCP:
            # Imported when chosen: grpcio may not be installed.
            from agent.core.grpclink import connect_grpc

            return await connect_grpc(address.target, tls=_tls(address, options), silence_s=options.silence_s)
        case Transport.INPROC:
            raise ConfigError("core.url: inproc: is for a core within the same program; leave core.url empty instead")


@asynccontextmanager
async def listening(
    address: CoreAddress,
    options: LinkOptions,
    on_link: Callable[[Link], None],
    serving: Callable[[str], bool | None],
) -> AsyncIterator[CoreAddress]:
    """Listen for edges; yields the real address (a port of 0 is replaced).

    Args:
        on_link: called with each new link, not yet greeted; the callee owns it.
        serving: answers gRPC health checks; see `GrpcServer`.

    Raises EnvironmentFault and ConfigError: what must be mended first.
    """
    match address.transport:
        case Transport.SHM:
            assert address.path is not None
            async with ShmServer(address.path, options.place, on_link, silence_s=options.silence_s):
                yield address
        case Transport.GRPC_UNIX | Transport.GRPC_TCP:
            from agent.core.grpclink import GrpcServer

            tls = _tls(address, options)
            server = GrpcServer(address.target, on_link, serving, tls=tls, silence_s=options.silence_s)
            async with server:
                port = server.port if address.transport is Transport.GRPC_TCP else 0
                yield CoreAddress(address.transport, address.path, address.host, port)
        case Transport.INPROC:
            raise ConfigError("core.listen: nobody can reach inproc: from outside")


def _tls(address: CoreAddress, options: LinkOptions) -> TlsFiles | None:
    """Certificates are for what may leave the machine; a unix socket has its file's permissions."""
    return options.tls if address.transport is Transport.GRPC_TCP else None
