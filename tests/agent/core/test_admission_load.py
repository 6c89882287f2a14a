"""What is reported for admission."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from agent.core.admission import Load
from agent.core.admission_load import MAX_ANSWERS, WINDOW_S, FirstPackets, memory_share

MEMINFO = "MemTotal:       1000 kB\nMemFree:         100 kB\nMemAvailable:    250 kB\n"


def test_the_mean_is_of_the_last_seconds() -> None:
    packets = FirstPackets()
    packets.add(1000.0, 0.0)
    packets.add(200.0, WINDOW_S - 1)
    packets.add(400.0, WINDOW_S - 1)
    assert packets.load(0.5, WINDOW_S) == Load(0.5, 300.0, 2)


def test_without_answers_there_is_no_mean() -> None:
    packets = FirstPackets()
    packets.add(100.0, 0.0)
    assert packets.load(0.5, WINDOW_S) == Load(0.5, None, 0)


def test_a_flood_of_answers_is_bounded() -> None:
    packets = FirstPackets()
    for _ in range(MAX_ANSWERS + 10):
        packets.add(1.0, 0.0)
    assert packets.load(0.0, 0.0).answers == MAX_ANSWERS


def files(**contents: str) -> Callable[[Path], str]:
    def read(path: Path) -> str:
        name = path.name.replace(".", "_")
        if name not in contents:
            raise FileNotFoundError(path)
        return contents[name]

    return read


def test_on_a_host_without_a_limit_memory_is_that_of_the_host() -> None:
    assert memory_share(files(meminfo=MEMINFO, memory_max="max\n")) == 0.75
    assert memory_share(files(meminfo=MEMINFO)) == 0.75


def test_in_a_container_its_limit_counts_without_the_page_cache_that_can_be_dropped() -> None:
    read = files(
        meminfo=MEMINFO, memory_max="2000\n", memory_current="1900\n", memory_stat="anon 5\ninactive_file 100\n"
    )
    assert memory_share(read) == 0.9


def test_a_host_that_is_fuller_than_the_container_counts() -> None:
    read = files(meminfo=MEMINFO, memory_max="2000\n", memory_current="200\n", memory_stat="inactive_file 0\n")
    assert memory_share(read) == 0.75


def test_what_cannot_be_read_is_no_reason_to_refuse() -> None:
    assert memory_share(files()) == 0.0
    assert memory_share(files(meminfo="nonsense", memory_max="x")) == 0.0


def test_this_machine_has_a_share() -> None:
    assert 0.0 <= memory_share() <= 1.0
