"""A package index that is a folder, and a cache folder of our own."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.config import ModelSettings
from tests.agent.models.fakes import Links


@pytest.fixture
def links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Links:
    folder = tmp_path / "links"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip-cache"))
    return Links(folder)


@pytest.fixture
def settings(tmp_path: Path) -> ModelSettings:
    return ModelSettings(cache_dir=tmp_path / "cache")
