"""The folder of installed models: what is there, whether it is whole, and how a new one takes its place.

Layout under `cache_dir/models`:
    NAME/                the verified files and `.verified.json`
    .work/NAME/          an unfinished fetch: carriers, sources, the next version being built; removed after success
    .work/NAME.lock      held by the process that fetches

`.verified.json` remembers sizes, modification times and checksums, so that a start costs a few `stat` calls instead of
hashing 90 MB. A file whose size or time differs is hashed again; `verify` hashes all.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from agent.config import ModelSettings
from agent.errors import EnvironmentFault
from agent.models.manifest import Model

__all__ = ["Store", "file_sha256", "filesystem_fault", "find_ready"]

STAMP = ".verified.json"
CHUNK_BYTES = 1 << 20
LOCK_RETRY_S = 0.25
LOCK_DEADLINE_S = 1800.0
"""A fetch of everything over 2 Mbit/s takes about this long."""

CACHE_SETTING = "REJOINDER_MODELS__CACHE_DIR"


def filesystem_fault(exc: OSError, folder: Path) -> EnvironmentFault:
    """One line for a file error under the models folder, with what to do."""
    reason = exc.strerror or type(exc).__name__
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return EnvironmentFault(f"the disk is full under {folder}: free some space, or set {CACHE_SETTING} elsewhere")
    where = exc.filename or folder
    return EnvironmentFault(
        f"cannot write {where} ({reason}): mend it, or set {CACHE_SETTING} to a folder you can write"
    )


def file_sha256(path: Path) -> str:
    """The sha256 of a file, in hexadecimal.

    Raises:
        OSError: it cannot be read.
    """
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class _Seen:
    size: int
    mtime_ns: int
    sha256: str


class Store:
    """The installed models of one cache folder."""

    def __init__(self, settings: ModelSettings) -> None:
        self.root = settings.cache_dir / "models"

    def folder(self, model: Model) -> Path:
        """Where the files of `model` are, or would be."""
        return self.root / model.name

    def work(self, model: Model) -> Path:
        """Where an unfinished fetch of `model` keeps its things; on the same file system as `folder`."""
        return self.root / ".work" / model.name

    def problem(self, model: Model, *, full: bool = False, restamp: bool = True) -> str | None:
        """What is wrong with the installed files, or None.

        Args:
            model: the model to look at.
            full: hash every file even if it looks untouched.
            restamp: remember a successful hash; a folder that cannot be written is left as it is.
        """
        folder = self.folder(model)
        stamp = {} if full else _read_stamp(folder, model)
        seen: dict[str, _Seen] = {}
        hashed = False
        # A converted file may lawfully differ from the manifest (another onnxruntime); the stamp has what was accepted.
        accepted = _read_stamp(folder, model)
        for file in model.files:
            path = folder / file.name
            try:
                info = path.stat()
                before = stamp.get(file.name)
                if before and (before.size, before.mtime_ns) == (info.st_size, info.st_mtime_ns):
                    seen[file.name] = before
                    continue
                hashed = True
                good = {file.sha256} | ({accepted[file.name].sha256} if file.name in accepted else set())
                if (actual := file_sha256(path)) not in good:
                    # Forgotten, so that a quick look finds damage that only a full one could see.
                    with suppress(OSError):
                        (folder / STAMP).unlink(missing_ok=True)
                    return f"{file.name} does not match its checksum"
            except FileNotFoundError:
                return f"{file.name} is missing" if folder.is_dir() else "not installed"
            except OSError as exc:
                return f"{file.name} cannot be read ({exc.strerror})"
            seen[file.name] = _Seen(info.st_size, info.st_mtime_ns, actual)
        if hashed and restamp:
            # A read-only cache is a supported way to ship models: it is hashed at each start instead.
            with suppress(OSError):
                _write_stamp(folder, model, seen)
        return None

    @contextmanager
    def lock(self, model: Model, waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the model's lock over processes; the system frees it when a process dies.

        Args:
            model: whose lock.
            waiting: called once if another process has it.

        Raises:
            EnvironmentFault: it cannot be made, or was not free in half an hour.
        """
        path = self.root / ".work" / f"{model.name}.lock"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as exc:
            raise filesystem_fault(exc, self.root) from exc
        try:
            deadline = time.monotonic() + LOCK_DEADLINE_S
            told = False
            # flock has no timeout of its own; this is a command-line wait, so a slow retry costs nobody anything.
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise EnvironmentFault(f"another process holds {path}: end it, or try again later") from None
                    if not told:
                        told = True
                        waiting()
                    time.sleep(LOCK_RETRY_S)
                except OSError as exc:
                    raise filesystem_fault(exc, self.root) from exc
            yield
        finally:
            os.close(handle)

    def recover(self, model: Model) -> None:
        """Put the old files back if a process died between the two renames of `install`."""
        old = self.work(model) / "old"
        if old.is_dir() and not self.folder(model).exists():
            old.rename(self.folder(model))

    def install(self, model: Model, stage: Path, hashes: Mapping[str, str]) -> None:
        """Make the verified files in `stage` the installed ones; readers see the old files or the new, never a mix.

        Args:
            model: whose files.
            stage: a folder below `work(model)` with every file of the manifest.
            hashes: the sha256 of each, as verified.

        Raises:
            OSError: the file system refused; the old files are still in place.
        """
        for file in model.files:
            _sync(stage / file.name)
        infos = {file.name: (stage / file.name).stat() for file in model.files}
        _write_stamp(stage, model, {name: _Seen(i.st_size, i.st_mtime_ns, hashes[name]) for name, i in infos.items()})
        folder, old = self.folder(model), self.work(model) / "old"
        shutil.rmtree(old, ignore_errors=True)
        if folder.exists():
            folder.rename(old)
        try:
            stage.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
        _sync(self.root)
        shutil.rmtree(self.work(model), ignore_errors=True)


def find_ready(model: Model, offline: Path) -> Path | None:
    """A folder of the user's own that holds all the model's files as the manifest names them, or None.

    Looked for: `offline/NAME`, then `offline` itself. Every file is hashed; the folder may be read-only.
    """
    for folder in (offline / model.name, offline):
        try:
            if all((folder / file.name).stat().st_size == file.size for file in model.files) and all(
                file_sha256(folder / file.name) == file.sha256 for file in model.files
            ):
                return folder
        except OSError:
            continue  # a file is absent or unreadable: this folder is not the one
    return None


def _read_stamp(folder: Path, model: Model) -> dict[str, _Seen]:
    """What was verified before; empty when absent, damaged or for another version of the manifest."""
    try:
        data = json.loads((folder / STAMP).read_bytes())
        if data["manifest"] != model.digest:
            return {}
        return {name: _Seen(int(size), int(mtime), str(sha)) for name, (size, mtime, sha) in data["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _write_stamp(folder: Path, model: Model, seen: Mapping[str, _Seen]) -> None:
    files = {name: [item.size, item.mtime_ns, item.sha256] for name, item in seen.items()}
    new = folder / f"{STAMP}.{os.getpid()}"
    try:
        new.write_text(json.dumps({"manifest": model.digest, "files": files}, indent=1), encoding="utf-8")
        new.replace(folder / STAMP)
    except OSError:
        new.unlink(missing_ok=True)
        raise


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
