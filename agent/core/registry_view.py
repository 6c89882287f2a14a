"""The two loops around a registry: the edge's copy of what it says, and a core's announcements of itself.

A registry that fails harms nobody who is there: the edge goes on with the copy it has, and finds out by its own links
which of the replicas in it are dead.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from agent.core.registry import Directory, Registrar, RegistryError, Replica, check_shard

__all__ = ["Announcer", "RegistryView"]

REFRESH_S = 1.0
"""A third of an announcement's time to live."""

log = logging.getLogger(__name__)


class RegistryView:
    """Live replicas of the shards that an edge uses, at hand without waiting. `async with` keeps it fresh.

    Args:
        directory: where they are read. Not owned.
        shards: which.
        refresh_s: how often.

    Raises ValueError for a name that is no shard.
    """

    def __init__(self, directory: Directory, shards: Sequence[str], *, refresh_s: float = REFRESH_S) -> None:
        self._directory = directory
        self._refresh_s = refresh_s
        self._known: dict[str, tuple[Replica, ...]] = {check_shard(shard): () for shard in shards}
        self._placed: Counter[str] = Counter()
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Read once, then go on reading. A registry that fails now is read again later."""
        await self.refresh()
        self._task = asyncio.create_task(self._keep(), name="registry view")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _end(self._task)

    def replicas(self, shard: str) -> tuple[Replica, ...]:
        """As read last, with the streams that were placed from here since. Raises KeyError for other shards."""
        return tuple(
            replace(replica, active=replica.active + self._placed[replica.id]) if self._placed[replica.id] else replica
            for replica in self._known[shard]
        )

    def placed(self, replica_id: str) -> None:
        """A stream was opened there: until its own number is read, a burst of calls must not all go to one replica."""
        self._placed[replica_id] += 1

    async def refresh(self) -> None:
        """Read all shards now; those that cannot be read stay as they were."""
        before = self._placed.copy()
        results = await asyncio.gather(
            *(self._directory.replicas(shard) for shard in self._known), return_exceptions=True
        )
        failure: RegistryError | None = None
        for shard, result in zip(self._known, results, strict=True):
            if isinstance(result, RegistryError):
                failure = result
            elif isinstance(result, BaseException):
                raise result
            else:
                self._known[shard] = result
        if failure is None:
            # What was placed while it was being read may not be in the numbers yet.
            self._placed -= before
        if (failure is not None) != self._failing:
            self._failing = failure is not None
            if failure is None:
                log.info("the registry answers again")
            else:
                log.warning("%s; going on with the replicas known so far", failure)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._refresh_s)
            await self.refresh()


class Announcer:
    """A core's presence: announced while inside, withdrawn on the way out.

    Args:
        registrar: where. Not owned.
        describe: the replica as it is now.
        every_s: how often.
    """

    def __init__(self, registrar: Registrar, describe: Callable[[], Replica], *, every_s: float = REFRESH_S) -> None:
        self._registrar = registrar
        self._describe = describe
        self._every_s = every_s
        self._failing = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Announce once, then go on. Raises RegistryError: a core that nobody can find is of no use."""
        await self._registrar.announce(self._describe())
        self._task = asyncio.create_task(self._keep(), name="registry announcer")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _end(self._task)
        try:
            await self._registrar.withdraw(self._describe().id)
        except RegistryError as exc:
            log.warning("%s; this core's entry ends by itself", exc)

    async def announce(self) -> None:
        """Now, and not only at the next turn: it begins to drain."""
        try:
            await self._registrar.announce(self._describe())
        except RegistryError as exc:
            if not self._failing:
                log.warning("%s; announcing goes on", exc)
            self._failing = True
        else:
            self._failing = False

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.announce()


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is None:
        return
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        if not task.cancelled():
            raise
