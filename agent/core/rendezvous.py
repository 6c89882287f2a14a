"""Which replica serves a stream: rendezvous hashing with bounded load. Pure.

The weight of a replica for a key depends on the two alone (Thaler and Ravishankar, "Using name-based mappings to
increase hit rates", 1998; weighted by capacity as in Schindelhauer and Schomaker, 2005). So every edge finds the same
one without talking to the others, and a replica that comes or goes moves only the keys that are its own. For a voice
the key is the voice: it is found where its features are in memory. A replica that has more than its share is passed
over (after Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with bounded loads", 2016), so that one voice which
all callers want does not sink its replica while others idle.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from hashlib import blake2b

from agent.core.registry import Replica

__all__ = ["LOAD_FACTOR", "choose", "rank", "weight"]

LOAD_FACTOR = 1.25
"""A replica may have a quarter more than its share of the streams. Less spreads better and keeps fewer voices warm."""


def weight(key: str, replica: Replica) -> float:
    """How much the key wants this replica, above 0; over many keys each replica wins in proportion to its capacity."""
    digest = blake2b(f"{key}\0{replica.id}".encode(), digest_size=8).digest()
    # Uniform in (0, 1), both ends excluded: the logarithm is finite and not 0.
    uniform = (int.from_bytes(digest, "big") + 0.5) / 2**64
    return replica.capacity / -math.log(uniform)


def rank(
    key: str,
    replicas: Sequence[Replica],
    *,
    voice: str | None = None,
    held: str | None = None,
    load_factor: float = LOAD_FACTOR,
) -> list[str]:
    """Ids of the replicas that may take the stream, best first. Full and draining ones are not among them.

    Args:
        key: the call's id, or for a voice its name.
        replicas: all of the shard.
        voice: replicas that have its features warm go before others.
        held: where the call is now; it stays there while that one lives and does not drain, even when full (it is part
            of what fills it).
        load_factor: how far above its share a replica may go before others are asked.
    """
    able = [replica for replica in replicas if not replica.draining and (replica.id == held or not replica.full)]
    streams = sum(replica.active for replica in able) + 1
    capacity = sum(replica.capacity for replica in able)

    def order(replica: Replica) -> tuple[bool, bool, bool, float, str]:
        share = math.ceil(load_factor * streams * replica.capacity / capacity)
        return (
            replica.id != held,
            replica.active + 1 > share,
            voice is not None and voice not in replica.warm,
            -weight(key, replica),
            replica.id,
        )

    return [replica.id for replica in sorted(able, key=order)]


def choose(
    key: str,
    replicas: Sequence[Replica],
    *,
    voice: str | None = None,
    held: str | None = None,
    without: Collection[str] = (),
) -> str | None:
    """The best of `rank` that is not in `without`; None when there is none."""
    return next((name for name in rank(key, replicas, voice=voice, held=held) if name not in without), None)
