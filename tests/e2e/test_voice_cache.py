"""A server that was started before finds its phrases on disk and does not make them again."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.conftest import StartServer
from tests.e2e.support import Server


def lookups(server: Server, tier: str, result: str) -> float:
    name = f'voice_cache_requests_total{{result="{result}",tier="{tier}"}}'
    return sum(float(line.rsplit(" ", 1)[1]) for line in server.get("/metrics").splitlines() if line.startswith(name))


def test_a_second_start_finds_the_phrases_on_disk(start_server: StartServer, tmp_path: Path) -> None:
    folder = {"REJOINDER_CACHE__FOLDER": str(tmp_path)}
    first = start_server(**folder)
    made = lookups(first, "engine", "stored")
    assert made >= 6
    assert lookups(first, "disk", "hit") == 0
    assert first.stop() == 0
    assert len(list((tmp_path / "speech").glob("*.rjv"))) == made
    second = start_server(**folder)
    assert lookups(second, "disk", "hit") == made
    assert lookups(second, "engine", "stored") == 0


def test_a_cache_that_is_off_keeps_nothing(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(REJOINDER_CACHE__FOLDER=str(tmp_path / "voice"), REJOINDER_CACHE__ENABLED="false")
    assert lookups(server, "engine", "stored") == 0
    assert not (tmp_path / "voice").exists()
