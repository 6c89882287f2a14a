"""Shared memory: room is checked at start, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from agent.core.link import Link
from agent.core.ring import ring_bytes
from agent.core.shm import RingPlace, ShmServer, connect_shm
from agent.errors import CoreLost, EnvironmentFault

ROOT = Path(__file__).resolve().parents[3]

NO_ROOM = """
import asyncio, resource, signal, sys
from pathlib import Path
from agent.core.shm import RingPlace, ShmServer
from agent.errors import EnvironmentFault
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
async def main():
    async with ShmServer(Path(sys.argv[1]), RingPlace(4096, Path(sys.argv[2]) if sys.argv[2] else None), print):
        print("it listens")
try:
    asyncio.run(main())
except EnvironmentFault as exc:
    print(exc)
"""


@pytest.mark.parametrize("folder", ["", "here"])
def test_lack_of_room_is_told_at_start_with_size_place_and_setting(folder: str, tmp_path: Path) -> None:
    place = str(tmp_path) if folder else ""
    done = subprocess.run(
        [sys.executable, "-c", NO_ROOM, str(tmp_path / "c"), place],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    line = done.stdout.strip()
    assert "\n" not in line
    assert f"{2 * ring_bytes(4096) / 2**20:.1f} MiB" in line
    assert (str(tmp_path) if folder else "memfd") in line
    assert "core.ring_slots below 4096" in line
    assert "core.ring_dir" in line


def test_a_folder_that_cannot_hold_a_ring_is_told() -> None:
    with pytest.raises(EnvironmentFault, match=r"core.ring_dir: cannot make a ring in /proc"):
        RingPlace(1024, Path("/proc")).allocate()


def test_a_ring_in_a_folder_has_no_name_there(tmp_path: Path) -> None:
    descriptor = RingPlace(1024, tmp_path).allocate()
    try:
        assert os.fstat(descriptor).st_size == 2 * ring_bytes(1024)
        assert os.fstat(descriptor).st_blocks * 512 >= 2 * ring_bytes(1024)
        assert list(tmp_path.iterdir()) == []
    finally:
        os.close(descriptor)


def test_no_peer_can_make_the_memory_smaller() -> None:
    descriptor = RingPlace().allocate()
    try:
        with pytest.raises(PermissionError):
            os.ftruncate(descriptor, 0)
    finally:
        os.close(descriptor)


async def test_somebody_else_on_the_socket_is_not_taken_for_a_core(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind(str(tmp_path / "c"))
        other.listen()
        connecting = asyncio.create_task(connect_shm(tmp_path / "c"))
        await asyncio.sleep(0)
        other.setblocking(False)
        peer, _ = await asyncio.get_running_loop().sock_accept(other)
        with peer:
            peer.send(b"HTTP/1.1 200 OK\r\n")
            with pytest.raises(EnvironmentFault, match="no Rejoinder core of this version"):
                await connecting


async def test_nobody_on_the_socket_is_told(tmp_path: Path) -> None:
    with pytest.raises(CoreLost, match="No such file"):
        await connect_shm(tmp_path / "c")


async def test_an_edge_for_whom_there_is_no_room_is_turned_away_and_the_core_goes_on(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    links: list[Link] = []
    async with ShmServer(tmp_path / "c", RingPlace(1024, rings), links.append):
        rings.rmdir()
        with pytest.raises((CoreLost, EnvironmentFault)):
            await connect_shm(tmp_path / "c")
        assert links == []
        rings.mkdir()
        links.append(await connect_shm(tmp_path / "c"))
        assert len(links) == 2
        for link in links:
            await link.close()
