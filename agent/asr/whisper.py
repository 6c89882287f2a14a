"""Whisper base on CTranslate2: Mandarin and 98 more languages. Needs the extra `zh` and the model set `zh`.

Slower than Moonshine (a reading of five seconds costs about half a second of a core), and its partials come from
whole new readings. Used for the languages that Moonshine does not know.
"""

from __future__ import annotations

import importlib
import math
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from agent.asr.protocol import EngineInfo
from agent.asr.reading import Reader, Reading, StopSignal
from agent.asr.rereading import RereadingRecognizer
from agent.asr.segment import RATE_HZ
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import EnvironmentFault, ModelMissing
from agent.language import primary_language
from agent.models import require

__all__ = ["WhisperModel", "WhisperRecognizer"]

MODEL = "whisper-base"
VERSION = "base-ct2-int8"

WINDOW_S = 30
"""What the model was trained on; shorter inputs are padded to it."""

PADDING_S = 5
"""Enough silence after the speech for the model to stop; a third of the cost of the full window."""

SHORT_S = 2
"""Below this the short window makes it repeat itself."""

MAX_TOKENS_PER_S = 12
"""Mandarin runs to about 6 characters a second, of up to 2 tokens each."""
MIN_TOKENS = 16

# A reading is an invention when the model says so (no speech, and unsure of the words) or when it repeats itself.
# The three limits are those of the model's authors.
NO_SPEECH = 0.6
UNSURE_LOG_PROBABILITY = -1.0
REPEATED_RATIO = 2.4

BEAM = 5
"""Over the Mandarin clips: half the errors of a beam of 1 (15 against 29 %) for a seventh more time."""

MAX_HINT_TOKENS = 100
"""Of the 224 that the model takes as text before the audio."""


class WhisperModel:
    """The model with its tokenizer and features; any number of threads may share it.

    Args:
        folder: holds model.bin, config.json, tokenizer.json and vocabulary.json.
        workers: readings at the same time.

    Raises:
        EnvironmentFault: faster-whisper or zhconv is not installed.
        ModelMissing: a file is absent or not what it should be.
    """

    def __init__(self, folder: Path, *, workers: int) -> None:
        ctranslate2 = _module("ctranslate2")
        tokenizers = _module("tokenizers")
        self._whisper_tokens = _module("faster_whisper.tokenizer")
        features = _module("faster_whisper.feature_extractor")
        self._zhconv = _module("zhconv")
        self._storage = ctranslate2.StorageView
        try:
            self._model: Any = ctranslate2.models.Whisper(
                str(folder), device="cpu", compute_type="int8", inter_threads=workers, intra_threads=1
            )
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as exc:  # both raise bare RuntimeError and Exception
            raise ModelMissing(f"{folder} is unusable ({exc}): run `rejoinder models fetch zh`") from exc
        self._features: Any = features.FeatureExtractor()
        self.languages: tuple[str, ...] = tuple(
            sorted(
                code
                for code in self._whisper_tokens._LANGUAGE_CODES
                if self._tokenizer.token_to_id(f"<|{code}|>") is not None
            )
        )

    def read(self, pcm: npt.NDArray[np.int16], *, language: str, hints: Sequence[str], stop: StopSignal) -> Reading:
        """Read int16 [n], 16 kHz mono, up to 25 s, in a language given as a BCP 47 tag.

        Raises:
            ReadingStopped: between the encoder and the decoder, which themselves cannot be interrupted.
        """
        seconds = len(pcm) / RATE_HZ
        window_s = WINDOW_S if seconds < SHORT_S else min(WINDOW_S, seconds + PADDING_S)
        reading, repeats = self._read(pcm, window_s, language, hints, stop)
        if repeats and window_s < WINDOW_S:
            reading, repeats = self._read(pcm, WINDOW_S, language, hints, stop)
        return Reading() if repeats else reading

    def _read(
        self, pcm: npt.NDArray[np.int16], window_s: float, language: str, hints: Sequence[str], stop: StopSignal
    ) -> tuple[Reading, bool]:
        """A reading, and whether it repeats itself."""
        samples = np.zeros(int(window_s * RATE_HZ), np.float32)
        samples[: len(pcm)] = pcm.astype(np.float32) / 32768.0
        mel = self._features(samples, padding=0)[None, :, : WINDOW_S * 100]
        stop.check()
        encoded = self._model.encode(self._storage.from_array(np.ascontiguousarray(mel, np.float32)))
        stop.check()
        tokenizer = self._whisper_tokens.Tokenizer(
            self._tokenizer, True, task="transcribe", language=primary_language(language)
        )
        prompt = [*tokenizer.sot_sequence, tokenizer.no_timestamps]
        if hints:
            prompt = [tokenizer.sot_prev, *tokenizer.encode(" " + ", ".join(hints))[:MAX_HINT_TOKENS], *prompt]
        limit = MIN_TOKENS + int(len(pcm) / RATE_HZ * MAX_TOKENS_PER_S)
        (result,) = self._model.generate(
            encoded,
            [prompt],
            beam_size=BEAM,
            max_length=len(prompt) + limit,
            return_scores=True,
            return_no_speech_prob=True,
        )
        tokens = tuple(int(token) for token in result.sequences_ids[0])
        text = tokenizer.decode(list(tokens)).strip()
        mean = float(result.scores[0])
        silent = result.no_speech_prob > NO_SPEECH and mean < UNSURE_LOG_PROBABILITY
        if silent or not any(char.isalnum() for char in text):
            return Reading(), False
        packed = text.encode()
        repeats = len(packed) / len(zlib.compress(packed)) > REPEATED_RATIO
        return Reading(self._localise(text, language), tokens, min(1.0, math.exp(mean))), repeats

    def _localise(self, text: str, language: str) -> str:
        """Chinese in the script that the tag asks for, simplified where it asks for none; the model mixes both."""
        if primary_language(language) != "zh":
            return text
        parts = {part.lower() for part in language.replace("_", "-").split("-")[1:]}
        script = "zh-hant" if parts & {"hant", "tw", "hk", "mo"} else "zh-hans"
        converted: str = self._zhconv.convert(text, script)
        return converted


