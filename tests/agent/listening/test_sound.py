from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from agent.config import ListeningSettings, ModelSettings, Settings
from agent.core.pool import WorkerPool
from agent.errors import EngineError, ModelMissing
from agent.listening.sound import TurnSound, load_turn_model
from agent.media.frames import Pcm


class Scripted:
    """Answers with a probability, or fails; keeps what it heard."""

    def __init__(self, answer: float | EngineError) -> None:
        self.answer = answer
        self.heard: list[Pcm] = []

    def probability(self, pcm: Pcm) -> float:
        self.heard.append(pcm)
        if isinstance(self.answer, EngineError):
            raise self.answer
        return self.answer


def buzz(samples: int = 16_000) -> Pcm:
    at = np.arange(samples) / 16_000
    return (4000 * sum(np.sin(2 * np.pi * 120 * k * at) / k for k in range(1, 6))).astype(np.int16)


async def test_the_model_hears_the_turn_without_repeats() -> None:
    model = Scripted(0.8)
    async with WorkerPool(1, name="test") as pool:
        sound = TurnSound(model, pool)
        sound.begin(np.array([1, 2, 3], np.int16), 2)
        sound.push(np.array([4, 5], np.int16))
        sound.begin(np.array([4, 5, 6], np.int16), 2)
        assert await sound.judge() == 0.8
    # A turn's first segment has nothing before it, whatever is said to be repeated.
    assert model.heard[0].tolist() == [1, 2, 3, 4, 5, 6]


async def test_a_new_turn_begins_from_nothing() -> None:
    model = Scripted(0.5)
    async with WorkerPool(1, name="test") as pool:
        sound = TurnSound(model, pool)
        sound.push(np.arange(5, dtype=np.int16))
        sound.clear()
        assert await sound.judge() is None
        sound.begin(np.array([7, 8], np.int16), 1)
        await sound.judge()
    assert [heard.tolist() for heard in model.heard] == [[7, 8]]


async def test_without_a_model_the_contour_answers() -> None:
    async with WorkerPool(1, name="test") as pool:
        sound = TurnSound(None, pool)
        sound.push(buzz())
        judged = await sound.judge()
    assert judged is not None
    assert 0.18 < judged < 0.82


async def test_a_model_that_fails_is_stood_in_for_by_the_contour() -> None:
    async with WorkerPool(1, name="test") as pool:
        failing, bare = TurnSound(Scripted(EngineError("broken")), pool), TurnSound(None, pool)
        for sound in (failing, bare):
            sound.push(buzz())
        assert await failing.judge() == await bare.judge()


async def test_a_closed_pool_is_no_reason_to_fail() -> None:
    pool = WorkerPool(1, name="test")
    pool.start()
    await pool.close()
    sound = TurnSound(Scripted(0.9), pool)
    sound.push(buzz())
    judged = await sound.judge()
    assert judged is not None
    assert judged != 0.9


async def test_two_calls_share_a_model_and_nothing_else() -> None:
    model = Scripted(0.5)
    async with WorkerPool(2, name="test") as pool:
        calls = [TurnSound(model, pool) for _ in range(2)]
        for number, sound in enumerate(calls):
            sound.push(np.full(4, number, np.int16))
        await asyncio.gather(*(sound.judge() for sound in calls))
    assert sorted(heard.tolist() for heard in model.heard) == [[0] * 4, [1] * 4]


def settings(folder: Path, **listening: object) -> Settings:
    return Settings(
        models=ModelSettings(cache_dir=folder),
        listening=ListeningSettings(**listening),  # type: ignore[arg-type]
    )


async def test_a_model_that_is_not_installed_is_done_without_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with WorkerPool(1, name="test") as pool:
        assert await load_turn_model(settings(tmp_path), pool) is None
        with pytest.raises(ModelMissing, match="smart-turn"):
            await load_turn_model(settings(tmp_path, turn_model="on"), pool)


@pytest.mark.parametrize("wish", [{"turn_model": "off"}, {"turn_model": "on", "endpoint": "silence"}])
async def test_no_model_is_loaded_that_nobody_would_ask(tmp_path: Path, wish: dict[str, object]) -> None:
    async with WorkerPool(1, name="test") as pool:
        assert await load_turn_model(settings(tmp_path, **wish), pool) is None
