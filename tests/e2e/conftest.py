"""A whole server for the end-to-end tests."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.media.frames import Pcm
from tests.e2e.support import ROOT, Server

START_S = 60

DEFAULTS = {
    "REJOINDER_SERVER__DRAIN_S": "1",
    # Whether a call is taken must not hang on what else this machine does; the test of lateness sets its own.
    "REJOINDER_SERVER__MAX_LAG_MS": "0",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(str(item.fspath)).is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.e2e)


StartServer = Callable[..., Server]


@pytest.fixture(scope="module")
def start_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartServer]:
    """Starts servers on free ports, with settings as environment variables; each must end cleanly."""
    started: list[Server] = []

    def start(*args: str, namespace: str | None = None, **env: str) -> Server:
        folder = tmp_path_factory.mktemp("server")
        prefix = ("ip", "netns", "exec", namespace) if namespace else ()
        process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "agent", "serve", "--port", "0", "--json", "--log-json", *args],
            cwd=folder,
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                # Speech that an earlier run left must not stand in for what this one makes.
                "REJOINDER_CACHE__FOLDER": str(folder / "voice"),
                **DEFAULTS,
                **env,
            },
            stdout=subprocess.PIPE,
            stderr=(folder / "log").open("w"),
            text=True,
        )
        assert process.stdout is not None
        readable, _, _ = select.select([process.stdout], [], [], START_S)
        line = process.stdout.readline() if readable else ""
        if not line:
            process.kill()
            pytest.fail(f"the server did not start: {(folder / 'log').read_text()[-2000:]}")
        told = json.loads(line)
        server = Server(process, told["url"], told["token"], namespace, folder / "log")
        started.append(server)
        return server

    yield start
    for server in started:
        if server.process.poll() is None:
            assert server.stop() == 0


@pytest.fixture(scope="module")
def server(start_server: StartServer) -> Server:
    """The shop example, as `make serve` starts it."""
    return start_server()


@pytest.fixture(scope="session")
def transcribe() -> Callable[[Pcm, int], str]:
    """The embedded recogniser over a recording, in a process of its own."""

    def run(pcm: Pcm, rate_hz: int) -> str:
        from agent.speech.clips import write_wav

        path = Path(os.environ.get("TMPDIR", "/tmp")) / f"heard-{os.getpid()}.wav"
        write_wav(path, pcm, rate_hz)
        try:
            done = subprocess.run(
                [sys.executable, "-m", "agent", "listen", "--json", str(path)],
                cwd=ROOT,
                capture_output=True,
                text=True,
                timeout=120,
                check=True,
            )
        finally:
            path.unlink()
        return str(json.loads(done.stdout)["text"])

    return run
