"""Disks that are slow, full or gone: the recording suffers, the call never does."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.errors import MediaError
from agent.recording import writer as writing
from agent.recording.files import Batch, Plan, RecordingFiles
from agent.recording.lanes import Slot
from agent.recording.packets import Kind, head_of, read_log, record
from agent.recording.sealed import unseal
from agent.recording.timeline import line
from agent.recording.writer import MAX_PENDING_BYTES, Recording, RecordingWriter
from tests.agent.recording.studio import ogg_samples, stereo, wav_samples

KEY = bytes(32)
SECOND = Batch(
    tuple(Slot(np.full(480, 900, np.int16), (np.full(320, 700, np.int16),)) for _ in range(50)),
    record(Kind.PACKET, 1.0, b"packet"),
    line({"t_ms": 0, "event": "ReplyStarted"}),
)


def plan(folder: Path, name: str = "call_1", fmt: str = "wav", key: bytes | None = None, free: int = 0) -> Plan:
    head = {"format": "rejoinder.events", "version": 1}
    return Plan(folder, name, fmt, 24_000, head, {"call": name}, key, free)  # type: ignore[arg-type]


@pytest.mark.parametrize("fmt", ["wav", "ogg"])
def test_a_process_that_dies_leaves_files_that_can_be_read(tmp_path: Path, fmt: str) -> None:
    pid = os.fork()
    if not pid:
        try:
            files = RecordingFiles(plan(tmp_path, fmt=fmt))
            for _ in range(3):
                files.write(SECOND)
        finally:
            os.kill(os.getpid(), 9)
    os.waitpid(pid, 0)
    samples = stereo(tmp_path / f"call_1.{fmt}")
    per_s = 16_000 if fmt == "wav" else 48_000
    assert 3 * per_s - 2_000 <= len(samples) <= 3 * per_s
    log = read_log((tmp_path / "call_1.packets").read_bytes())
    assert not log.whole
    assert len(log.records) == 3
    rows = (tmp_path / "call_1.events.jsonl").read_text().splitlines()
    assert [json.loads(row).get("event") for row in rows] == [None] + ["ReplyStarted"] * 3


@pytest.mark.parametrize("fmt", ["wav", "ogg"])
def test_an_encrypted_recording_that_dies_can_be_read_up_to_there(tmp_path: Path, fmt: str) -> None:
    files = RecordingFiles(plan(tmp_path, fmt=fmt, key=KEY))
    files.write(SECOND)
    data, whole = unseal((tmp_path / f"call_1.{fmt}.sealed").read_bytes(), KEY)
    assert not whole
    assert 63_000 < len(data) - 44 <= 64_000 if fmt == "wav" else 46_000 < len(ogg_samples(data)) <= 48_000
    files.close("over")
    data, whole = unseal((tmp_path / f"call_1.{fmt}.sealed").read_bytes(), KEY)
    assert whole
    assert len(data) == 44 + 64_000 if fmt == "wav" else len(ogg_samples(data)) == 48_000
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".sealed"] * 3


def test_files_are_for_their_owner_alone_and_never_replace_others(tmp_path: Path) -> None:
    files = RecordingFiles(plan(tmp_path))
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    with pytest.raises(FileExistsError):
        RecordingFiles(plan(tmp_path))
    files.close("over")


@pytest.fixture
def small_files() -> Iterator[None]:
    """Files of this process may grow to 200 KB: the system itself refuses the next byte."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def written(folder: Path) -> list[Path]:
    return list(folder.iterdir())


class Owner:
    """Is told of failures."""

    def __init__(self) -> None:
        self.reasons: list[str] = []
        self.told = asyncio.Event()

    def failed(self, reason: str) -> None:
        self.reasons.append(reason)
        self.told.set()


async def test_a_disk_that_fills_up_ends_the_recording_with_a_reason(tmp_path: Path, small_files: None) -> None:
    owner = Owner()
    async with RecordingWriter() as writer:
        recording = Recording(writer, plan(tmp_path), owner.failed)
        for _ in range(6):
            recording.put(SECOND)
        await asyncio.wait_for(owner.told.wait(), 10)
        assert recording.failed
        recording.put(SECOND)
        recording.end("peer closed")
    assert owner.reasons == ["File too large"]
    samples = wav_samples((tmp_path / "call_1.wav").read_bytes())
    assert 2 * 16_000 <= len(samples) <= 200_000 // 4
    rows = (tmp_path / "call_1.events.jsonl").read_text().splitlines()
    assert json.loads(rows[-1]) == {"t_ms": 4_000, "event": "RecordingEnded", "reason": "File too large"}


