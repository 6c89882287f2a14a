"""Stopping without cutting anybody off: no new calls, time for the live ones, then a hang-up with a reason."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from signaling.ports import SERVER_STOPPED, Drains, Ends

__all__ = ["drain"]

HANGUP_TIMEOUT_S = 5.0
"""What a call needs to say goodbye to its peer and free everything."""

logger = logging.getLogger(__name__)


async def drain(agent: Drains, *, patience_s: float, hurry: asyncio.Event) -> None:
    """Refuse new calls, wait for the live ones, hang up on what is left.

    Args:
        patience_s: how long live calls may finish.
        hurry: when set (a second signal), the waiting ends at once.
    """
    agent.draining = True
    calls = list(agent.calls.values())
    if not calls:
        return
    logger.info("draining", extra={"calls": len(calls), "patience_s": patience_s})
    for call in calls:
        # Nobody is on the line of a suspended call, and nobody could come back to it.
        call.forbid_resume(SERVER_STOPPED)
    left = await _wait_ended(calls, timeout_s=patience_s, hurry=hurry)
    for call in left:
        call.hangup(SERVER_STOPPED)
    stuck = await _wait_ended(left, timeout_s=HANGUP_TIMEOUT_S, hurry=None)
    if stuck:
        logger.error("calls did not end in time", extra={"calls": len(stuck)})


async def _wait_ended(calls: Iterable[Ends], *, timeout_s: float, hurry: asyncio.Event | None) -> list[Ends]:
    """The calls that have not ended after `timeout_s`, or when `hurry` is set."""
    waits = {asyncio.create_task(call.wait_ended(), name=f"{call.id} drain"): call for call in calls}
    if not waits:
        return []
    everybody = asyncio.create_task(asyncio.wait(waits), name="drain calls")
    first: set[asyncio.Task[object]] = {everybody}
    if hurry is not None:
        first.add(asyncio.create_task(hurry.wait(), name="drain hurry"))
    try:
        await asyncio.wait(first, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return [call for task, call in waits.items() if not task.done()]
    finally:
        tasks = [*first, *waits]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
