"""Made and measured audio, and a way to hear it through the real detector faster than real time."""

from __future__ import annotations

import wave
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent.config import ListeningSettings
from agent.listening.listener import Heard, Listener, VoiceAudio, VoiceStarted, VoiceStopped
from agent.listening.silero import VadEngine
from agent.media.frames import HEARING_SAMPLES, Pcm

SECOND = 16_000


@dataclass(frozen=True)
class Clip:
    name: str
    pcm: Pcm
    pcm_8k: Pcm
    """The telephone version, 8 kHz."""


@dataclass(frozen=True)
class Segment:
    """One VoiceStarted ... VoiceStopped; positions in milliseconds."""

    start_ms: int
    end_ms: int
    speech_ms: int
    pcm: Pcm


def read_wav(path: Path) -> Pcm:
    with wave.open(str(path)) as file:
        assert (file.getnchannels(), file.getsampwidth()) == (1, 2)
        return np.frombuffer(file.readframes(file.getnframes()), dtype=np.int16)


def loud_bounds_ms(pcm: Pcm, below_peak_db: float = 25.0) -> tuple[int, int]:
    """First and last 20 ms frame within `below_peak_db` of the loudest."""
    frames = pcm[: len(pcm) // 320 * 320].reshape(-1, 320).astype(np.float64)
    level = 10 * np.log10((frames**2).mean(axis=1) + 1e-3)
    loud = np.flatnonzero(level > level.max() - below_peak_db)
    return int(loud[0]) * 20, int(loud[-1] + 1) * 20


def at_peak_db(pcm: Pcm, peak_db: float) -> Pcm:
    scale = 10 ** (peak_db / 20) * 32767 / np.abs(pcm.astype(np.float64)).max()
    return np.round(pcm * scale).astype(np.int16)


def silence(seconds: float) -> Pcm:
    return np.zeros(int(seconds * SECOND), dtype=np.int16)


def white_noise(seconds: float, rms_db: float, seed: int = 1) -> Pcm:
    noise = np.random.default_rng(seed).standard_normal(int(seconds * SECOND))
    return np.clip(noise * 10 ** (rms_db / 20) * 32768, -32768, 32767).astype(np.int16)


def hum(seconds: float, rms_db: float, mains_hz: float = 50.0) -> Pcm:
    t = np.arange(int(seconds * SECOND)) / SECOND
    wave_ = sum(a * np.sin(2 * np.pi * mains_hz * k * t) for k, a in ((1, 1.0), (2, 0.3), (3, 0.5), (7, 0.1)))
    return np.clip(wave_ / np.sqrt(np.mean(wave_**2)) * 10 ** (rms_db / 20) * 32768, -32768, 32767).astype(np.int16)


def frames(pcm: Pcm) -> Iterator[Pcm]:
    for at in range(0, len(pcm) - HEARING_SAMPLES + 1, HEARING_SAMPLES):
        yield pcm[at : at + HEARING_SAMPLES]


async def hear(vad: VadEngine, pcm: Pcm, settings: ListeningSettings | None = None) -> list[Heard]:
    """What a listener reports about `pcm`, fed a frame at a time with the detector keeping up."""
    heard: list[Heard] = []
    listener = Listener(settings or ListeningSettings(), vad, heard.append)
    for frame in frames(pcm):
        listener.feed(frame)
        await vad.settled()
    listener.close()
    return heard


def segments(heard: list[Heard]) -> list[Segment]:
    out: list[Segment] = []
    start_ms, pieces = -1, []
    for event in heard:
        match event:
            case VoiceStarted():
                assert start_ms < 0, "a segment began inside another"
                start_ms, pieces = event.start_ms, [event.pcm]
            case VoiceAudio():
                assert start_ms >= 0, "audio outside a segment"
                pieces.append(event.pcm)
            case VoiceStopped():
                assert start_ms >= 0, "an end without a beginning"
                out.append(Segment(start_ms, event.end_ms, event.speech_ms, np.concatenate(pieces)))
                start_ms = -1
    assert start_ms < 0, "a segment was never closed"
    return out
