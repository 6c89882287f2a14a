"""Background tasks have an owner."""

from __future__ import annotations

import asyncio

import pytest

from agent.voicecache import tasks as module
from agent.voicecache.tasks import OwnedTasks


async def test_they_end_with_their_owner_and_failures_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    tasks = OwnedTasks()
    ended: list[str] = []

    async def work(name: str) -> None:
        try:
            if name == "fails":
                raise OSError("broken")
            if name == "hangs":
                await asyncio.Event().wait()
        finally:
            ended.append(name)

    for name in ("works", "fails"):
        tasks.begin(work(name), name)
    await tasks.settled()
    await asyncio.sleep(0)
    assert "fails failed: OSError" in caplog.text
    tasks.begin(work("hangs"), "hangs")
    await asyncio.sleep(0)
    await tasks.close()
    assert sorted(ended) == ["fails", "hangs", "works"]


async def test_more_than_may_be_under_way_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TASKS", 2)
    tasks = OwnedTasks()
    done: list[int] = []

    async def work(number: int) -> None:
        done.append(number)

    for number in range(5):
        tasks.begin(work(number), "work")
    await tasks.settled()
    assert done == [0, 1]
