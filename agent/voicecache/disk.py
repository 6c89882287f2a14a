"""The tier on disk: one file an entry, written whole or not at all. Blocking; DiskThread takes it off the event loop.

A file is written under a temporary name and renamed, so a process killed at any point leaves old files, new files and
temporary ones, which the next start removes; what a crash of the machine tears is caught by the checksum. A damaged
file is a miss and is removed. Several processes may share a folder: each bounds what it sees, and looks again at times.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from agent.errors import EnvironmentFault
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.format import Unreadable, dump, load
from agent.voicecache.key import SpeechKey

__all__ = ["DiskThread", "DiskTier"]

T = TypeVar("T")

SUFFIX = ".rjv"
TEMPORARY = ".part"
LOOK_AGAIN_EVERY = 64
"""Writes between two looks at the whole folder, for what other processes wrote: a look takes about 3 us a file."""

TRIM_TO = 0.9
"""Of the bound: what is removed at once, so that a full cache is not trimmed at each write."""

STALE_PART_S = 3600.0
"""A temporary file this old is a dead process's; a younger one may be in the making."""

MAX_WAITING = 256
"""Jobs for the thread; more are refused."""

_NAME = re.compile(r"[0-9a-f]{40}\.rjv")

log = logging.getLogger(__name__)


class DiskTier:
    """Speech in a folder.

    Args:
        folder: made if it is not there, for the owner alone.
        max_bytes: bound over all entries.
        write: writes bytes into an open file; for tests of disks that fill up.

    Raises EnvironmentFault if the folder cannot be made or written to.
    """

    def __init__(self, folder: Path, max_bytes: int, *, write: Callable[[int, bytes], None] | None = None) -> None:
        self.folder = folder
        self.max_bytes = max_bytes
        self.size_bytes = 0
        """As far as known: what was there at the last look, and what was written since."""
        self.damaged = 0
        self._write = write if write is not None else write_all
        self._writes = 0
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not os.access(folder, os.W_OK | os.X_OK):
                raise PermissionError(13, "not writable", str(folder))
            self._remove_parts()
            self.trim()
        except OSError as exc:
            raise EnvironmentFault(
                f"cannot keep speech in {folder}: {exc.strerror}; set cache.folder, or cache.disk_mb = 0"
            ) from exc

    def get(self, key: SpeechKey) -> CachedSpeech | None:
        """The entry, or None: not there, damaged, or unreadable for any reason."""
        path = self._path(key)
        try:
            data = path.read_bytes()
        except OSError:
            return None
        try:
            speech = load(data, key)
        except Unreadable as exc:
            self.damaged += 1
            log.warning("cached speech %s is damaged (%s) and was removed", path.name, exc)
            self._remove(path, len(data))
            return None
        with contextlib.suppress(OSError):
            # Its age is the time since it was last used.
            os.utime(path)
        return speech

    def put(self, speech: CachedSpeech) -> None:
        """Write an entry, in place of the one that has its key. Raises OSError, ValueError; leaves nothing behind then.

        Private speech is refused with ValueError: that it never comes here is the caller's promise.
        """
        if speech.private:
            raise ValueError("private speech does not leave memory")
        data = dump(speech)
        if len(data) > self.max_bytes:
            return
        path = self._path(speech.key)
        part = path.with_name(f"{path.stem}.{os.getpid()}{TEMPORARY}")
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            try:
                self._write(file, data)
            finally:
                os.close(file)
            before = path.stat().st_size if path.exists() else 0
            part.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        self.size_bytes += len(data) - before
        self._writes += 1
        if self.size_bytes > self.max_bytes or not self._writes % LOOK_AGAIN_EVERY:
            self.trim()

    def trim(self) -> None:
        """Look at the folder and remove what was used longest ago until it is within bounds."""
        files = sorted(self._files())
        total = sum(size for _, size, _ in files)
        if total > self.max_bytes:
            for _, size, path in files:
                if total <= self.max_bytes * TRIM_TO:
                    break
                with contextlib.suppress(OSError):
                    path.unlink()
                total -= size
        self.size_bytes = total

    def keys(self) -> list[SpeechKey]:
        """All that is here, the last used first."""
        return [SpeechKey(bytes.fromhex(path.stem)) for _, _, path in sorted(self._files(), reverse=True)]

    def clear(self) -> int:
        """Remove all entries; returns how many there were."""
        removed = 0
        for _, _, path in list(self._files()):
            with contextlib.suppress(OSError):
                path.unlink()
                removed += 1
        self.size_bytes = 0
        return removed

    def _files(self) -> Iterator[tuple[float, int, Path]]:
        """When it was last used, its size and its path."""
        with os.scandir(self.folder) as entries:
            for entry in entries:
                if _NAME.fullmatch(entry.name):
                    with contextlib.suppress(OSError):
                        stat = entry.stat(follow_symlinks=False)
                        yield stat.st_mtime, stat.st_size, Path(entry.path)

    def _remove_parts(self) -> None:
        newest = self.folder.stat().st_mtime
        for path in self.folder.glob(f"*{TEMPORARY}"):
            with contextlib.suppress(OSError, ValueError, OverflowError):
                owner = int(path.name.split(".")[1])
                if not _alive(owner) or newest - path.stat().st_mtime > STALE_PART_S:
                    path.unlink()

    def _remove(self, path: Path, size: int) -> None:
        with contextlib.suppress(OSError):
            path.unlink()
            self.size_bytes -= size

    def _path(self, key: SpeechKey) -> Path:
        return self.folder / f"{key.hex}{SUFFIX}"


class DiskThread:
    """One thread for one folder, so that its jobs run in order and never on the event loop."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="voice-disk")
        self._waiting = 0

    async def run(self, job: Callable[..., T], *args: object) -> T:
        """Run `job(*args)` in the thread. Raises what it raises, and BlockingIOError when too many jobs wait.

        A cancelled waiter's job runs to its end; its result is dropped.
        """
        if self._waiting >= MAX_WAITING:
            raise BlockingIOError("the disk is behind")
        self._waiting += 1
        future = asyncio.get_running_loop().run_in_executor(self._executor, job, *args)
        future.add_done_callback(self._finished)
        return await future

    async def close(self) -> None:
        """Wait for the jobs that were given, then end the thread."""
        await asyncio.to_thread(self._executor.shutdown, wait=True)

    def _finished(self, future: asyncio.Future[T]) -> None:
        self._waiting -= 1
        if not future.cancelled():
            # Looked at, so that a job nobody waits for any more does not end in a warning.
            future.exception()


def write_all(file: int, data: bytes) -> None:
    """Write all of `data`. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
