"""What was learned, kept in step: with the other processes through Redis, and with the file on disk."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from agent.observe.metrics import Metrics
from agent.voicecache.foresight import Foresight
from agent.voicecache.journal import Journal, TurnRecord
from agent.voicecache.learned import read_learned, restore_learned, write_learned
from agent.voicecache.tiers import Tiers

__all__ = ["Learning", "journal_folder", "learned_file"]

SYNC_EVERY_S = 30.0
"""Between two times that learning is shared and written: what a killed process loses at most."""

log = logging.getLogger(__name__)


def learned_file(folder: Path) -> Path:
    """In the cache's folder."""
    return folder / "learned.json"


def journal_folder(folder: Path) -> Path:
    """In the cache's folder."""
    return folder / "calls"


class Learning:
    """Reads at the start, writes every 30 s and at the end; nothing touches the disk when that tier is off.

    Args:
        folder: the cache's.
        foresight: what learns.
    """

    def __init__(self, folder: Path, foresight: Foresight, tiers: Tiers, metrics: Metrics) -> None:
        self._file = learned_file(folder)
        self._journal = Journal(journal_folder(folder))
        self._foresight = foresight
        self._tiers = tiers
        self._metrics = metrics
        self._keeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Take over what was learned before, and what others learned since."""
        until = "0-0"
        if self._tiers.disk is not None:
            values = await self._tiers.thread.run(read_learned, self._file)
            until = restore_learned(values, self._foresight.predictor, self._foresight.voices)
        if self._tiers.redis is not None:
            self._tiers.redis.learned_until = until
            await self.sync()
        self._keeper = asyncio.create_task(self._keep_in_step(), name="voice-cache-keeper")

    async def close(self) -> None:
        """Share and write for the last time."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
        await self.sync()

    async def sync(self) -> None:
        """Share what was learned, learn what was shared, write both down."""
        redis = self._tiers.redis
        if redis is not None:
            await redis.teach(self._foresight.untaught())
            self._foresight.learn(await redis.learn())
        if not self._foresight.changed or self._tiers.disk is None:
            return
        self._foresight.changed = False
        values = {
            "predictor": self._foresight.predictor.dump(),
            "voices": self._foresight.voices.dump(),
            "learned_until": "0-0" if redis is None else redis.learned_until,
        }
        try:
            await self._tiers.thread.run(write_learned, self._file, values)
        except OSError as exc:
            self._metrics.error("cache", exc)
            log.warning("what was learned was not written: %s", exc.strerror)

    async def note(self, call: str, record: TurnRecord) -> None:
        """Write one turn into the journal."""
        if self._tiers.disk is None:
            return
        try:
            await self._tiers.thread.run(self._journal.add, call, record)
        except OSError as exc:
            self._metrics.error("cache", exc)

    async def _keep_in_step(self) -> None:
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            await self.sync()
