"""Tasks in the background that have an owner: all of them end with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

__all__ = ["OwnedTasks"]

MAX_TASKS = 1_000
"""More than the calls of a process can cause; whatever comes on top is dropped."""

log = logging.getLogger(__name__)


class OwnedTasks:
    """Small pieces of work that nobody waits for; one that fails is logged."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Do it soon."""
        if len(self._tasks) >= MAX_TASKS:
            work.close()
            log.warning("%s was dropped: %d others are under way", name, MAX_TASKS)
            return
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def settled(self) -> None:
        """Wait for what was begun before."""
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def close(self) -> None:
        """End all of them."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s failed: %s", task.get_name(), type(error).__name__)
