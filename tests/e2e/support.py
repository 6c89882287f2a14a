"""What the end-to-end tests share: a server in a process of its own, and callers that a machine gives words to."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from agent.media.frames import Pcm
from agent.media.resample import resample
from agent.speech.clips import read_wav
from tests.e2e.network import in_namespace

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Server:
    """A running `rejoinder serve`."""

    process: subprocess.Popen[str]
    url: str
    token: str
    namespace: str | None = None
    """The network namespace it is reached from."""
    log: Path = Path(os.devnull)
    """Its log, JSON lines."""

    def get(self, path: str) -> str:
        return in_namespace(self.namespace, lambda: self._get(path)) if self.namespace else self._get(path)

    def _get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=5) as answer:
            return str(answer.read().decode())

    def metric(self, name: str) -> float:
        """Sum of a metric's samples over all labels."""
        lines = [line for line in self.get("/metrics").splitlines() if line.startswith((name + "{", name + " "))]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


def wait_for(condition: Callable[[], object], what: str, seconds: float = 10.0) -> None:
    """Wait for something outside this process."""
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            pytest.fail(f"not within {seconds:g} s: {what}")
        time.sleep(0.05)


def say(text: str, rate_hz: int = 16_000) -> Pcm:
    """Speech by flite, a voice that is not the agent's: int16 [n]."""
    folder = Path(os.environ.get("TMPDIR", "/tmp"))
    path = folder / f"say-{os.getpid()}-{abs(hash(text))}.wav"
    subprocess.run(["flite", "-voice", "slt", "-t", text, "-o", str(path)], check=True, timeout=30)
    try:
        pcm, from_hz = read_wav(path)
    finally:
        path.unlink()
    return resample(pcm, from_hz, rate_hz)


def silence(seconds: float, rate_hz: int = 16_000) -> Pcm:
    """Digital silence: int16 [n]."""
    return np.zeros(round(seconds * rate_hz), np.int16)
