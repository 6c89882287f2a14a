"""A media port and a detector that do what a test tells them. The other engines have files of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from agent.errors import EngineError, MediaError
from agent.listening.graph import WINDOW_SAMPLES
from agent.listening.silero import VadEngine, VadStream
from agent.media.frames import HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.playout import Playout
from agent.media.port import MediaSink
from agent.media.stats import PortStats
from agent.testing.recognizer import ScriptedRecognizer, ScriptedStream
from agent.testing.synthesizer import ScriptedSynthesizer

__all__ = ["ScriptedPort", "ScriptedRecognizer", "ScriptedStream", "ScriptedSynthesizer", "ScriptedVad", "voice"]

LOUD = 300
"""RMS above which the scripted detector hears speech."""


class ScriptedPort:
    """A port whose clock is the test: each `tick` brings one frame and takes one."""

    def __init__(self, sample_rate_hz: int = 24_000) -> None:
        self.sample_rate_hz = sample_rate_hz
        self.playout = Playout(sample_rate_hz)
        self.sink: MediaSink | None = None
        self.sent: list[Pcm | None] = []
        """Frames that left, None for silence."""
        self.dtmf = ""
        self.closed = False
        self.peer_silence_s = 0.0

    def adopt(self, playout: Playout) -> None:
        """Read from `playout`. Raises MediaError at another rate."""
        if playout.sample_rate_hz != self.sample_rate_hz:
            raise MediaError(f"expected {self.sample_rate_hz} Hz, got {playout.sample_rate_hz}")
        self.playout = playout

    def attach(self, sink: MediaSink) -> None:
        """Remember who listens."""
        self.sink = sink

    def tick(self, pcm: Pcm | None = None) -> None:
        """20 ms pass: the agent's frame leaves, the caller's (silence by default) arrives."""
        self.sent.append(self.playout.read())
        if self.sink is not None and not self.closed:
            self.sink.on_audio(np.zeros(HEARING_SAMPLES, np.int16) if pcm is None else pcm)

    def send_dtmf(self, digits: str) -> None:
        """Remember the digits."""
        self.dtmf += digits

    def stats(self) -> PortStats:
        """Whether it is open, and how long the peer has been silent."""
        return PortStats(connected=not self.closed, peer_silence_s=self.peer_silence_s)

    async def close(self) -> None:
        """Marks the port closed."""
        self.closed = True


class _EnergyStream(VadStream):
    """Answers each 32 ms window at once: speech is what is loud."""

    def __init__(
        self, engine: VadEngine, on_probability: Callable[[float, int], None], on_failure: Callable[[EngineError], None]
    ) -> None:
        super().__init__(engine, on_probability, on_failure)
        self._tell = on_probability
        self._position = 0
        self._window = np.zeros(0, np.int16)

    def push(self, pcm: Pcm) -> None:
        """Judge every full window."""
        self._window = np.concatenate([self._window, pcm])
        self._position += len(pcm)
        while len(self._window) >= WINDOW_SAMPLES and not self.closed:
            head, self._window = self._window[:WINDOW_SAMPLES], self._window[WINDOW_SAMPLES:]
            loud = float(np.sqrt(np.mean(head.astype(np.float32) ** 2))) > LOUD
            self._tell(0.95 if loud else 0.02, self._position - len(self._window))

    def resume(self, at_sample: int) -> None:
        """Go on at this position."""
        self._position = at_sample
        self._window = np.zeros(0, np.int16)


class ScriptedVad(VadEngine):
    """A voice-activity detector without a model or a thread: what is loud is speech."""

    def __init__(self) -> None:
        super().__init__(Path("scripted"))
        self.running = True

    def open(
        self, on_probability: Callable[[float, int], None], on_failure: Callable[[EngineError], None]
    ) -> VadStream:
        """Start listening to a call."""
        return _EnergyStream(self, on_probability, on_failure)


def voice(seconds: float, rate_hz: int = HEARING_HZ) -> Pcm:
    """A buzz that every detector takes for a voice: int16 [n]."""
    t = np.arange(round(seconds * rate_hz)) / rate_hz
    buzz = sum(np.sin(2 * np.pi * 120 * k * t) / k for k in range(1, 25))
    return np.asarray(buzz * 4000, np.int16)
