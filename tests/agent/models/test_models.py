"""`require`, `status` and `verify`: what is installed, and damage is noticed."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from agent import models
from agent.config import ModelSettings
from agent.errors import ConfigError, ModelMissing
from agent.models import store
from agent.models.store import STAMP
from tests.agent.models.fakes import BETA, FULL, pair_manifest

MANIFEST = pair_manifest()


def put(folder: Path) -> Path:
    (folder / "voices").mkdir(parents=True)
    (folder / "model.bin").write_bytes(FULL)
    (folder / "voices" / "b.bin").write_bytes(BETA)
    return folder


@pytest.fixture
def installed(settings: ModelSettings) -> Path:
    return put(settings.cache_dir / "models" / "pair")


def test_an_absent_model_says_what_to_run(settings: ModelSettings) -> None:
    with pytest.raises(ModelMissing, match=r"model pair \(testing\).*not installed.*; run: rejoinder models fetch$"):
        models.require("pair", settings, manifest=MANIFEST)


def test_an_absent_model_of_another_set_says_its_set(settings: ModelSettings) -> None:
    with pytest.raises(ModelMissing, match=r"run: rejoinder models fetch zh$"):
        models.require("whisper-base", settings)


def test_an_unknown_model_is_a_wrong_setting(settings: ModelSettings) -> None:
    with pytest.raises(ConfigError, match="'pear' is unknown"):
        models.require("pear", settings, manifest=MANIFEST)


def test_whole_files_are_hashed_once_and_then_known(
    settings: ModelSettings, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert models.require("pair", settings, manifest=MANIFEST) == installed

    def no_hashing(path: Path) -> str:
        raise AssertionError(f"hashed {path} again")

    monkeypatch.setattr(store, "file_sha256", no_hashing)
    assert models.require("pair", settings, manifest=MANIFEST) == installed


def test_a_changed_file_is_noticed(settings: ModelSettings, installed: Path) -> None:
    models.require("pair", settings, manifest=MANIFEST)
    (installed / "model.bin").write_bytes(FULL[::-1])
    with pytest.raises(ModelMissing, match=r"model\.bin does not match its checksum"):
        models.require("pair", settings, manifest=MANIFEST)


def test_a_removed_file_is_noticed(settings: ModelSettings, installed: Path) -> None:
    models.require("pair", settings, manifest=MANIFEST)
    (installed / "voices" / "b.bin").unlink()
    with pytest.raises(ModelMissing, match=r"voices/b\.bin is missing"):
        models.require("pair", settings, manifest=MANIFEST)


def test_silent_damage_is_found_by_verify_and_remembered(settings: ModelSettings, installed: Path) -> None:
    models.require("pair", settings, manifest=MANIFEST)
    path = installed / "model.bin"
    before = path.stat()
    path.write_bytes(FULL[:-1] + b"?")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert models.status(settings, manifest=MANIFEST)[0].installed
    (state,) = models.verify(settings, manifest=MANIFEST)
    assert (state.installed, state.path) == (False, None)
    assert state.problem == "model.bin does not match its checksum"
    assert not models.status(settings, manifest=MANIFEST)[0].installed


@pytest.mark.parametrize("stamp", ["", "{}", "[]", '{"manifest": 1, "files": 2}', "\x00"])
def test_a_damaged_stamp_only_costs_a_hash(settings: ModelSettings, installed: Path, stamp: str) -> None:
    (installed / STAMP).write_text(stamp)
    assert models.require("pair", settings, manifest=MANIFEST) == installed


def test_a_new_manifest_makes_old_files_outdated(settings: ModelSettings, installed: Path) -> None:
    models.require("pair", settings, manifest=MANIFEST)
    newer = pair_manifest(full=FULL[::-1])
    with pytest.raises(ModelMissing, match="does not match"):
        models.require("pair", settings, manifest=newer)


def test_a_local_folder_serves_without_a_fetch_and_is_not_written(settings: ModelSettings, tmp_path: Path) -> None:
    ready = put(tmp_path / "usb" / "pair")
    local = settings.model_copy(update={"offline_dir": tmp_path / "usb"})
    assert models.require("pair", local, manifest=MANIFEST) == ready
    assert models.status(local, manifest=MANIFEST)[0].path == ready
    assert not (ready / STAMP).exists()
    (ready / "model.bin").write_bytes(FULL[::-1])
    with pytest.raises(ModelMissing, match="not installed"):
        models.require("pair", local, manifest=MANIFEST)


def test_the_stamp_that_cannot_be_written_does_not_matter(settings: ModelSettings, installed: Path) -> None:
    (installed / STAMP).mkdir()
    assert models.require("pair", settings, manifest=MANIFEST) == installed


def test_status_tells_what_is_installed_and_what_can_be_added(settings: ModelSettings) -> None:
    states = {state.name: state for state in models.status(settings)}
    assert next(iter(states)) == "moonshine-base-en"
    whisper = states["whisper-base"]
    assert (whisper.set, whisper.installed, whisper.problem) == ("zh", False, "not installed")
    assert whisper.size_bytes > 100e6
    hibari = states["hibari-tts"]
    assert hibari.in_package
    assert hibari.installed
    assert hibari.path is not None
    assert (hibari.path / "assets").is_dir()
    assert models.require("hibari-tts", settings) == hibari.path


def test_files_swapped_half_way_are_put_back(settings: ModelSettings, installed: Path) -> None:
    at = store.Store(settings)
    model = MANIFEST.model("pair")
    at.work(model).mkdir(parents=True)
    shutil.move(installed, at.work(model) / "old")
    at.recover(model)
    assert models.require("pair", settings, manifest=MANIFEST) == installed


def test_a_full_disk_is_named() -> None:
    fault = store.filesystem_fault(OSError(28, "No space left on device"), Path("/c"))
    assert str(fault) == "the disk is full under /c: free some space, or set REJOINDER_MODELS__CACHE_DIR elsewhere"
