"""Running a model's conversion in a process of its own, and judging what it made.

A converted file whose sha256 is the manifest's is exactly what was tested. Another version of onnx or onnxruntime may
write other bytes for the same model; then the sources' checksums (checked before) and a comparison of the outputs on a
fixed signal stand in for it, and the store remembers the checksum that was accepted.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from agent.errors import EnvironmentFault, ModelMissing
from agent.models.manifest import Model, ModelFile
from agent.models.store import file_sha256

__all__ = ["SCRATCH_BYTES", "convert"]

SCRATCH_BYTES = 400_000_000
"""The decoder's weights as float32, twice: as written for the quantiser, and its own copy."""
FOLLOW_S = 0.2
CONVERT_DEADLINE_S = 600.0
"""It takes 6 to 16 s of one core here; a loaded small machine may need minutes."""

PROGRAMS = {"moonshine": "agent.models.convert_moonshine"}


def convert(
    model: Model, files: Sequence[ModelFile], sources: Path, target: Path, on_bytes: Callable[[int], None]
) -> dict[str, str]:
    """Make the converted files of `model`; the sha256 of each, as accepted.

    Args:
        model: whose conversion.
        files: the files it is to make.
        sources: folder with the verified sources.
        target: where the files go.
        on_bytes: told how many bytes are made so far.

    Raises:
        EnvironmentFault: the conversion failed or did not end.
        ModelMissing: what it made does not behave like the sources.
    """
    program = PROGRAMS[model.convert or ""]
    scratch = sources.parent / "converted"
    scratch.mkdir(exist_ok=True)
    _run(model, [program, str(sources), str(scratch)], lambda: on_bytes(_made(scratch, files)))
    hashes = {file.name: file_sha256(scratch / file.name) for file in files}
    if any(hashes[file.name] != file.sha256 for file in files):
        try:
            _run(model, [program, str(sources), str(scratch), "--check"], lambda: None)
        except EnvironmentFault as exc:
            raise ModelMissing(
                f"{model.name}: the converted files are refused; earlier files stay in use: {exc}"
            ) from exc
    for file in files:
        (scratch / file.name).replace(target / file.name)
    return hashes


def _made(folder: Path, files: Sequence[ModelFile]) -> int:
    total = 0
    for file in files:
        try:
            total += (folder / file.name).stat().st_size
        except FileNotFoundError:
            continue
    return total


def _run(model: Model, arguments: list[str], follow: Callable[[], None]) -> None:
    # One thread: the machine may be answering calls. The folder of our own package, so that `-m` finds it anywhere.
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, "-m", *arguments],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    deadline = time.monotonic() + CONVERT_DEADLINE_S
    try:
        while True:
            try:
                _, text = process.communicate(timeout=FOLLOW_S)
                break
            except subprocess.TimeoutExpired:
                follow()
                if time.monotonic() > deadline:
                    raise EnvironmentFault(
                        f"{model.name}: the conversion did not end in {CONVERT_DEADLINE_S:.0f} s; try again on a "
                        "less busy machine"
                    ) from None
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    if process.returncode != 0:
        said = text.strip().splitlines()
        last = said[-1] if said else f"exit code {process.returncode}"
        raise EnvironmentFault(f"{model.name}: the conversion failed: {last}")
