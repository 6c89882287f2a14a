"""Recordings that a hook plays by name, read once at start-up."""

from __future__ import annotations

import wave
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from agent.errors import ConfigError
from agent.media.frames import Pcm
from agent.media.resample import resample

__all__ = ["load_clips", "read_wav", "write_wav"]

MAX_CLIP_S = 300


def load_clips(paths: Mapping[str, Path], rate_hz: int) -> dict[str, Pcm]:
    """Read every clip as int16 [n] mono at `rate_hz`. Raises ConfigError naming the clip."""
    clips = {}
    for name, path in paths.items():
        try:
            pcm, from_hz = read_wav(path)
        except (OSError, ValueError) as exc:
            raise ConfigError(f"clips.{name}: {exc}") from exc
        clips[name] = resample(pcm, from_hz, rate_hz)
    return clips


def read_wav(path: Path) -> tuple[Pcm, int]:
    """A 16-bit PCM WAV file as (int16 [n] mono, rate in Hz); stereo is averaged.

    Raises OSError, and ValueError for what is not such a file.
    """
    try:
        with wave.open(str(path), "rb") as file:
            if file.getsampwidth() != 2 or file.getnchannels() not in (1, 2):
                width, channels = file.getsampwidth() * 8, file.getnchannels()
                raise ValueError(f"{path}: expected 16-bit mono or stereo, got {width}-bit, {channels} channels")
            rate, channels = file.getframerate(), file.getnchannels()
            if not 4_000 <= rate <= 192_000:
                raise ValueError(f"{path}: expected a rate of 4 to 192 kHz, got {rate} Hz")
            if file.getnframes() > MAX_CLIP_S * rate:
                raise ValueError(f"{path}: longer than {MAX_CLIP_S} s")
            pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.int16)
    except (wave.Error, EOFError) as exc:
        raise ValueError(f"{path} is not a PCM WAV file: {exc or 'it ends early'}") from exc
    if channels == 2:
        pcm = pcm[: len(pcm) // 2 * 2].reshape(-1, 2).mean(axis=1).astype(np.int16)
    return pcm, rate


def write_wav(path: Path, pcm: Pcm, rate_hz: int) -> None:
    """Write int16 [n] mono as a WAV file. Raises OSError."""
    with path.open("wb") as raw, wave.open(raw, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate_hz)
        file.writeframes(pcm.astype("<i2").tobytes())
