"""A server that records: a call on real engines, its files and its replay; a server that stops, and one that dies."""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import av
import numpy as np
import pytest

from agent.recording.packets import read_log
from tests.e2e.conftest import StartServer
from tests.e2e.support import ROOT, Server, say, wait_for

ANNOUNCEMENT = "This call is recorded."


async def call(server: Server, words: str, *, until: str, seconds: float = 25.0) -> None:
    """Say `words` once the greeting is over, and hang up after a message that holds `until`."""
    voice, silence = say(words), np.zeros(320, np.int16)
    async with aiohttp.ClientSession() as session:
        ws = await session.ws_connect(f"{server.url}/v1/stream?rate=16000&record=1&token={server.token}")
        said: list[str] = []

        async def talk() -> None:
            clock = asyncio.get_running_loop().time
            start, sent, at = clock(), 0, None
            while True:
                if at is None and any("help" in text for text in said):
                    at = sent + 75
                frame = silence
                if at is not None and at <= sent < at + len(voice) // 320:
                    frame = voice[(sent - at) * 320 : (sent - at + 1) * 320]
                await ws.send_bytes(frame.tobytes())
                sent += 1
                await asyncio.sleep(max(0.0, start + sent * 0.02 - clock()))

        talking = asyncio.create_task(talk())
        try:
            async with asyncio.timeout(seconds):
                async for message in ws:
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        continue
                    body = json.loads(message.data)
                    if body["type"] == "transcript" and body["final"]:
                        said.append(body["text"])
                    if until in message.data:
                        break
        finally:
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)
            await ws.close()


def agent(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "agent", *args],
        cwd=ROOT,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def written(folder: Path) -> int:
    """Bytes of sound."""
    return sum(path.stat().st_size for path in folder.glob("*.ogg"))


def files(folder: Path) -> dict[str, Path]:
    return {path.name.partition(".")[2]: path for path in folder.iterdir()}


async def test_a_call_is_recorded_and_replayed(start_server: StartServer, tmp_path: Path) -> None:
    folder = tmp_path / "recordings"
    server = start_server(
        REJOINDER_RECORDING__MODE="asked",
        REJOINDER_RECORDING__FOLDER=str(folder),
        REJOINDER_RECORDING__ANNOUNCEMENT=ANNOUNCEMENT,
        REJOINDER_RECORDING__MIN_FREE_MB="0",
    )
    await call(server, "What are your opening hours?", until="timings")
    wait_for(lambda: b"RecordingEnded" in files(folder)["events.jsonl"].read_bytes(), "the files are finished")
    made = files(folder)
    assert set(made) == {"ogg", "events.jsonl", "packets"}
    rows = [json.loads(line) for line in made["events.jsonl"].read_text().splitlines()]
    with av.open(io.BytesIO(made["ogg"].read_bytes())) as file:
        samples = np.concatenate([frame.to_ndarray() for frame in file.decode(audio=0)], axis=1)
    assert samples.shape == (2, rows[-1]["t_ms"] * 48)
    # The agent speaks first and the caller is silent then; the caller's words begin where the events say.
    begun = next(row["audio_ms"] for row in rows if row.get("event") == "SpeechStarted")
    loud = np.flatnonzero(np.abs(samples[0]) > 0.05)[0] / 48
    assert abs(loud - begun) < 200
    assert np.flatnonzero(np.abs(samples[1]) > 0.05)[0] / 48 < 2_000
    done = agent("replay", str(made["packets"]), "--json")
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    heard = [entry["text"] for entry in told["replayed"] if entry["who"] == "agent"]
    assert heard[0].startswith(ANNOUNCEMENT)
    assert [e["text"] for e in told["replayed"] if e["who"] == "caller"] == ["What are your opening hours?"]
    assert [e["text"] for e in told["recorded"] if e["who"] == "caller"] == ["What are your opening hours?"]
    assert agent("replay", str(made["packets"]), "--json").stdout == done.stdout


@pytest.mark.parametrize("kill", [False, True])
async def test_a_server_that_stops_or_dies_leaves_recordings(
    start_server: StartServer, tmp_path: Path, kill: bool
) -> None:
    folder = tmp_path / "recordings"
    server = start_server(
        REJOINDER_RECORDING__MODE="always",
        REJOINDER_RECORDING__FOLDER=str(folder),
        REJOINDER_RECORDING__MIN_FREE_MB="0",
        REJOINDER_SERVER__DRAIN_S="0",
    )
    calling = asyncio.create_task(call(server, "hello", until="hangup"))
    await asyncio.to_thread(wait_for, lambda: written(folder) > 9_000, "a second of sound is written", 60.0)
    if kill:
        server.process.kill()
        server.process.wait(20)
    else:
        assert await asyncio.to_thread(server.stop) == 0
    await asyncio.gather(calling, return_exceptions=True)
    made = files(folder)
    with av.open(io.BytesIO(made["ogg"].read_bytes())) as file:
        assert sum(frame.samples for frame in file.decode(audio=0)) > 48_000
    log = read_log(made["packets"].read_bytes())
    assert log.whole is not kill
    assert len(log.records) > 50
    done = agent("replay", str(made["packets"]))
    if kill:
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "--partial" in done.stderr
        done = agent("replay", str(made["packets"]), "--partial")
    assert done.returncode == 0, done.stderr
    assert "Hello" in done.stdout
