"""Addresses that a core listens on: a path left by one that was killed is taken, one in use is not."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from pathlib import Path

from agent.errors import EnvironmentFault

__all__ = ["bind_unix", "claim_path", "claim_port", "remove_socket"]

MAX_PATH_BYTES = 107
"""sun_path of unix(7), without its final zero."""

BACKLOG = 16


def claim_path(path: Path) -> None:
    """Make sure that `path` is free for a socket; removes one that nobody listens on.

    Raises EnvironmentFault: somebody listens there, it is no socket, or the path is too long.
    """
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise EnvironmentFault(f"{path}: a socket's path has at most {MAX_PATH_BYTES} bytes; choose a shorter one")
    if not path.parent.is_dir():
        raise EnvironmentFault(f"{path}: there is no folder {path.parent}; make it, or set core.listen to another path")
    if not path.exists():
        return
    if not path.is_socket():
        raise EnvironmentFault(f"{path} is there and no socket; remove it, or set core.listen to another path")
    for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET):
        with socket.socket(socket.AF_UNIX, kind) as probe:
            probe.settimeout(1.0)
            try:
                probe.connect(str(path))
            except OSError as exc:
                # EPROTOTYPE: somebody listens with the other kind; the other probe finds out.
                if exc.errno in (errno.ECONNREFUSED, errno.EPROTOTYPE):
                    continue
                raise EnvironmentFault(f"{path}: {exc.strerror or exc}") from exc
            raise EnvironmentFault(f"{path} is taken by another core: stop it, or set core.listen to another path")
    remove_socket(path)


async def claim_port(address: str) -> None:
    """Make sure that `address`, HOST:PORT, can be listened on: what gRPC says of one that cannot names no reason.

    Raises EnvironmentFault: the port is taken, or the host is none of this machine.
    """
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        with socket.socket(found[0][0], socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(found[0][4])
            probe.listen(1)
    except OSError as exc:
        why = f"this machine has no address {host}"
        if exc.errno in (errno.EADDRINUSE, errno.EACCES):
            why = "it is taken" if exc.errno == errno.EADDRINUSE else "no permission"
        raise EnvironmentFault(f"cannot listen on {address}: {why}; set core.listen to another address") from exc


def bind_unix(path: Path, kind: socket.SocketKind) -> socket.socket:
    """A listening, non-blocking socket that only this user may connect to.

    Raises EnvironmentFault: see `claim_path`, or no permission.
    """
    claim_path(path)
    sock = socket.socket(socket.AF_UNIX, kind)
    try:
        # The mode of the file is that of the descriptor at bind(2).
        os.fchmod(sock.fileno(), 0o600)
        sock.bind(str(path))
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as exc:
        sock.close()
        raise EnvironmentFault(f"cannot listen on {path}: {exc.strerror}; set core.listen to another path") from exc
    return sock


def remove_socket(path: Path) -> None:
    """Remove the file, if it is there."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
