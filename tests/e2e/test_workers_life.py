"""How a server of several workers starts, fails to start, stops, and is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import aiohttp
import pytest

from tests.e2e.conftest import StartServer
from tests.e2e.fleet import alive, calls, eventually, workers
from tests.e2e.support import ROOT, Server, wait_for
from tests.e2e.test_stream import Call


async def exit_code(server: Server, seconds: float) -> int:
    return await asyncio.to_thread(server.process.wait, seconds)


def serve(folder: Path, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A server that is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "agent", "serve", "--workers", "2", "--log-json", *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


def ended(caller) -> list[str]:  # type: ignore[no-untyped-def]
    return [str(message["reason"]) for message in caller.messages if message["type"] == "hangup"]


async def test_sigterm_lets_calls_finish_and_hangs_up_the_rest(start_server: StartServer) -> None:
    server = start_server("--workers", "2", REJOINDER_SERVER__DRAIN_S="6")
    pids = workers(server)
    async with Call(server, 8_000) as polite, Call(server, 8_000) as stubborn, aiohttp.ClientSession() as http:
        await eventually(lambda: calls(server) == {1: 1, 2: 1}, "a call each")
        await polite.until(lambda: polite.heard, "the greeting")
        began = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        # Both calls go on, and nobody new comes in.
        headers = {"Authorization": f"Bearer {server.token}"}
        draining = False
        while not draining:
            async with http.get(f"{server.url}/readyz") as answer:
                draining = answer.status == 503
        async with http.post(f"{server.url}/v1/calls", json={"sdp": "v=0\r\n"}, headers=headers) as answer:
            assert answer.status == 503
            assert int(answer.headers["Retry-After"]) > 0
            assert "shutting down" in (await answer.json(content_type=None))["detail"]
        said = len(polite.transcripts("agent"))
        await polite.ws.send_json({"type": "text", "text": "How much is delivery?"})
        await polite.until(lambda: len(polite.transcripts("agent")) > said, "an answer while draining", 5)
        await polite.ws.send_json({"type": "hangup"})
        await polite.until(lambda: ended(polite), "the polite call's end", 3)
        assert ended(stubborn) == []
        await stubborn.until(lambda: ended(stubborn), "the stubborn call's end", 10)
        assert ended(stubborn) == ["server stopped"]
        assert time.monotonic() - began >= 5.9
    assert await exit_code(server, 15) == 0
    assert not [pid for pid in pids.values() if alive(pid)]


async def test_a_second_signal_hurries(start_server: StartServer) -> None:
    server = start_server("--workers", "2", REJOINDER_SERVER__DRAIN_S="300")
    pids = workers(server)
    async with Call(server, 8_000) as caller:
        await caller.until(lambda: caller.heard, "the greeting")
        server.process.send_signal(signal.SIGINT)
        await asyncio.sleep(0.5)
        assert ended(caller) == []
        server.process.send_signal(signal.SIGINT)
        await caller.until(lambda: ended(caller), "the call's end", 5)
        assert ended(caller) == ["server stopped"]
    assert await exit_code(server, 20) == 0
    assert not [pid for pid in pids.values() if alive(pid)]


@pytest.mark.chaos
async def test_killing_the_supervisor_leaves_no_process_behind(start_server: StartServer) -> None:
    server = start_server("--workers", "2")
    pids = workers(server)
    assert set(pids) == {1, 2}
    async with Call(server, 8_000) as caller:
        await caller.until(lambda: caller.heard, "the greeting")
        server.process.kill()
        # The worker says goodbye before it goes.
        await caller.until(lambda: ended(caller), "the call's end", 5)
        assert ended(caller) == ["server stopped"]
    await eventually(lambda: not [pid for pid in pids.values() if alive(pid)], "all workers gone", 15)


@pytest.mark.chaos
async def test_not_even_a_worker_that_hangs_outlives_the_supervisor(start_server: StartServer) -> None:
    server = start_server("--workers", "2", "--hook", str(ROOT / "tests/e2e/hanging_hook.py") + ":reply")
    pids = workers(server)
    async with aiohttp.ClientSession() as http:
        ws = await http.ws_connect(f"{server.url}/v1/stream?rate=8000&token={server.token}")
        await eventually(lambda: sum(calls(server).values()) == 1, "the call placed")
        await asyncio.sleep(0.5)
        server.process.kill()
        await eventually(lambda: not [pid for pid in pids.values() if alive(pid)], "all workers gone", 25)
        await ws.close()


@pytest.mark.chaos
def test_a_worker_that_hangs_is_ended_and_started_anew(start_server: StartServer) -> None:
    server = start_server("--workers", "2")
    pids = workers(server)
    os.kill(pids[2], signal.SIGSTOP)
    wait_for(lambda: workers(server).get(2, pids[2]) != pids[2], "a new process", 20)
    wait_for(lambda: '"worker": 2, "state": "ready", "calls": 0, "reason": ""' in server.get("/healthz"), "ready", 30)
    assert workers(server)[1] == pids[1]


def test_a_taken_port_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = serve(tmp_path, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 2
    assert "is taken by another program" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_what_is_wrong_in_a_worker_is_told_in_its_words(tmp_path: Path) -> None:
    done = serve(tmp_path, "--port", "0", "--hook", "./missing.py:reply")
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: ")
    assert "missing.py" in last
    assert done.stdout == ""


@pytest.mark.chaos
def test_a_crash_loop_at_start_ends_with_one_error(tmp_path: Path) -> None:
    (tmp_path / "crash.py").write_text("import os\n\nos._exit(9)\n")
    done = serve(tmp_path, "--port", "0", "--hook", "./crash.py:reply")
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert "ended 4 times before it was ready (last with exit code 9)" in errors[0]
    assert done.stdout == ""


@pytest.mark.parametrize("workers_asked", ["0", "-1", "65"])
def test_a_wrong_number_of_workers_is_exit_code_2(tmp_path: Path, workers_asked: str) -> None:
    done = serve(tmp_path, "--port", "0", "--workers", workers_asked)
    assert done.returncode == 2
    assert "server.workers" in done.stderr
