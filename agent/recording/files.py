"""The three files of one recording, written a batch at a time. Blocking: for the writer's thread only."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from agent.errors import MediaError
from agent.media.frames import FRAME_MS, Pcm
from agent.recording.lanes import Lanes, Slot
from agent.recording.ogg import OggOpus
from agent.recording.packets import head_of
from agent.recording.sealed import Sealer
from agent.recording.timeline import ENDED, line
from agent.recording.wav import Wav, header

__all__ = ["AUDIO", "EVENTS", "PACKETS", "SEALED", "Batch", "Plan", "RecordingFiles", "check_room"]

AUDIO = {"ogg": ".ogg", "wav": ".wav"}
EVENTS = ".events.jsonl"
PACKETS = ".packets"
SEALED = ".sealed"
"""What follows the name of an encrypted file."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a recording is to be. The heads are the first line of the events and the head of the packet log."""

    folder: Path
    name: str
    format: Literal["ogg", "wav"]
    agent_hz: int
    events_head: Mapping[str, Any]
    packets_head: Mapping[str, Any]
    key: bytes | None = None
    min_free_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """What happened in half a second or so; `packets` are whole records, `events` whole lines."""

    slots: Sequence[Slot]
    packets: bytes
    events: bytes

    @property
    def size_bytes(self) -> int:
        """About what it holds in memory."""
        pcm = sum(
            (0 if slot.agent is None else slot.agent.nbytes) + sum(frame.nbytes for frame in slot.caller)
            for slot in self.slots
        )
        return pcm + len(self.packets) + len(self.events)


class _Audio(Protocol):
    def begin(self) -> bytes: ...
    def push(self, stereo: Pcm) -> bytes: ...
    def finish(self) -> bytes: ...


class _Output:
    """A file that always ends after something whole, encrypted or not.

    Raises OSError.
    """

    def __init__(self, path: Path, key: bytes | None) -> None:
        self._sealer = None if key is None else Sealer(key)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
        # For the owner alone: a call is nobody else's business.
        self._file = os.open(path if key is None else path.with_name(path.name + SEALED), flags, 0o600)
        self._good = 0
        if self._sealer is not None:
            self._append(self._sealer.begin())

    def write(self, data: bytes) -> None:
        if data:
            self._append(data if self._sealer is None else self._sealer.push(data))

    def replace_start(self, data: bytes) -> None:
        """Write over the first bytes; what is encrypted stays as it is."""
        if self._sealer is None:
            os.lseek(self._file, 0, os.SEEK_SET)
            os.write(self._file, data)
            os.lseek(self._file, 0, os.SEEK_END)

    def close(self, *, whole: bool) -> None:
        try:
            if whole and self._sealer is not None:
                self._append(self._sealer.finish())
        finally:
            os.close(self._file)

    def _append(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            # A disk that fills up takes part of it: cut that off again.
            os.ftruncate(self._file, self._good)
            os.lseek(self._file, self._good, os.SEEK_SET)
            raise
        self._good += len(data)


class RecordingFiles:
    """NAME.ogg or NAME.wav, NAME.events.jsonl and NAME.packets, each `.sealed` if there is a key.

    Raises OSError (also from its methods), MediaError when the disk has less room than the plan asks for.
    """

    def __init__(self, plan: Plan) -> None:
        check_room(plan.folder, plan.min_free_bytes)
        self._plan = plan
        self._lanes = Lanes(plan.agent_hz)
        self._wav = Wav() if plan.format == "wav" else None
        serial = zlib.crc32(plan.name.encode())
        self._audio: _Audio = self._wav or OggOpus(serial, {"TITLE": plan.name})
        self._outputs: list[_Output] = []
        try:
            self._sound = self._open(AUDIO[plan.format])
            self._events = self._open(EVENTS)
            self._packets = self._open(PACKETS)
            self._sound.write(self._audio.begin())
            self._events.write(line(plan.events_head))
            self._packets.write(head_of(plan.packets_head))
        except OSError:
            self._close_all(whole=False)
            raise
        self.slots = 0
        """Ticks written, those that never ran among them."""
        self._batches = 0

    def write(self, batch: Batch) -> None:
        """Append a batch to all three."""
        self._batches += 1
        if self._batches % 20 == 0:
            check_room(self._plan.folder, self._plan.min_free_bytes)
        self.slots += sum(1 + slot.gap for slot in batch.slots)
        self._sound.write(self._audio.push(self._lanes.push(batch.slots)))
        self._fix_header()
        self._events.write(batch.events)
        self._packets.write(batch.packets)

    def close(self, reason: str) -> None:
        """Finish all three; `reason` says why the recording ends here."""
        whole = False
        try:
            self._sound.write(self._audio.push(self._lanes.finish()))
            self._sound.write(self._audio.finish())
            self._fix_header()
            self._events.write(line({"t_ms": self.slots * FRAME_MS, "event": ENDED, "reason": reason}))
            whole = True
        finally:
            self._close_all(whole=whole)

    def _open(self, ending: str) -> _Output:
        output = _Output(self._plan.folder / (self._plan.name + ending), self._plan.key)
        self._outputs.append(output)
        return output

    def _fix_header(self) -> None:
        if self._wav is not None:
            self._sound.replace_start(header(self._wav.written))

    def _close_all(self, *, whole: bool) -> None:
        failed: OSError | None = None
        for output in self._outputs:
            try:
                output.close(whole=whole)
            except OSError as exc:
                failed = exc
        self._outputs.clear()
        if failed is not None:
            raise failed


def check_room(folder: Path, min_free_bytes: int) -> None:
    """Raises MediaError when less is free on the folder's disk, OSError when there is no such folder."""
    free = shutil.disk_usage(folder).free
    if free < min_free_bytes:
        raise MediaError(f"{free // 1_000_000} MB free on the disk, {min_free_bytes // 1_000_000} MB are to stay free")
