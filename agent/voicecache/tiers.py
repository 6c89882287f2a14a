"""The tiers behind memory: asked together within a deadline, written in the background."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from agent.observe.metrics import Metrics
from agent.voicecache.disk import DiskThread, DiskTier
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import SpeechKey
from agent.voicecache.lease import Lease

if TYPE_CHECKING:
    # The library behind it is loaded only where something is shared.
    from agent.voicecache.shared import RedisTier

__all__ = ["Tiers"]

DISK_DEADLINE_S = 0.02
"""A page-cached file takes under a millisecond; a disk that needs longer than this is slower than the voice."""

MAX_WRITES = 256
"""Entries waiting to be written; further ones stay in memory only."""

FULL_DISK_PAUSE_S = 30.0
"""After a failed write the disk is left alone this long."""

CLOSE_DEADLINE_S = 5.0

log = logging.getLogger(__name__)


class Tiers:
    """Disk and Redis, each of which may be missing.

    Args:
        disk, thread: the folder, and the thread that works on it.
        redis: the shared tier.
        now: a monotonic clock in seconds.
    """

    def __init__(
        self,
        disk: DiskTier | None,
        thread: DiskThread,
        redis: RedisTier | None,
        metrics: Metrics,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.disk = disk
        self.thread = thread
        self.redis = redis
        self._metrics = metrics
        self._now = now
        self._writes: asyncio.Queue[tuple[CachedSpeech, Lease | None]] = asyncio.Queue(MAX_WRITES)
        self._asking: set[asyncio.Future[CachedSpeech | None]] = set()
        """Questions under way; each ends by its own deadline."""
        self._disk_rests_until = 0.0
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to write."""
        if self.disk is not None or self.redis is not None:
            self._writer = asyncio.create_task(self._write_all(), name="voice-cache-writer")

    async def get(self, key: SpeechKey) -> CachedSpeech | None:
        """The entry from the disk or from Redis, whichever has it first; None if neither has it in time.

        Never raises but for cancellation.
        """
        asked = [self._from_disk(key)] if self.disk is not None else []
        if self.redis is not None:
            asked.append(self.redis.get(key))
        tasks = {asyncio.ensure_future(coroutine) for coroutine in asked}
        # The slower one is left to its own deadline: a question to Redis that is cancelled costs its connection.
        self._asking |= tasks
        for task in tasks:
            task.add_done_callback(self._asking.discard)
        for next_one in asyncio.as_completed(tasks):
            speech = await next_one
            if speech is not None:
                return speech
        return None

    def put(self, speech: CachedSpeech, lease: Lease | None = None) -> bool:
        """Have it written soon, and `lease` given back then. False: it will not be; private speech never is."""
        if speech.private or self._writer is None:
            return False
        try:
            self._writes.put_nowait((speech, lease))
        except asyncio.QueueFull:
            return False
        return True

    async def settled(self) -> None:
        """Wait until all that was put is written, or could not be, and every question is answered or given up."""
        await self._writes.join()
        if self._asking:
            await asyncio.wait(set(self._asking))

    async def close(self) -> None:
        """Write what waits, for at most 5 s; Redis and the thread are closed by whoever opened them."""
        if self._writer is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    await self._writes.join()
            self._writer.cancel()
            await asyncio.gather(self._writer, return_exceptions=True)
        if self._asking:
            await asyncio.wait(set(self._asking), timeout=CLOSE_DEADLINE_S)

    async def _from_disk(self, key: SpeechKey) -> CachedSpeech | None:
        assert self.disk is not None
        try:
            async with asyncio.timeout(DISK_DEADLINE_S):
                speech = await self.thread.run(self.disk.get, key)
        except (TimeoutError, BlockingIOError):
            self._metrics.cache_request("disk", "late")
            return None
        except OSError as exc:
            self._metrics.error("cache", exc)
            self._metrics.cache_request("disk", "error")
            return None
        self._metrics.cache_request("disk", "miss" if speech is None else "hit")
        return speech

    async def _write_all(self) -> None:
        while True:
            speech, lease = await self._writes.get()
            try:
                await self._write(speech, lease)
            finally:
                self._writes.task_done()

    async def _write(self, speech: CachedSpeech, lease: Lease | None) -> None:
        if self.redis is not None:
            # First, since other processes may wait for it; they look for the speech as soon as the lease is back.
            try:
                await self.redis.put(speech)
            except ValueError as exc:
                log.warning("speech was not shared: %s", exc)
            if lease is not None:
                await self.redis.release(lease)
        if self.disk is not None and self._now() >= self._disk_rests_until:
            try:
                await self.thread.run(self.disk.put, speech)
                self._metrics.cache_bytes("disk", self.disk.size_bytes)
            except ValueError as exc:
                # This entry's fault, and not the disk's.
                self._metrics.error("cache", exc)
                log.warning("speech was not written to disk: %s", exc)
            except OSError as exc:
                self._disk_rests_until = self._now() + FULL_DISK_PAUSE_S
                self._metrics.error("cache", exc)
                log.warning("speech was not written to disk: %s", exc.strerror or exc)
