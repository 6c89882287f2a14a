"""Model files: which there are, where they lie, and bringing them.

`require` is what an engine calls; `fetch`, `status` and `verify` are for the command line. What is to be there is said
in `agent/models.toml`; see `store` for the layout of the cache folder and `fetch` for how files get into it.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

from agent.config import ModelSettings
from agent.errors import ModelMissing
from agent.models.fetch import fetch
from agent.models.manifest import Manifest, Model, load_manifest
from agent.models.progress import Progress, console_progress
from agent.models.store import Store, find_ready

__all__ = ["ModelStatus", "Progress", "console_progress", "fetch", "require", "status", "verify"]

DEFAULT_SET = "en"


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """What `rejoinder models` shows of one model."""

    name: str
    set: str
    """The set to name in `rejoinder models fetch SET`."""
    purpose: str
    licence: str
    installed: bool
    path: Path | None
    """Folder of its files, or of the package that contains them; None when not installed."""
    size_bytes: int
    """Disk space of the files; for a model inside a package, 0."""
    download_bytes: int
    """What a fetch of it brings."""
    in_package: bool
    """True when the weights come with an installed Python package and nothing is fetched."""
    problem: str | None
    """Why it cannot be used, or None."""


def require(name: str, settings: ModelSettings, *, manifest: Manifest | None = None) -> Path:
    """The folder that holds the verified files of a model.

    Cheap when the files are as they were when last verified; otherwise they are hashed (0.2 s for 90 MB).

    Raises:
        ConfigError: no model has this name.
        ModelMissing: files are absent or damaged; says what to run.
    """
    model = (manifest or load_manifest()).model(name)
    if model.package is not None:
        folder = _package_folder(model)
        if folder is None:
            raise ModelMissing(f"model {name} is not installed: install the Python package {name}")
        return folder
    store = Store(settings)
    problem = store.problem(model)
    if problem is None:
        return store.folder(model)
    if settings.offline_dir is not None and (ready := find_ready(model, settings.offline_dir)) is not None:
        return ready
    command = "rejoinder models fetch" if model.set == DEFAULT_SET else f"rejoinder models fetch {model.set}"
    raise ModelMissing(
        f"model {name} ({model.purpose}) is not usable: {problem} in {store.folder(model)}; run: {command}"
    )


def status(settings: ModelSettings, *, manifest: Manifest | None = None) -> list[ModelStatus]:
    """Every model of the manifest and whether it is installed; looks at sizes and times only."""
    return [_status(model, settings, full=False) for model in (manifest or load_manifest()).models]


def verify(settings: ModelSettings, *, manifest: Manifest | None = None) -> list[ModelStatus]:
    """Like `status`, but every installed file is hashed, so that silent damage shows as a problem."""
    return [_status(model, settings, full=True) for model in (manifest or load_manifest()).models]


def _status(model: Model, settings: ModelSettings, *, full: bool) -> ModelStatus:
    path: Path | None
    if model.package is not None:
        path = _package_folder(model)
        problem = None if path else f"the Python package {model.name} is not installed"
    else:
        store = Store(settings)
        path, problem = store.folder(model), store.problem(model, full=full)
        if problem is not None and settings.offline_dir is not None:
            ready = find_ready(model, settings.offline_dir)
            path, problem = (ready, None) if ready else (path, problem)
    return ModelStatus(
        name=model.name,
        set=model.set,
        purpose=model.purpose,
        licence=model.licence,
        installed=problem is None,
        path=path if problem is None else None,
        size_bytes=model.size_bytes,
        download_bytes=model.download_bytes,
        in_package=model.package is not None,
        problem=problem,
    )


def _package_folder(model: Model) -> Path | None:
    spec = importlib.util.find_spec(model.package or "")
    return Path(spec.origin).parent if spec and spec.origin else None
