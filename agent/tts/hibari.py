"""The embedded English voice: hibari-tts on the worker pool, a short piece at a time."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
from collections.abc import AsyncIterator

from agent.asr.protocol import EngineInfo
from agent.config import TtsSettings
from agent.core.pool import WorkerPool
from agent.core.urgency import current_priority
from agent.errors import UnsupportedLanguage, UnsupportedVoice
from agent.language import primary_language
from agent.media.frames import SPEAKING_HZ
from agent.tts.hibarimodel import HibariModel, installed_voices
from agent.tts.pieces import split_pieces
from agent.tts.plain import plain_text, speakable
from agent.tts.protocol import Speech, Style, Voice
from agent.tts.shaping import SHAPING_VERSION, shape

__all__ = ["HibariSynthesizer"]

GAIN = 1.9
"""The voice speaks at -27 dBFS RMS with peaks near 0.35; this brings it to about -21, peaks under 0.7."""

FIRST_CHARS = 90
"""About 20 ms of work on one core; a longer first piece is cut at a comma."""

LATER_CHARS = 300
"""Under the model's 400 phonemes in nearly all texts."""

MIN_RATE, MAX_RATE = 0.5, 2.0
WARM_UP = "Thank you for calling, doctor Quixley. One moment, please."
"""Holds an unknown name, so that the spelling network is loaded too."""


class HibariSynthesizer:
    """A synthesiser shared by all calls. Make one with `load`."""

    def __init__(self, model: HibariModel, voices: tuple[str, ...], pool: WorkerPool) -> None:
        self._models = {model.voice: model}
        self._loading = asyncio.Lock()
        self._pool = pool
        self._streams = 0
        version = f"{importlib.metadata.version('hibari-tts')}+{SHAPING_VERSION}"
        ordered = (model.voice, *(v for v in voices if v != model.voice))
        self._info = EngineInfo("hibari", version, SPEAKING_HZ, ("en",), True, ordered)

    @classmethod
    async def load(cls, settings: TtsSettings, pool: WorkerPool) -> HibariSynthesizer:
        """Load and warm up the voice that the settings name, in the pool's threads.

        Raises UnsupportedVoice (its file is not on this machine), EnvironmentFault (the package is damaged).
        """
        return cls(
            await pool.run(_load, settings.voice, owner="hibari"),
            await pool.run(installed_voices, owner="hibari"),
            pool,
        )

    @property
    def info(self) -> EngineInfo:
        """What the engine is; `voices` are those whose files are here, the loaded one first."""
        return self._info

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """Speak English text, a sentence or clause at a time; see `Synthesizer.stream`.

        Each piece starts within 10 ms of its first sound and ends with the pause its last mark asks for.

        Raises UnsupportedLanguage, UnsupportedVoice, EngineError.
        """
        if primary_language(voice.language) != "en":
            raise UnsupportedLanguage(f"hibari speaks en, not {voice.language!r}")
        model = await self._model(voice.name)
        rate = min(max(style.rate, MIN_RATE), MAX_RATE)
        self._streams += 1
        owner = ("hibari", self._streams)
        began_s = 0.0
        for piece in split_pieces(plain_text(text), first_chars=FIRST_CHARS, later_chars=LATER_CHARS):
            if not speakable(piece):
                continue
            for speech in await self._pool.run(
                _speak, model, piece, rate, began_s, owner=owner, priority=current_priority()
            ):
                began_s += len(speech.pcm) / SPEAKING_HZ
                yield speech

    async def warm(self, voice: Voice) -> None:
        """Load a voice before it is needed. Raises UnsupportedVoice."""
        await self._model(voice.name)

    async def close(self) -> None:
        """Drop the models."""
        self._models.clear()

    async def _model(self, name: str) -> HibariModel:
        name = name or self._info.voices[0]
        with contextlib.suppress(KeyError):
            return self._models[name]
        if name not in self._info.voices:
            raise UnsupportedVoice(f"voice {name!r} is not installed; there is {', '.join(self._info.voices)}")
        async with self._loading:
            if name not in self._models:
                self._models[name] = await self._pool.run(_load, name, owner="hibari")
            return self._models[name]


def _load(voice: str) -> HibariModel:
    model = HibariModel(voice)
    model.speak(WARM_UP, 1.0)
    return model


def _speak(model: HibariModel, text: str, rate: float, began_s: float) -> list[Speech]:
    out: list[Speech] = []
    runs = model.speak(text, rate)
    for i, (wave, words) in enumerate(runs):
        # Between runs of one piece there is no mark, but for the last.
        said = text if i == len(runs) - 1 else " ".join(w.text for w in words or ())
        if speech := shape(wave, said, words, gain=GAIN, rate=rate, began_s=began_s):
            began_s += len(speech.pcm) / SPEAKING_HZ
            out.append(speech)
    return out
