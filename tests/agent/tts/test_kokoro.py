"""The optional Mandarin voice: choosing voices and cutting, with a scripted model; the real one is optional."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.asr.protocol import Word
from agent.core.pool import WorkerPool
from agent.errors import EnvironmentFault, UnsupportedLanguage, UnsupportedVoice
from agent.tts.kokoro import KokoroSynthesizer
from agent.tts.kokoromodel import KokoroModel
from agent.tts.plain import word_spans
from agent.tts.protocol import Speech, Style, Voice


class ScriptedModel:
    """Says each word as 0.1 s of a constant."""

    version = "scripted"
    voices = {"zf_xiaoxiao": "zh", "zm_yunxi": "zh", "af_heart": "en"}  # noqa: RUF012

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def speak(self, text: str, voice: str, rate: float) -> tuple[Any, list[Word]]:
        self.said.append((text, voice))
        words = [Word(text[a:b], 0.1 * i, 0.1 * (i + 1)) for i, (a, b) in enumerate(word_spans(text))]
        return np.full(2400 * len(words), 0.3, np.float32), words


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with WorkerPool(1, name="test") as pool:
        yield pool


async def speak(engine: KokoroSynthesizer, text: str, voice: Voice) -> list[Speech]:
    return [piece async for piece in engine.stream(text, voice, Style())]


async def test_each_comma_is_a_piece_and_word_times_go_on(pool: WorkerPool) -> None:
    model = ScriptedModel()
    engine = KokoroSynthesizer(model, pool)  # type: ignore[arg-type]
    pieces = await speak(engine, "您好，订单已发货，请查收。", Voice("", "zh-CN"))
    assert [text for text, _ in model.said] == ["您好，", "订单已发货，", "请查收。"]
    words = [word for piece in pieces for word in piece.words]
    assert "".join(word.text for word in words) == "您好，订单已发货，请查收。"
    assert [w.start_s for w in words] == sorted(w.start_s for w in words)
    assert words[-1].end_s <= sum(len(piece.pcm) for piece in pieces) / 24_000


async def test_the_voice_decides_or_the_language_does(pool: WorkerPool) -> None:
    model = ScriptedModel()
    engine = KokoroSynthesizer(model, pool)  # type: ignore[arg-type]
    assert engine.info.languages == ("zh", "en")
    await speak(engine, "好", Voice("", "zh"))
    await speak(engine, "好", Voice("zm_yunxi", "zh"))
    await speak(engine, "good", Voice("", "en-US"))
    assert [voice for _, voice in model.said] == ["zf_xiaoxiao", "zm_yunxi", "af_heart"]
    with pytest.raises(UnsupportedVoice, match="zf_xiaoxiao"):
        await speak(engine, "好", Voice("nobody", "zh"))
    with pytest.raises(UnsupportedLanguage):
        await speak(engine, "good", Voice("zm_yunxi", "en"))
    with pytest.raises(UnsupportedLanguage):
        await speak(engine, "hola", Voice("", "es"))


async def test_nothing_to_say_gives_no_piece(pool: WorkerPool) -> None:
    model = ScriptedModel()
    assert await speak(KokoroSynthesizer(model, pool), "🎉。", Voice("", "zh")) == []  # type: ignore[arg-type]
    assert model.said == []


def test_missing_files_say_what_to_fetch_or_install(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"fetch zh|pip install"):
        KokoroModel(tmp_path)
