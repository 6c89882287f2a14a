"""Recorded speech and the real model, shared by the tests of recognition."""

from __future__ import annotations

import os
import wave
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from agent.asr.moonshine import MoonshineModel, MoonshineRecognizer
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.models import require

Pcm = npt.NDArray[np.int16]

SPEECH = Path(os.environ.get("REJOINDER_SPEECH") or Path(__file__).parents[3] / ".." / "shared" / "speech")


@pytest.fixture(scope="session")
def recording() -> Callable[[str], Pcm]:
    """A recorded clip by name: int16 [n], 16 kHz."""

    def read(name: str) -> Pcm:
        path = SPEECH / "wav16" / f"{name}.wav"
        if not path.exists():
            pytest.fail(f"{path} is missing: set REJOINDER_SPEECH to the folder of recorded speech")
        with wave.open(str(path)) as file:
            assert (file.getframerate(), file.getnchannels(), file.getsampwidth()) == (16_000, 1, 2)
            return np.frombuffer(file.readframes(file.getnframes()), np.int16)

    return read


@pytest.fixture(scope="session")
def model() -> MoonshineModel:
    return MoonshineModel(require("moonshine-base-en", Settings().models))


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with WorkerPool(2, name="test-asr") as pool:
        yield pool


@pytest.fixture
async def recognizer(model: MoonshineModel, pool: WorkerPool) -> AsyncIterator[MoonshineRecognizer]:
    recognizer = MoonshineRecognizer(model, pool, partial_every_ms=320)
    yield recognizer
    await recognizer.close()
