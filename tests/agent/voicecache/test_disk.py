"""The tier on disk."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from agent.errors import EnvironmentFault
from agent.voicecache.disk import MAX_WAITING, DiskThread, DiskTier
from agent.voicecache.format import dump
from tests.agent.voicecache.support import entry, key_of

ROOT = Path(__file__).resolve().parents[3]

WRITES_ON_AND_ON = """
import sys
from pathlib import Path
from agent.voicecache.disk import DiskTier
from tests.agent.voicecache.support import entry
tier = DiskTier(Path(sys.argv[1]), 10**9)
number = 0
while True:
    tier.put(entry(f"text {number % 50}", 0.5))
    number += 1
    if number == 20:
        print("going", flush=True)
"""

STOPS_HALF_WAY = """
import os, sys, threading
from pathlib import Path
from agent.voicecache.disk import DiskTier
from tests.agent.voicecache.support import entry

def half(file, data):
    os.write(file, data[: len(data) // 2])
    print("going", flush=True)
    threading.Event().wait()

DiskTier(Path(sys.argv[1]), 10**9, write=half).put(entry("One.", 0.5))
"""


def kill_while_writing(program: str, folder: Path) -> None:
    """Run it until it says that it is at it, then kill -9."""
    with subprocess.Popen(
        [sys.executable, "-c", program, str(folder)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stderr is not None
        said = writer.stdout.readline()
        writer.send_signal(signal.SIGKILL)
        assert said == b"going\n", writer.stderr.read().decode()


def file_of(tier: DiskTier, text: str) -> Path:
    return tier.folder / f"{key_of(text).hex}.rjv"


def test_what_was_put_is_found_by_another_process(tmp_path: Path) -> None:
    DiskTier(tmp_path, 10**6).put(entry("One."))
    other = DiskTier(tmp_path, 10**6)
    found = other.get(key_of("One."))
    assert found is not None
    assert found.text == "One."
    assert other.get(key_of("Two.")) is None
    assert other.size_bytes == file_of(other, "One.").stat().st_size
    assert file_of(other, "One.").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", [b"", b"RJVC", b"nonsense" * 100, None])
def test_a_damaged_file_is_a_miss_and_is_removed(tmp_path: Path, damage: bytes | None) -> None:
    tier = DiskTier(tmp_path, 10**6)
    tier.put(entry("One."))
    path = file_of(tier, "One.")
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data) if damage is None else damage)
    assert tier.get(key_of("One.")) is None
    assert not path.exists()
    assert tier.damaged == 1


def test_another_keys_speech_under_this_name_is_not_spoken(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 10**6)
    tier.put(entry("One."))
    file_of(tier, "One.").rename(file_of(tier, "Two."))
    assert tier.get(key_of("Two.")) is None
    assert not file_of(tier, "Two.").exists()


def test_the_bound_holds_and_what_was_used_lately_stays(tmp_path: Path) -> None:
    one = len(entry("1").pcm) * 2 + 200
    tier = DiskTier(tmp_path, 10 * one)
    for number in range(40):
        tier.put(entry(str(number)))
        os.utime(file_of(tier, str(number)), (number, number))
        if number >= 1 and file_of(tier, "0").exists():
            assert tier.get(key_of("0")) is not None
    total = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert total <= tier.max_bytes
    assert tier.get(key_of("39")) is not None
    assert tier.get(key_of("0")) is not None
    assert tier.get(key_of("5")) is None


def test_a_disk_that_fills_up_leaves_nothing_behind_and_the_old_entry_whole(tmp_path: Path) -> None:
    DiskTier(tmp_path, 10**6).put(entry("One."))

    def full(file: int, data: bytes) -> None:
        os.write(file, data[:100])
        raise OSError(28, "No space left on device")

    tier = DiskTier(tmp_path, 10**6, write=full)
    with pytest.raises(OSError, match="space"):
        tier.put(entry("One."))
    assert [path.name for path in tmp_path.iterdir()] == [file_of(tier, "One.").name]
    assert tier.get(key_of("One.")) is not None


def test_a_process_killed_while_it_writes_leaves_only_whole_entries(tmp_path: Path) -> None:
    kill_while_writing(WRITES_ON_AND_ON, tmp_path)
    tier = DiskTier(tmp_path, 10**9)
    keys = tier.keys()
    assert len(keys) >= 20
    assert all(tier.get(key) is not None for key in keys)
    assert tier.damaged == 0
    assert not list(tmp_path.glob("*.part"))


def test_a_process_killed_in_the_middle_of_an_entry_leaves_the_old_one(tmp_path: Path) -> None:
    DiskTier(tmp_path, 10**9).put(entry("One.", 0.1))
    kill_while_writing(STOPS_HALF_WAY, tmp_path)
    assert len(list(tmp_path.glob("*.part"))) == 1
    tier = DiskTier(tmp_path, 10**9)
    found = tier.get(key_of("One."))
    assert found is not None
    assert len(found.pcm) == len(entry("One.", 0.1).pcm)
    assert not list(tmp_path.glob("*.part"))


def test_what_other_processes_wrote_is_bounded_too(tmp_path: Path) -> None:
    one = len(dump(entry("text 0", 0.5)))
    ours, theirs = DiskTier(tmp_path, one * 4), DiskTier(tmp_path, one * 100)
    for number in range(8):
        theirs.put(entry(f"text {number}", 0.5))
    ours.trim()
    assert 0 < len(ours.keys()) <= 4
    assert ours.size_bytes == sum(path.stat().st_size for path in tmp_path.iterdir())


def test_a_killed_process_leaves_a_part_which_the_next_start_removes(tmp_path: Path) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (tmp_path / f"{'0' * 40}.{dead.pid}.part").write_bytes(b"half")
    alive = tmp_path / f"{'1' * 40}.{os.getpid()}.part"
    alive.write_bytes(b"being written")
    tier = DiskTier(tmp_path, 10**6)
    assert list(tmp_path.iterdir()) == [alive]
    assert tier.size_bytes == 0


def test_private_speech_is_refused(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 10**6)
    with pytest.raises(ValueError, match="private"):
        tier.put(entry("My name is Anna.", private=True))
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_told_with_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"cache\.folder"):
        DiskTier(tmp_path / "file" / "speech", 10**6)


def test_clear_and_keys(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, 10**6)
    for text in "ab":
        tier.put(entry(text))
    (tmp_path / "README").write_text("not ours")
    assert set(tier.keys()) == {key_of("a"), key_of("b")}
    assert tier.clear() == 2
    assert [path.name for path in tmp_path.iterdir()] == ["README"]


async def test_a_thread_that_is_behind_refuses_and_recovers() -> None:
    thread = DiskThread()
    go = threading.Event()
    waiting = [asyncio.ensure_future(thread.run(go.wait)) for _ in range(MAX_WAITING)]
    await asyncio.sleep(0)
    with pytest.raises(BlockingIOError):
        await thread.run(int)
    go.set()
    assert all(await asyncio.gather(*waiting))
    assert await thread.run(int) == 0
    await thread.close()


@pytest.mark.parametrize("name", ["x.99999999999999999999.part", "x.part", "x.-1.y.part"])
def test_a_strange_file_in_the_folder_harms_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"")
    DiskTier(tmp_path, 10**6)


def test_a_folder_that_cannot_be_looked_at_is_told_with_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: DiskTier) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(DiskTier, "trim", broken)
    with pytest.raises(EnvironmentFault, match=r"Input/output error; set cache\.folder"):
        DiskTier(tmp_path, 10**6)
