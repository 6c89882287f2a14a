"""A server that was started before finds its phrases on disk and does not make them again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.conftest import StartServer
from tests.e2e.support import ROOT, Server, wait_for
from tests.e2e.test_stream import Call


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


async def test_a_call_is_foreseen_from_the_calls_before_it(start_server: StartServer, tmp_path: Path) -> None:
    server = start_server(REJOINDER_CACHE__FOLDER=str(tmp_path))
    for _ in range(2):
        async with Call(server, 16_000) as caller:
            await caller.until(lambda c=caller: c.heard, "the greeting")
            await caller.quiet()
            before = len(caller.heard)
            await caller.ws.send_str(json.dumps({"type": "text", "text": "Are you open on Sunday?"}))
            await caller.until(lambda c=caller, n=before: len(c.heard) > n, "the answer")
            await caller.quiet()
            await caller.ws.close()
    wait_for(lambda: server.metric("voice_calls_active") == 0, "the calls to be gone")
    assert server.stop() == 0
    lines = [json.loads(line) for line in server.log.read_text().splitlines()]
    first, second = (explained(tmp_path, line["call_id"]) for line in lines if line["message"] == "call started")
    # The greeting is made at start-up; of the rest nothing could be known. The second call is like the first.
    assert [turn["ready"] for turn in first] == [True, False]
    assert [turn["ready"] for turn in second] == [True, True]
    answer = second[1]
    assert answer["used"]
    assert answer["opening"] in [each["opening"] for each in answer["predicted"]]


def explained(folder: Path, call: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-m", "agent", "cache", "explain", "--json", call],
        env={**os.environ, "PYTHONPATH": str(ROOT), "REJOINDER_CACHE__FOLDER": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]
