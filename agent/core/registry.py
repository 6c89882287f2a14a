"""Which cores there are: what a replica says of itself, how it is kept, and a registry inside one process.

Others with the same contract: `registry_redis`, `registry_consul`, and `registry_dns` for reading alone (there the
orchestrator writes). Choosing among the replicas is `agent.core.rendezvous`; keeping a fresh copy is `registry_view`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from agent.errors import RejoinderError

__all__ = [
    "TTL_S",
    "Directory",
    "MemoryRegistry",
    "Registrar",
    "RegistryError",
    "Replica",
    "check_shard",
    "dump_replica",
    "load_replica",
]

TTL_S = 3.0
"""A replica announces itself every second; one that has not for three is gone."""

_SHARD = re.compile(r"(asr|tts):[A-Za-z0-9._-]{1,64}")


class RegistryError(RejoinderError):
    """The registry cannot be read or written now, or holds something that is no replica."""

    retryable = True


@dataclass(frozen=True, slots=True)
class Replica:
    """One core server, as it announces itself."""

    id: str
    """Unique, and new after a restart."""
    address: str
    """`host:port` or `unix:/path`, as gRPC takes it."""
    shards: frozenset[str]
    """`asr:LANGUAGE` and `tts:VOICE`."""
    capacity: int = 1
    """Streams it can serve at once."""
    active: int = 0
    """Streams it serves."""
    warm: frozenset[str] = field(default_factory=frozenset)
    """Voices whose features it holds in memory."""
    draining: bool = False
    """Takes no new streams."""

    @property
    def full(self) -> bool:
        """Whether it has no room."""
        return self.active >= self.capacity


class Directory(Protocol):
    """A registry as the edge reads it."""

    async def replicas(self, shard: str) -> tuple[Replica, ...]:
        """Live replicas of a shard, ordered by id; empty when there is none. Raises RegistryError."""
        ...

    async def close(self) -> None:
        """Give back connections."""


class Registrar(Directory, Protocol):
    """A registry that cores write to."""

    async def announce(self, replica: Replica) -> None:
        """Be there, or be there with other numbers, for the next `TTL_S`. Raises RegistryError."""

    async def withdraw(self, replica_id: str) -> None:
        """Be gone at once; nothing if it was not there. Raises RegistryError."""


class MemoryRegistry:
    """For cores inside the process of the edge, and for tests.

    Args:
        ttl_s: how long an announcement holds.
        now: a monotonic clock in seconds.
    """

    def __init__(self, *, ttl_s: float = TTL_S, now: Callable[[], float] = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._now = now
        self._known: dict[str, tuple[float, Replica]] = {}

    async def announce(self, replica: Replica) -> None:
        """See `Registrar.announce`."""
        self._known[replica.id] = (self._now() + self._ttl_s, replica)

    async def withdraw(self, replica_id: str) -> None:
        """See `Registrar.withdraw`."""
        self._known.pop(replica_id, None)

    async def replicas(self, shard: str) -> tuple[Replica, ...]:
        """See `Directory.replicas`."""
        now = self._now()
        self._known = {name: kept for name, kept in self._known.items() if kept[0] > now}
        return tuple(replica for _, (_, replica) in sorted(self._known.items()) if shard in replica.shards)

    async def close(self) -> None:
        """Nothing is held."""


def check_shard(shard: str) -> str:
    """The shard's name, if it is one: it becomes part of keys, tags and host names.

    Raises ValueError saying what was expected.
    """
    if not _SHARD.fullmatch(shard):
        raise ValueError(f"shard: expected asr:LANGUAGE or tts:VOICE, got {shard[:80]!r}")
    return shard


def dump_replica(replica: Replica) -> str:
    """As JSON, for registries that keep text."""
    fields = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in asdict(replica).items()}
    return json.dumps(fields, separators=(",", ":"))


def load_replica(text: str | bytes) -> Replica:
    """What `dump_replica` wrote, and members that we do not know: cores may be newer than the edge.

    Raises RegistryError naming the member that is wrong.
    """
    try:
        fields: Any = json.loads(text)
    except ValueError as exc:
        raise RegistryError("registry: a replica is not JSON") from exc
    if not isinstance(fields, dict):
        raise RegistryError("registry: a replica is not a JSON object")
    try:
        return Replica(
            id=_text(fields, "id"),
            address=_text(fields, "address"),
            shards=_names(fields, "shards"),
            capacity=_count(fields, "capacity"),
            active=_count(fields, "active"),
            warm=_names(fields, "warm"),
            draining=fields.get("draining") is True,
        )
    except KeyError as exc:
        raise RegistryError(f"registry: a replica has no {exc.args[0]}") from exc


def _text(fields: dict[str, Any], name: str) -> str:
    if not isinstance(fields[name], str) or not fields[name]:
        raise RegistryError(f"registry: {name} of a replica: expected text")
    return str(fields[name])


def _count(fields: dict[str, Any], name: str) -> int:
    if not isinstance(fields[name], int) or isinstance(fields[name], bool) or fields[name] < 0:
        raise RegistryError(f"registry: {name} of a replica: expected a number of streams")
    return int(fields[name])


def _names(fields: dict[str, Any], name: str) -> frozenset[str]:
    if not isinstance(fields[name], list) or not all(isinstance(item, str) for item in fields[name]):
        raise RegistryError(f"registry: {name} of a replica: expected a list of names")
    return frozenset(fields[name])
