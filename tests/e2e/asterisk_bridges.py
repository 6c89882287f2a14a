"""Both bridges with a real Asterisk: run by `make test-asterisk`, not with the other tests, since it installs a Debian.

Four calls at once: AudioSocket by application (8 kHz) and by channel (16 kHz), the WebSocket channel at 16 kHz with
plain messages and in mu-law with JSON. Each plays a recorded question, records the answer, presses 0 and is
transferred.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from agent.media.frames import Pcm
from agent.media.resample import resample
from agent.speech.clips import read_wav, write_wav
from tests.e2e.conftest import StartServer
from tests.e2e.support import ROOT, Server, say, wait_for

TREE = Path(os.environ.get("REJOINDER_ASTERISK", "/var/tmp/rejoinder-asterisk"))
CONFIGURATION = ROOT / "tests" / "asterisk" / "etc"
FOLDER = Path("/rejoinder-test")
"""Within the tree."""

QUESTION = "How much is delivery?"
WAYS = ("audiosocket", "audiosocket16", "websocket", "websocket8")
TIMES = {"greeting_s": "6", "answer_s": "10", "key": "0", "key_s": "8"}


class Asterisk:
    """A running one."""

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder

    def command(self, text: str) -> str:
        """What its console answers."""
        done = subprocess.run(
            ["chroot", TREE, "asterisk", "-C", FOLDER / "etc" / "asterisk.conf", "-rx", text],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return done.stdout + done.stderr

    @property
    def log(self) -> str:
        file = self._folder / "full"
        return file.read_text(errors="replace") if file.exists() else ""

    def heard(self, way: str) -> Path:
        return self._folder / f"heard-{way}.wav"

    def stop(self) -> None:
        self.command("core stop now")
        self._process.wait(20)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def recorded(text: str) -> Pcm:
    """The question as a telephone has it: half a second of a room at -60 dBFS before and after, and throughout."""
    speech = np.pad(say(text, 8000), 4000).astype(np.float64)
    noise = np.random.default_rng(7).normal(0.0, 32.0, len(speech))
    return np.clip(speech + noise, -32768, 32767).astype(np.int16)


@pytest.fixture(scope="module")
def audiosocket_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def server(start_server: StartServer, audiosocket_port: int) -> Server:
    return start_server(REJOINDER_BRIDGES__ASTERISK="true", REJOINDER_BRIDGES__AUDIOSOCKET_PORT=str(audiosocket_port))


@pytest.fixture(scope="module")
def asterisk(server: Server, audiosocket_port: int) -> Iterator[Asterisk]:
    assert (TREE / ".complete").exists(), f"there is no Asterisk in {TREE}: run make test-asterisk"
    folder = TREE / FOLDER.relative_to("/")
    subprocess.run(["rm", "-rf", folder], check=True)
    (folder / "etc").mkdir(parents=True)
    (modules,) = TREE.glob("usr/lib/*/asterisk/modules")
    values = {
        "folder": str(FOLDER),
        "modules": f"/{modules.relative_to(TREE)}",
        "http_port": server.url.rsplit(":", 1)[1],
        "audiosocket_port": str(audiosocket_port),
        "token": server.token,
        **TIMES,
    }
    for source in CONFIGURATION.glob("*.conf"):
        text = source.read_text()
        for name, value in values.items():
            text = text.replace(f"{{{name}}}", value)
        (folder / "etc" / source.name).write_text(text)
    write_wav(folder / "question.wav", recorded(QUESTION), 8000)
    process = subprocess.Popen(
        ["chroot", TREE, "asterisk", "-f", "-C", FOLDER / "etc" / "asterisk.conf"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    running = Asterisk(process, folder)
    wait_for(lambda: "Asterisk Ready" in running.log, "Asterisk is ready", 30)
    yield running
    running.stop()


def test_a_recorded_question_is_answered_over_every_bridge(server: Server, asterisk: Asterisk, transcribe) -> None:  # type: ignore[no-untyped-def]
    for way in WAYS:
        asterisk.command(f"channel originate Local/{way}@agent/n extension {way}@caller")
    wait_for(lambda: all(f"the agent has left {way}" in asterisk.log for way in WAYS), "every call was left", 90)
    wait_for(lambda: "0 active channels" in asterisk.command("core show channels count"), "no channel is left", 30)
    heard = {way: transcribe(resample(*read_wav(asterisk.heard(way)), 8000), 8000) for way in WAYS}
    for way, text in heard.items():
        print(f"{way}: {text}")
    for way, text in heard.items():
        assert "delivery costs" in text.lower(), f"{way}: {text}"
        assert "colleague" in text.lower(), f"{way}: {text}"
    complaints = [line for line in asterisk.log.partition("Asterisk Ready")[2].splitlines() if "ERROR[" in line]
    assert not complaints
    assert server.metric("voice_calls_active") == 0
