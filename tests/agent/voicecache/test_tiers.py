"""The tiers behind memory, without a Redis that answers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.config import CacheSettings
from agent.observe.metrics import Metrics
from agent.voicecache import tiers as module
from agent.voicecache.disk import DiskThread, DiskTier
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import SpeechKey
from agent.voicecache.shared import RedisTier
from agent.voicecache.tiers import MAX_WRITES, Tiers
from tests.agent.voicecache.support import entry, key_of


@asynccontextmanager
async def opened(disk: DiskTier | None, now: list[float] | None = None) -> AsyncIterator[Tiers]:
    thread = DiskThread()
    clock = now if now is not None else [0.0]
    tiers = Tiers(disk, thread, None, Metrics(), lambda: clock[0])
    tiers.start()
    try:
        yield tiers
    finally:
        await tiers.close()
        await thread.close()


async def test_what_is_put_is_there_when_it_settled(tmp_path: Path) -> None:
    async with opened(DiskTier(tmp_path, 10**6)) as tiers:
        assert await tiers.get(key_of("a")) is None
        assert tiers.put(entry("a"))
        await tiers.settled()
        found = await tiers.get(key_of("a"))
        assert found is not None
        assert found.text == "a"


async def test_private_speech_and_no_tier_write_nothing(tmp_path: Path) -> None:
    disk = DiskTier(tmp_path, 10**6)
    async with opened(disk) as tiers:
        assert not tiers.put(entry("Anna", private=True))
        await tiers.settled()
    assert not disk.keys()
    async with opened(None) as tiers:
        assert not tiers.put(entry("a"))
        assert await tiers.get(key_of("a")) is None


async def test_closing_writes_what_waits(tmp_path: Path) -> None:
    async with opened(DiskTier(tmp_path, 10**6)) as tiers:
        for number in range(20):
            tiers.put(entry(str(number)))
    assert len(DiskTier(tmp_path, 10**6).keys()) == 20


class Slow(DiskTier):
    """Answers when it is let."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, 10**6)
        self.go = threading.Event()

    def get(self, key: SpeechKey) -> CachedSpeech | None:
        self.go.wait(10)
        return super().get(key)


async def test_a_disk_slower_than_the_voice_is_a_miss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISK_DEADLINE_S", 0.001)
    disk = Slow(tmp_path)
    disk.put(entry("a"))
    async with opened(disk) as tiers:
        assert await tiers.get(key_of("a")) is None
        disk.go.set()


class SlowShared(RedisTier):
    """Answers when it is let; connects to nothing."""

    def __init__(self) -> None:
        super().__init__(CacheSettings(redis_url="redis://127.0.0.1:1/0"), Metrics())
        self.go = asyncio.Event()
        self.answered = 0

    async def get(self, key: SpeechKey) -> CachedSpeech | None:
        await self.go.wait()
        self.answered += 1
        return None


async def test_a_hit_on_disk_leaves_the_slower_question_to_end_by_itself(tmp_path: Path) -> None:
    disk, shared, thread = DiskTier(tmp_path, 10**6), SlowShared(), DiskThread()
    disk.put(entry("a"))
    tiers = Tiers(disk, thread, shared, Metrics())
    try:
        assert await tiers.get(key_of("a")) is not None
        assert shared.answered == 0
        shared.go.set()
        await tiers.settled()
        assert shared.answered == 1
    finally:
        await tiers.close()
        await shared.close()
        await thread.close()


async def test_a_disk_that_is_full_is_left_alone_for_a_while(tmp_path: Path) -> None:
    tried: list[int] = []

    def full(file: int, data: bytes) -> None:
        tried.append(len(data))
        raise OSError(28, "No space left on device")

    now = [0.0]
    async with opened(DiskTier(tmp_path, 10**6, write=full), now) as tiers:
        for _ in range(3):
            tiers.put(entry("a"))
            await tiers.settled()
        assert len(tried) == 1
        now[0] = module.FULL_DISK_PAUSE_S
        tiers.put(entry("a"))
        await tiers.settled()
        assert len(tried) == 2


async def test_more_writes_than_may_wait_stay_in_memory(tmp_path: Path) -> None:
    async with opened(DiskTier(tmp_path, 10**7)) as tiers:
        one = entry("a")
        taken = [tiers.put(one) for _ in range(MAX_WRITES + 10)]
        assert sum(taken) == MAX_WRITES
        await asyncio.sleep(0)


async def test_an_entry_that_cannot_be_written_does_not_rest_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = DiskTier(tmp_path, 10**6)
    put = disk.put

    def refusing(speech: CachedSpeech) -> None:
        if speech.key == key_of("bad"):
            raise ValueError("too long")
        put(speech)

    monkeypatch.setattr(disk, "put", refusing)
    async with opened(disk) as tiers:
        tiers.put(entry("bad"))
        tiers.put(entry("good"))
        await tiers.settled()
    assert disk.keys() == [key_of("good")]
