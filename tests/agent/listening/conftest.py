"""Recorded speech and the real detector."""

from __future__ import annotations

import csv
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent import models
from agent.config import Settings
from agent.listening.silero import MODEL_FILE, VadEngine
from tests.agent.listening.hearing import Clip, read_wav

SPEECH = Path(os.environ.get("REJOINDER_SPEECH") or Path(__file__).parents[4] / "shared" / "speech")


@pytest.fixture(scope="session")
def clips() -> dict[str, Clip]:
    manifest = SPEECH / "manifest.tsv"
    assert manifest.is_file(), f"recorded speech is missing: {manifest} (set REJOINDER_SPEECH)"
    with manifest.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {
        Path(row["path"]).stem: Clip(
            Path(row["path"]).stem, read_wav(SPEECH / row["path"]), read_wav(SPEECH / row["path_8k"])
        )
        for row in rows
    }


@pytest.fixture(scope="session")
def model_file() -> Path:
    return models.require("silero-vad", Settings().models) / MODEL_FILE


@pytest.fixture
async def vad(model_file: Path) -> AsyncIterator[VadEngine]:
    async with VadEngine(model_file) as engine:
        yield engine