async def test_a_disk_with_too_little_room_is_left_alone(tmp_path: Path) -> None:
    owner = Owner()
    async with RecordingWriter() as writer:
        Recording(writer, plan(tmp_path, free=1 << 60), owner.failed).put(SECOND)
        await asyncio.wait_for(owner.told.wait(), 10)
    assert "are to stay free" in owner.reasons[0]
    assert written(tmp_path) == []


async def test_a_disk_that_fills_up_while_others_write_ends_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner()
    async with RecordingWriter() as writer:
        recording = Recording(writer, plan(tmp_path), owner.failed)
        recording.put(SECOND)

        def no_room(folder: Path, minimum: int) -> None:
            raise MediaError("12 MB free on the disk")

        monkeypatch.setattr("agent.recording.files.check_room", no_room)
        for _ in range(20):
            recording.put(SECOND)
            await asyncio.sleep(0)
        await asyncio.wait_for(owner.told.wait(), 10)
    assert owner.reasons == ["12 MB free on the disk"]


async def test_a_slow_disk_drops_the_recording_and_bounds_what_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, stuck = threading.Event(), threading.Event()

    class Slow(RecordingFiles):
        def write(self, batch: Batch) -> None:
            stuck.set()
            go_on.wait(20)
            super().write(batch)

    monkeypatch.setattr(writing, "RecordingFiles", Slow)
    slow, quick = Owner(), Owner()
    async with RecordingWriter() as writer:
        recording = Recording(writer, plan(tmp_path, "call_slow"), slow.failed)
        most = MAX_PENDING_BYTES // SECOND.size_bytes
        recording.put(SECOND)
        assert await asyncio.to_thread(stuck.wait, 10)
        for _ in range(most - 1):
            recording.put(SECOND)
        assert not recording.failed
        recording.put(SECOND)
        assert recording.failed
        assert slow.reasons == ["the disk is slow: 2 MiB are waiting to be written"]
        go_on.set()
        other = Recording(writer, plan(tmp_path, "call_quick"), quick.failed)
        other.put(SECOND)
        other.end("peer closed")
    assert quick.reasons == []
    assert len(stereo(tmp_path / "call_quick.wav")) == 16_000
    assert len(stereo(tmp_path / "call_slow.wav")) == 16_000


async def test_a_recording_that_fails_in_an_unforeseen_way_leaves_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken(RecordingFiles):
        def write(self, batch: Batch) -> None:
            if self._plan.name == "call_broken":
                raise ZeroDivisionError
            super().write(batch)

    monkeypatch.setattr(writing, "RecordingFiles", Broken)
    broken, fine = Owner(), Owner()
    async with RecordingWriter() as writer:
        for name, owner in (("call_broken", broken), ("call_fine", fine)):
            recording = Recording(writer, plan(tmp_path, name), owner.failed)
            recording.put(SECOND)
            recording.end("peer closed")
        await asyncio.wait_for(broken.told.wait(), 10)
    assert broken.reasons == ["ZeroDivisionError"]
    assert fine.reasons == []
    assert len(stereo(tmp_path / "call_fine.wav")) == 16_000


async def test_a_server_that_stops_writes_what_is_left(tmp_path: Path) -> None:
    owner = Owner()
    async with RecordingWriter() as writer:
        recording = Recording(writer, plan(tmp_path, fmt="ogg"), owner.failed)
        for _ in range(10):
            recording.put(SECOND)
        recording.end("server stopped")
    assert len(stereo(tmp_path / "call_1.ogg")) == 480_000


async def test_a_recording_that_nobody_ended_is_finished_when_the_server_stops(tmp_path: Path) -> None:
    async with RecordingWriter() as writer:
        Recording(writer, plan(tmp_path, fmt="ogg"), Owner().failed).put(SECOND)
    assert len(stereo(tmp_path / "call_1.ogg")) == 48_000
    assert b'"RecordingEnded", "reason": "server stopped"' in (tmp_path / "call_1.events.jsonl").read_bytes()


def test_the_log_of_a_plan_begins_with_its_head(tmp_path: Path) -> None:
    RecordingFiles(plan(tmp_path)).close("over")
    assert (tmp_path / "call_1.packets").read_bytes() == head_of({"call": "call_1"})
