"""The files of a recorded call, found beside each other and decrypted."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.config import RecordingSettings
from agent.errors import ConfigError, MediaError
from agent.recording.files import AUDIO, EVENTS, PACKETS, SEALED
from agent.recording.packets import PacketLog, read_log
from agent.recording.sealed import MAGIC, parse_key, unseal
from agent.recording.timeline import read_timeline
from agent.recording.wav import HEADER_BYTES, header

__all__ = ["Recorded", "export", "load"]

ENDINGS = (PACKETS, EVENTS, *AUDIO.values())
MAX_BYTES = 2 << 30
"""Twelve hours of packets are a tenth of this."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recorded call. `events` is None when that file is not there."""

    log: PacketLog
    events: tuple[Mapping[str, Any], ...] | None


def load(path: Path, settings: RecordingSettings, *, partial: bool = False) -> Recorded:
    """Read a recorded call by any of its files.

    Args:
        partial: take a log that does not reach the call's end.

    Raises:
        ConfigError: the file cannot be read, or is cut short, damaged, or no recording; or the key is missing.
    """
    stem = _stem(path)
    packets = _find(stem, PACKETS)
    if packets is None:
        raise ConfigError(f"{path}: expected a recorded call: there is no {stem.name}{PACKETS}")
    reading = packets
    events = None
    try:
        data, whole = _read(packets, settings)
        log = read_log(data)
        if not (whole and log.whole) and not partial:
            raise MediaError(f"cut short after {len(log.records)} whole records; --partial replays those")
        timeline = _find(stem, EVENTS)
        if timeline is not None:
            reading = timeline
            events = tuple(read_timeline(_read(timeline, settings)[0])[1])
    except MediaError as exc:
        raise ConfigError(f"{reading}: {exc}") from exc
    return Recorded(log, events)


def export(path: Path, settings: RecordingSettings, folder: Path) -> list[Path]:
    """Write all files of a recorded call decrypted into `folder`; returns them. Raises ConfigError."""
    stem = _stem(path)
    written = []
    for ending in ENDINGS:
        source = _find(stem, ending)
        if source is None:
            continue
        try:
            data, _ = _read(source, settings)
            if ending == AUDIO["wav"]:
                data = header(len(data) - HEADER_BYTES) + data[HEADER_BYTES:]
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            target = folder / (stem.name + ending)
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(data)
        except MediaError as exc:
            raise ConfigError(f"{source}: {exc}") from exc
        except OSError as exc:
            raise ConfigError(f"cannot write {folder / (stem.name + ending)}: {exc.strerror}") from exc
        written.append(target)
    if not written:
        raise ConfigError(f"{path}: expected a recorded call: there is none of that name")
    return written


def _stem(path: Path) -> Path:
    name = path.name.removesuffix(SEALED)
    for ending in ENDINGS:
        if name.endswith(ending):
            return path.with_name(name.removesuffix(ending))
    return path


def _find(stem: Path, ending: str) -> Path | None:
    for name in (stem.name + ending, stem.name + ending + SEALED):
        if stem.with_name(name).is_file():
            return stem.with_name(name)
    return None


def _read(path: Path, settings: RecordingSettings) -> tuple[bytes, bool]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ConfigError(f"{path}: larger than any recorded call")
        data = path.read_bytes()
    except OSError as exc:
        raise ConfigError(f"cannot read {path}: {exc.strerror}") from exc
    if not data.startswith(MAGIC):
        return data, True
    if settings.key is None:
        raise ConfigError(f"{path} is encrypted: set REJOINDER_RECORDING__KEY")
    return unseal(data, parse_key(settings.key.get_secret_value()))
