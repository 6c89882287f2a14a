"""Which engine the settings bring, and what is said when they cannot."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from agent.asr.factory import create_recognizer
from agent.asr.moonshine import MoonshineRecognizer
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import EnvironmentFault, ModelMissing, UnsupportedLanguage


def settings(**groups: Any) -> Settings:
    return Settings.model_validate(groups)


async def test_moonshine_is_the_default(pool: WorkerPool) -> None:
    recognizer = await create_recognizer(Settings(), pool)
    assert isinstance(recognizer, MoonshineRecognizer)
    await recognizer.close()


async def test_a_language_the_engine_lacks_is_found_at_the_start(pool: WorkerPool) -> None:
    with pytest.raises(UnsupportedLanguage, match="moonshine reads en; got 'zh'"):
        await create_recognizer(settings(asr={"language": "zh"}), pool)


async def test_absent_model_files_are_an_environment_fault(pool: WorkerPool, tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="rejoinder models fetch"):
        await create_recognizer(settings(models={"cache_dir": str(tmp_path)}), pool)


async def test_whisper_without_its_packages_says_what_to_install(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "faster_whisper", None)
    with pytest.raises(EnvironmentFault, match=r"pip install rejoinder\[zh\].*rejoinder models fetch zh"):
        await create_recognizer(settings(asr={"engine": "whisper", "language": "zh"}), pool)
