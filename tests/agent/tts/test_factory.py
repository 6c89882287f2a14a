"""The voice that the settings ask for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import ConfigError, EnvironmentFault
from agent.tts.factory import create_synthesizer
from agent.tts.protocol import Style, Voice


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with WorkerPool(1, name="test") as pool:
        yield pool


async def test_the_default_is_the_embedded_voice(pool: WorkerPool) -> None:
    synthesizer = await create_synthesizer(Settings(), pool)
    assert synthesizer.info.name == "hibari"
    assert [piece async for piece in synthesizer.stream("Hello.", Voice(), Style())]
    await synthesizer.close()


async def test_no_last_resort_installed_is_no_error(
    pool: WorkerPool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    synthesizer = await create_synthesizer(Settings(), pool)
    assert synthesizer.info.voices[0] == "heart"
    await synthesizer.close()


@pytest.mark.parametrize(
    ("tts", "error", "message"),
    [
        ({"voice": "nobody"}, ConfigError, r"tts\.voice.*heart"),
        ({"language": "zh"}, ConfigError, r"tts\.language.*en"),
        ({"fallback": "flite"}, EnvironmentFault, "apt-get install flite"),
        ({"engine": "espeak"}, EnvironmentFault, "apt-get install espeak-ng"),
    ],
)
async def test_what_cannot_be_had_is_said(
    pool: WorkerPool,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    tts: dict[str, str],
    error: type[Exception],
    message: str,
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(error, match=message):
        await create_synthesizer(Settings.model_validate({"tts": tts}), pool)
