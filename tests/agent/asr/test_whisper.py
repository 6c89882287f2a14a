"""Whisper's own decisions over a scripted CTranslate2: windows, inventions, repetition, script. The packages and the
model are optional, so that these tests bring stand-ins for both; `bench/engines` measures the real one."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from agent.asr.reading import ReadingStopped, StopSignal
from agent.asr.whisper import WhisperModel, WhisperRecognizer
from agent.core.pool import WorkerPool
from agent.errors import ModelMissing, UnsupportedLanguage

RATE = 16_000
LANGUAGES = ("en", "fr", "zh")
VOCABULARY = ("hello", "你好嗎", "la " * 40, "...", "thanks")
HELLO, CHINESE, LOOP, DOTS, THANKS = range(len(VOCABULARY))


@dataclass
class Engine:
    """What the stand-in model was asked, and what it answers: token, mean log probability, no-speech probability."""

    answers: list[tuple[int, float, float]] = field(default_factory=list)
    frames: list[int] = field(default_factory=list)
    prompts: list[list[int]] = field(default_factory=list)
    broken: bool = False


@dataclass
class Result:
    sequences_ids: list[list[int]]
    scores: list[float]
    no_speech_prob: float


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Engine:
    engine = Engine()

    class Whisper:
        def __init__(self, folder: str, **options: Any) -> None:
            if engine.broken:
                raise RuntimeError("no model.bin")

        def encode(self, features: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            engine.frames.append(features.shape[-1])
            return features

        def generate(self, encoded: Any, prompts: list[list[int]], **options: Any) -> list[Result]:
            engine.prompts.extend(prompts)
            token, score, no_speech = engine.answers.pop(0)
            return [Result([[token]], [score], no_speech)]

    class Storage:
        @staticmethod
        def from_array(array: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
            return array

    class HfTokenizer:
        @staticmethod
        def from_file(path: str) -> HfTokenizer:
            return HfTokenizer()

        def token_to_id(self, token: str) -> int | None:
            return 1 if token.strip("<|>") in LANGUAGES else None

    class Tokenizer:
        no_timestamps, sot_prev = 900, 901

        def __init__(self, tokenizer: Any, multilingual: bool, *, task: str, language: str) -> None:
            self.sot_sequence = [910, 920 + LANGUAGES.index(language), 930]

        def encode(self, text: str) -> list[int]:
            return [ord(char) for char in text]

        def decode(self, tokens: list[int]) -> str:
            return VOCABULARY[tokens[0]]

    class Features:
        def __call__(self, samples: npt.NDArray[np.float32], padding: int) -> npt.NDArray[np.float32]:
            return np.zeros((80, len(samples) // 160), np.float32)

    def module(name: str, **members: Any) -> None:
        fake = ModuleType(name)
        for key, value in members.items():
            setattr(fake, key, value)
        monkeypatch.setitem(sys.modules, name, fake)

    models = ModuleType("models")
    models.Whisper = Whisper  # type: ignore[attr-defined]
    module("ctranslate2", models=models, StorageView=Storage)
    module("tokenizers", Tokenizer=HfTokenizer)
    module("faster_whisper")
    module("faster_whisper.tokenizer", Tokenizer=Tokenizer, _LANGUAGE_CODES=(*LANGUAGES, "yue"))
    module("faster_whisper.feature_extractor", FeatureExtractor=Features)
    module("zhconv", convert=lambda text, script: {"zh-hans": "你好吗", "zh-hant": "你好嗎"}[script])
    return engine


@pytest.fixture
def model(engine: Engine) -> WhisperModel:
    return WhisperModel(Path("anywhere"), workers=1)


def read(model: WhisperModel, seconds: float, language: str = "en", hints: tuple[str, ...] = ()) -> str:
    pcm = np.full(round(seconds * RATE), 1000, np.int16)
    return model.read(pcm, language=language, hints=hints, stop=StopSignal()).text


@pytest.mark.parametrize(("seconds", "window_s"), [(1.0, 30), (2.0, 7), (10.0, 15), (27.0, 30)])
def test_the_window_is_the_audio_and_five_seconds_but_full_for_short_audio(
    engine: Engine, model: WhisperModel, seconds: float, window_s: float
) -> None:
    engine.answers = [(HELLO, -0.1, 0.0)]
    assert read(model, seconds) == "hello"
    assert engine.frames == [window_s * 100]


def test_text_of_silence_and_text_without_letters_are_dropped(engine: Engine, model: WhisperModel) -> None:
    engine.answers = [(THANKS, -1.5, 0.9), (THANKS, -0.2, 0.9), (DOTS, -0.1, 0.0)]
    assert [read(model, 3) for _ in range(3)] == ["", "thanks", ""]


def test_a_repeating_text_is_read_again_with_the_full_window_and_dropped_if_it_persists(
    engine: Engine, model: WhisperModel
) -> None:
    engine.answers = [(LOOP, -0.1, 0.0), (HELLO, -0.1, 0.0)]
    assert read(model, 3) == "hello"
    assert engine.frames == [800, 3000]
    engine.answers = [(LOOP, -0.1, 0.0), (LOOP, -0.1, 0.0)]
    assert read(model, 3) == ""


@pytest.mark.parametrize(
    ("tag", "text"),
    [("zh", "你好吗"), ("zh-CN", "你好吗"), ("zh-TW", "你好嗎"), ("zh-Hant-HK", "你好嗎"), ("zh_hans", "你好吗")],
)
def test_chinese_comes_in_the_script_of_the_tag(engine: Engine, model: WhisperModel, tag: str, text: str) -> None:
    engine.answers = [(CHINESE, -0.1, 0.0)]
    assert read(model, 3, tag) == text


def test_hints_go_before_the_audio_and_are_bounded(engine: Engine, model: WhisperModel) -> None:
    engine.answers = [(HELLO, -0.1, 0.0)] * 2
    read(model, 3, "fr-CA")
    read(model, 3, "fr", hints=("x" * 500,))
    assert engine.prompts[0] == [910, 921, 930, 900]
    assert engine.prompts[1] == [901, ord(" "), *[ord("x")] * 99, 910, 921, 930, 900]


def test_a_stopped_reading_ends_before_the_next_step(engine: Engine, model: WhisperModel) -> None:
    stop = StopSignal()
    stop.set()
    with pytest.raises(ReadingStopped):
        model.read(np.zeros(RATE, np.int16), language="en", hints=(), stop=stop)
    assert engine.frames == []


def test_a_damaged_model_says_what_to_run(engine: Engine) -> None:
    engine.broken = True
    with pytest.raises(ModelMissing, match="rejoinder models fetch zh"):
        WhisperModel(Path("anywhere"), workers=1)


async def test_a_stream_reads_in_its_own_language(engine: Engine, model: WhisperModel, pool: WorkerPool) -> None:
    recognizer = WhisperRecognizer(model, pool, partial_every_ms=320)
    assert recognizer.info.languages == LANGUAGES
    with pytest.raises(UnsupportedLanguage, match="'yue'"):
        recognizer.stream(language="yue")
    engine.answers = [(CHINESE, -0.1, 0.0)] * 3
    stream = recognizer.stream(language="zh-CN")
    stream.push(np.random.default_rng(0).normal(0, 3000, RATE).astype(np.int16))
    final = await stream.final()
    assert final.text == "你好吗"
    assert [word.text for word in final.words] == ["你", "好", "吗"]
    assert engine.prompts[-1][1] == 922
    await recognizer.close()