class _LanguageReader:
    """The Reader of one stream."""

    def __init__(self, model: WhisperModel, language: str, hints: Sequence[str]) -> None:
        self._model = model
        self._language = language
        self._hints = tuple(hints)

    def read(self, pcm: npt.NDArray[np.int16], known: Reading, stop: StopSignal) -> Reading:  # noqa: ARG002
        return self._model.read(pcm, language=self._language, hints=self._hints, stop=stop)


class WhisperRecognizer(RereadingRecognizer):
    """The Recognizer over WhisperModel. `hints` are put before the audio as if they had been said."""

    def __init__(self, model: WhisperModel, pool: WorkerPool, *, partial_every_ms: int) -> None:
        super().__init__(pool, partial_every_ms=partial_every_ms)
        self._model = model
        self.info = EngineInfo("whisper", VERSION, RATE_HZ, model.languages, streams=True)

    @classmethod
    async def load(cls, settings: Settings, pool: WorkerPool) -> Self:
        """Load the model in a thread of the pool and read a second of silence with it.

        Raises:
            EnvironmentFault: faster-whisper or zhconv is not installed.
            ModelMissing: the model files are absent or damaged.
        """
        model = await pool.run(_load, settings, pool.threads, owner=MODEL)
        return cls(model, pool, partial_every_ms=settings.asr.partial_every_ms)

    def reader(self, language: str, hints: Sequence[str]) -> Reader:
        """A view of the model for one language."""
        return _LanguageReader(self._model, language, hints)


def _load(settings: Settings, workers: int) -> WhisperModel:
    # Importing the packages is most of the load: it belongs off the event loop too.
    _module("faster_whisper")
    model = WhisperModel(require(MODEL, settings.models), workers=workers)
    model.read(np.zeros(RATE_HZ, np.int16), language="en", hints=(), stop=StopSignal())
    return model


def _module(name: str) -> ModuleType:
    # Its parts reach for a model hub by themselves; ours comes from a folder.
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        return importlib.import_module(name)
    except ImportError as exc:
        raise EnvironmentFault(
            f"the whisper engine needs {exc.name or name}: run `pip install rejoinder[zh]`"
            " and `rejoinder models fetch zh`"
        ) from exc
