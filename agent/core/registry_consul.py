"""The registry in Consul, by its HTTP API: each replica is a service instance with a TTL check.

Shards are tags, so that Consul itself selects by shard; what else a replica says of itself is in its metadata, cut into
pieces, since Consul takes at most 64 members of 512 bytes. Its API: developer.hashicorp.com/consul/api-docs, the pages
"agent/service" and "health".
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import quote

import aiohttp

from agent.core.registry import TTL_S, RegistryError, Replica, dump_replica, load_replica

__all__ = ["ConsulRegistry"]

SERVICE = "rejoinder-core"
MEMBER = "replica"
PIECE_BYTES = 512
MAX_PIECES = 60

DEADLINE_S = 1.0
"""A third of the time to live: two failures in a row do not yet lose a replica."""

FORGET_AFTER = "1m"
"""The least that Consul takes for removing an instance whose check fails; readers leave it out at once."""

MAX_ANSWER_BYTES = 4 * 1024 * 1024

_HOST_PORT = re.compile(r"\[?([^\[\]]+)\]?:(\d+)")


class ConsulRegistry:
    """One process's way to its Consul agent.

    Args:
        url: of the agent, `http://127.0.0.1:8500`.
        token: an ACL token with `service:write` for `rejoinder-core`; None where ACLs are off.
        ttl_s: how long an announcement holds.
    """

    def __init__(self, url: str, *, token: str | None = None, ttl_s: float = TTL_S) -> None:
        self._url = url.rstrip("/")
        self._ttl = f"{round(ttl_s * 1000)}ms"
        self._headers = {} if token is None else {"X-Consul-Token": token}
        self._http: aiohttp.ClientSession | None = None

    async def announce(self, replica: Replica) -> None:
        """See `Registrar.announce`."""
        service: dict[str, Any] = {
            "ID": replica.id,
            "Name": SERVICE,
            "Tags": sorted(replica.shards),
            "Meta": _pieces(dump_replica(replica)),
            "Check": {
                "CheckID": _check(replica.id),
                "TTL": self._ttl,
                "Status": "passing",
                "DeregisterCriticalServiceAfter": FORGET_AFTER,
            },
        }
        where = _HOST_PORT.fullmatch(replica.address)
        if where is not None:
            # For Consul's other readers; ours take the address from the metadata, which may be a path.
            service |= {"Address": where[1], "Port": int(where[2])}
        await self._ask("PUT", "/v1/agent/service/register?replace-existing-checks=true", service)
        # Registering a check again does not start its time anew.
        await self._ask("PUT", f"/v1/agent/check/pass/{quote(_check(replica.id), safe='')}")

    async def withdraw(self, replica_id: str) -> None:
        """See `Registrar.withdraw`."""
        await self._ask("PUT", f"/v1/agent/service/deregister/{quote(replica_id, safe='')}", missing=True)

    async def replicas(self, shard: str) -> tuple[Replica, ...]:
        """See `Directory.replicas`."""
        entries = await self._ask("GET", f"/v1/health/service/{SERVICE}?passing=1&tag={quote(shard, safe='')}")
        try:
            found = [load_replica(_join(entry["Service"]["Meta"])) for entry in entries]
        except (KeyError, TypeError, AttributeError) as exc:
            raise RegistryError(
                f"registry: Consul: an instance of {SERVICE} without {MEMBER}-00 in its metadata"
            ) from exc
        return tuple(sorted((one for one in found if shard in one.shards), key=lambda one: one.id))

    async def close(self) -> None:
        """Close connections."""
        if self._http is not None:
            await self._http.close()
            self._http = None

    async def _ask(self, method: str, path: str, body: object = None, *, missing: bool = False) -> Any:
        """The answer as JSON, None for an empty one, or for 404 where something may be missing."""
        if self._http is None:
            self._http = aiohttp.ClientSession(headers=self._headers)
        what = f"{method} {path.partition('?')[0]}"
        try:
            async with (
                asyncio.timeout(DEADLINE_S),
                self._http.request(method, f"{self._url}{path}", json=body) as answer,
            ):
                if answer.status == 404 and missing:
                    return None
                if answer.status != 200:
                    raise RegistryError(f"registry: Consul: {what}: status {answer.status}")
                data = bytearray()
                async for chunk in answer.content.iter_any():
                    data += chunk
                    if len(data) > MAX_ANSWER_BYTES:
                        raise RegistryError(
                            f"registry: Consul: {what}: an answer of more than {MAX_ANSWER_BYTES} bytes"
                        )
                return json.loads(data) if data.strip() else None
        except TimeoutError as exc:
            raise RegistryError(f"registry: Consul: {what}: no answer within {DEADLINE_S:.0f} s") from exc
        except (aiohttp.ClientError, ValueError) as exc:
            raise RegistryError(f"registry: Consul: {what}: {exc}") from exc


def _check(replica_id: str) -> str:
    return f"{SERVICE}:{replica_id}"


def _pieces(text: str) -> dict[str, str]:
    """The text, which is ASCII, as members of metadata."""
    pieces = [text[at : at + PIECE_BYTES] for at in range(0, len(text), PIECE_BYTES)]
    if len(pieces) > MAX_PIECES:
        raise RegistryError(
            f"registry: Consul: warm: a replica's names need more than {MAX_PIECES * PIECE_BYTES} bytes"
        )
    return {f"{MEMBER}-{number:02}": piece for number, piece in enumerate(pieces)}


def _join(metadata: dict[str, str]) -> str:
    """Raises KeyError when there is no piece."""
    first = metadata[f"{MEMBER}-00"]
    names = sorted(name for name in metadata if name.startswith(f"{MEMBER}-") and name != f"{MEMBER}-00")
    return first + "".join(metadata[name] for name in names)
