"""Calls recorded in virtual time, and what their files hold."""

from __future__ import annotations

import asyncio
import io
import wave
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import av
import numpy as np
import pytest

from agent.call import Call
from agent.config import RecordingSettings, Settings
from agent.events import CallEvent, Observer
from agent.media import pcm as pcm_port
from agent.media.frames import HEARING_SAMPLES, Pcm
from agent.nlu.hook import Nlu, Session
from agent.observe.metrics import Metrics
from agent.parts import CallParts
from agent.recording.calls import Recordings
from agent.replay.loop import VirtualLoop
from agent.replay.port import Replayed, open_port
from agent.speech.phrases import PhraseBook
from agent.testing import ScriptedRecognizer, ScriptedSynthesizer, ScriptedVad
from agent.tts.protocol import Style, Voice

T = TypeVar("T")
STREAM = {"transport": "pcm", "rate_hz": 24_000, "encoding": "", "payload_type": 0, "events": {}}
RATIO = 3
"""Opus files are decoded at 48 kHz, recordings are at 16 kHz."""


def in_virtual_time(work: Callable[[VirtualLoop], Awaitable[T]], monkeypatch: pytest.MonkeyPatch) -> T:
    """Run `work` on a loop whose clock, and that of PCM ports, is a number."""

    async def main() -> T:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        monkeypatch.setattr(pcm_port, "time", SimpleNamespace(monotonic=loop.time))
        loop.freeze(1000.0)
        try:
            return await work(loop)
        finally:
            loop.thaw()

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


async def parts(nlu: Nlu, *texts: str, **settings: Any) -> CallParts:
    """Scripted engines."""
    tree = Settings(**{"listening": {"endpoint": "silence"}, **settings})
    synthesizer = ScriptedSynthesizer()
    phrases = PhraseBook(tree.phrases, synthesizer)
    await phrases.make([Voice()], Style())
    return CallParts(
        settings=tree,
        nlu=nlu,
        recognizer=ScriptedRecognizer(texts),
        synthesizer=synthesizer,
        vad=ScriptedVad(),
        phrases=phrases,
        clips={},
        metrics=Metrics(),
        voices=lambda: synthesizer.info.voices,
    )


class Line:
    """A caller's line: one frame each way a tick, in the loop's time."""

    def __init__(
        self, loop: VirtualLoop, recordings: Recordings, call_parts: CallParts, *, call_id: str = "call_1", **how: Any
    ) -> None:
        self.loop = loop
        self.events: list[CallEvent] = []
        self.port: Replayed = open_port(STREAM, call_parts.settings.media)
        self.tick = 100
        self.call: Call = recordings.call(
            call_parts,
            port=self.port,
            session=Session(call_id, "websocket", caller="+49"),
            observer=how.pop("observer", self.events.append),
            now=loop.time,
            **how,
        )
        self.task = asyncio.create_task(self.call.run())

    async def wait(self, seconds: float) -> None:
        """Time passes."""
        done = self.loop.create_future()
        self.loop.call_later(seconds, done.set_result, None)
        await done

    async def hear(self, pcm: Pcm) -> None:
        """The caller says int16 [n] at 24 kHz, 20 ms a tick."""
        for at in range(0, len(pcm) - 479, 480):
            await self.wait(0.02)
            self.port.packet(pcm[at : at + 480].astype("<i2").tobytes(), self.loop.time())
            self.port.run_tick(self.tick, self.loop.time())
            self.tick += 1

    async def quiet(self, seconds: float) -> None:
        await self.hear(np.zeros(round(seconds * 24_000), np.int16))

    async def hang_up(self, reason: str = "peer closed") -> None:
        self.call.hangup(reason)
        await self.task


def settings(folder: Path, **values: Any) -> RecordingSettings:
    return RecordingSettings(**{"mode": "always", "folder": folder, "min_free_mb": 0, **values})


def stereo(path: Path) -> Pcm:
    """A recording's samples: int16 [n, 2], at 16 kHz (WAV) or 48 kHz (Opus)."""
    return wav_samples(path.read_bytes()) if path.suffix == ".wav" else ogg_samples(path.read_bytes())


def wav_samples(data: bytes) -> Pcm:
    with wave.open(io.BytesIO(data)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (2, 2, 16_000)
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return samples.reshape(-1, 2)


def ogg_samples(data: bytes) -> Pcm:
    with av.open(io.BytesIO(data)) as file:
        frames = [frame.to_ndarray() for frame in file.decode(audio=0)]
    return (np.concatenate(frames, axis=1).T * 32767).astype(np.int16)


def quiet_observer(_event: CallEvent) -> None:
    """Hears nothing."""


__all__ = ["HEARING_SAMPLES", "Line", "Observer", "in_virtual_time", "parts", "settings", "stereo"]
