"""The registry that DNS is: SRV records of a headless service, one for each replica that is ready.

For reading alone: the orchestrator writes, by readiness probes. Each shard is a service of its own whose name is made
from a template; its SRV records (RFC 2782) give host and port. What DNS does not say is taken as unknown: a replica has
the capacity of its weight, no load and no warm voices, so that calls spread by hashing alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import dns.asyncresolver
import dns.exception
import dns.name
import dns.resolver
from dns.rdtypes.IN.SRV import SRV

from agent.core.registry import RegistryError, Replica, check_shard

__all__ = ["DnsDirectory", "service_name"]

DEADLINE_S = 1.0
"""As long as a registry is waited for everywhere."""


class DnsDirectory:
    """Replicas by SRV records.

    Args:
        template: the records' name with `{shard}` in it: `_grpc._tcp.core-{shard}.voice.svc.cluster.local`.
        nameservers: addresses to ask; those of the machine by default.
        port: where they listen.

    Raises ValueError for a template without `{shard}`.
    """

    def __init__(self, template: str, *, nameservers: Sequence[str] | None = None, port: int = 53) -> None:
        if "{shard}" not in template:
            raise ValueError("registry: the DNS name must have {shard} in it")
        self._template = template
        self._resolver = dns.asyncresolver.Resolver(configure=nameservers is None)
        if nameservers is not None:
            self._resolver.nameservers = list(nameservers)
            self._resolver.port = port

    async def replicas(self, shard: str) -> tuple[Replica, ...]:
        """See `Directory.replicas`. A name that does not exist is a shard without replicas."""
        name = service_name(self._template, shard)
        try:
            answer = await self._resolver.resolve(name, "SRV", lifetime=DEADLINE_S)
        except (dns.resolver.NXDOMAIN, dns.resolver.NoAnswer):
            return ()
        except (dns.exception.DNSException, OSError) as exc:
            raise RegistryError(f"registry: DNS: {name}: {type(exc).__name__}") from exc
        found = [_replica(record, shard) for record in answer if isinstance(record, SRV)]
        return tuple(sorted(found, key=lambda replica: replica.id))

    async def close(self) -> None:
        """Nothing is held."""


def service_name(template: str, shard: str) -> str:
    """The name for a shard: `asr:en` becomes `asr-en`, as a DNS label must be (RFC 1123). Raises ValueError."""
    label = re.sub(r"[^a-z0-9-]", "-", check_shard(shard).lower()).strip("-")
    return template.replace("{shard}", label)


def _replica(record: SRV, shard: str) -> Replica:
    address = f"{record.target.to_text(omit_final_dot=True)}:{record.port}"
    return Replica(address, address, frozenset({shard}), max(1, record.weight))
