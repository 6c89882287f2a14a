"""Where a core is found: `shm:/run/r.sock`, `unix:/run/r.sock`, `tcp://10.0.0.5:8090`, `inproc:`. Pure."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["CoreAddress", "Transport", "parse_core_address"]

_EXPECTED = "expected shm:/PATH, unix:/PATH (gRPC), tcp://HOST:PORT (gRPC) or inproc:"


class Transport(Enum):
    """Which link."""

    INPROC = "inproc"
    SHM = "shm"
    GRPC_UNIX = "grpc+unix"
    GRPC_TCP = "grpc+tcp"


@dataclass(frozen=True, slots=True)
class CoreAddress:
    """A parsed address: `path` for sockets, `host` and `port` for TCP."""

    transport: Transport
    path: Path | None = None
    host: str = ""
    port: int = 0

    def __str__(self) -> str:
        match self.transport:
            case Transport.INPROC:
                return "inproc:"
            case Transport.SHM:
                return f"shm:{self.path}"
            case Transport.GRPC_UNIX:
                return f"unix:{self.path}"
            case Transport.GRPC_TCP:
                return f"tcp://{self.target}"

    @property
    def target(self) -> str:
        """As gRPC wants it."""
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def leaves_machine(self) -> bool:
        """True unless only this machine can be at the other end."""
        if self.transport is not Transport.GRPC_TCP:
            return False
        try:
            return not ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host != "localhost"


def parse_core_address(text: str) -> CoreAddress:
    """Parse an address; `grpc+unix:` and `grpc+tcp:` are other names of `unix:` and `tcp:`.

    Raises ValueError: it is none.
    """
    scheme, colon, rest = text.partition(":")
    scheme = scheme.removeprefix("grpc+")
    if not colon:
        raise ValueError(f"{_EXPECTED}, got {text!r}")
    if scheme == "inproc" and not rest:
        return CoreAddress(Transport.INPROC)
    if scheme in ("shm", "unix"):
        path = Path("/" + rest.lstrip("/") if rest.startswith("/") else rest)
        if not rest or not path.is_absolute():
            raise ValueError(f"{_EXPECTED}; the path of {text!r} is not absolute")
        return CoreAddress(Transport.SHM if scheme == "shm" else Transport.GRPC_UNIX, path)
    if scheme == "tcp":
        parts = urlsplit(f"//{rest.removeprefix('//')}")
        try:
            port = parts.port
        except ValueError as exc:
            raise ValueError(f"{_EXPECTED}; {text!r}: {exc}") from exc
        if not parts.hostname or port is None or parts.path or parts.query or parts.username is not None:
            raise ValueError(f"{_EXPECTED}, got {text!r}")
        return CoreAddress(Transport.GRPC_TCP, None, parts.hostname, port)
    raise ValueError(f"{_EXPECTED}, got {text!r}")
