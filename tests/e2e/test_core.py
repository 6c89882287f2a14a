"""A media server whose engines are in a core process: recorded words are answered, and a killed core ends no call."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.config import PhraseSettings
from agent.media.frames import Pcm
from agent.speech.clips import read_wav
from tests.e2e.support import ROOT, wait_for
from tests.e2e.test_stream import Call

START_S = 60
SPEECH = Path(os.environ.get("REJOINDER_SPEECH") or ROOT / ".." / "shared" / "speech").resolve()


class Core:
    """A running `rejoinder core`."""

    def __init__(self, url: str, folder: Path) -> None:
        shards = ("--shard", "asr:en", "--shard", "tts:heart")
        told = ("--metrics", "127.0.0.1:0", "--json", "--log-json")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "agent", "core", *shards, "--listen", url, *told],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=(folder / "core-log").open("a"),
            text=True,
        )
        assert self.process.stdout is not None
        readable, _, _ = select.select([self.process.stdout], [], [], START_S)
        line = self.process.stdout.readline() if readable else ""
        if not line:
            self.process.kill()
            pytest.fail(f"the core did not start: {(folder / 'core-log').read_text()[-2000:]}")
        self.metrics_at = json.loads(line)["metrics"]

    def get(self, path: str) -> str:
        with urllib.request.urlopen(f"http://{self.metrics_at}{path}", timeout=5) as answer:
            return str(answer.read().decode())

    def streams(self) -> float:
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith("voice_core_active_streams{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)


@pytest.fixture
def start_core(tmp_path: Path) -> Iterator[Callable[[str], Core]]:
    started: list[Core] = []

    def start(url: str) -> Core:
        started.append(Core(url, tmp_path))
        return started[-1]

    yield start
    for core in started:
        if core.process.poll() is None:
            core.process.send_signal(signal.SIGTERM)
            assert core.process.wait(20) == 0
        assert core.process.stdout is not None
        core.process.stdout.close()


def recorded() -> Pcm:
    """ "Go forward ten meters", said by a person."""
    pcm, rate_hz = read_wav(SPEECH / "wav16" / "goforward.wav")
    assert rate_hz == 16_000
    return pcm


async def test_a_call_outlives_the_core_that_was_killed_under_it(start_core, start_server, tmp_path: Path) -> None:
    url = f"unix:{tmp_path}/core.sock"
    core = start_core(url)
    server = start_server(
        REJOINDER_CORE__URL=url,
        REJOINDER_NLU__KIND="echo",
        REJOINDER_CONVERSATION__GREET="false",
        # The voice has nobody to stand in for it: what is heard without a core was made before.
        REJOINDER_TTS__FALLBACK="none",
    )
    apology = PhraseSettings().apology
    async with Call(server, 16_000) as caller:
        caller.to_say.append(recorded())
        await caller.until(lambda: caller.transcripts("agent"), "an answer to the recorded words", 40)
        assert "go forward" in caller.transcripts("user")[0].lower()
        assert "go forward" in caller.transcripts("agent")[0].lower()
        assert caller.heard
        await caller.quiet()

        core.process.kill()
        core.process.wait(10)
        before = len(caller.heard)
        caller.to_say.append(recorded())
        await caller.until(lambda: apology in caller.transcripts("agent"), "the apology that was made before", 40)
        assert len(caller.heard) > before
        await caller.quiet()

        core = start_core(url)
        answers = len(caller.transcripts("agent"))

        def answered() -> bool:
            return any("go forward" in text.lower() for text in caller.transcripts("agent")[answers:])

        caller.to_say.append(recorded())
        await caller.until(answered, "an answer by the core's successor", 40)
        wait_for(lambda: core.streams() == 0, "the turn's streams to be over")
    assert server.metric("voice_errors_total") >= 1
