"""The optional voice for Mandarin (and more English voices): Kokoro-82M on the worker pool, cut at each comma."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

from agent.asr.protocol import EngineInfo
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.core.urgency import current_priority
from agent.errors import EnvironmentFault, UnsupportedLanguage, UnsupportedVoice
from agent.language import primary_language
from agent.media.frames import SPEAKING_HZ
from agent.tts.kokoromodel import KokoroModel
from agent.tts.pieces import split_pieces
from agent.tts.plain import plain_text, speakable
from agent.tts.protocol import Speech, Style, Voice
from agent.tts.shaping import SHAPING_VERSION, shape

__all__ = ["KokoroSynthesizer"]

MODEL = "kokoro-82m"

GAIN = {"zh": 0.85, "en": 1.4}
"""Bring the voices, about -19 and -25 dBFS RMS, to the level of the embedded one."""

FIRST_CHARS = {"zh": 16, "en": 50}
LATER_CHARS = {"zh": 40, "en": 120}
"""Half of real time on one core: 16 ideographs are 4 s of speech and 2 s of work, so cut early and everywhere."""

DEFAULT_VOICES = {"zh": "zf_xiaoxiao", "en": "af_heart"}
MIN_RATE, MAX_RATE = 0.5, 2.0
WARM_UP = "你好，OK。"


class KokoroSynthesizer:
    """A synthesiser shared by all calls. Make one with `load`."""

    def __init__(self, model: KokoroModel, pool: WorkerPool) -> None:
        self._model = model
        self._pool = pool
        self._streams = 0
        names = sorted(model.voices, key=lambda name: (name != DEFAULT_VOICES[model.voices[name]], name))
        languages = tuple(tag for tag in DEFAULT_VOICES if tag in model.voices.values())
        self._info = EngineInfo(
            "kokoro", f"{model.version}+{SHAPING_VERSION}", SPEAKING_HZ, languages, True, tuple(names)
        )

    @classmethod
    async def load(cls, settings: Settings, pool: WorkerPool) -> KokoroSynthesizer:
        """Load the model from the cache folder in the pool's threads and warm it up.

        Raises ModelMissing (`rejoinder models fetch zh`), EnvironmentFault (the extra `zh` is not installed).
        """
        from agent import models

        folder = models.require(MODEL, settings.models)
        return cls(await pool.run(_load, folder, owner="kokoro"), pool)

    @property
    def info(self) -> EngineInfo:
        """What the engine is; the default voice of each language comes first."""
        return self._info

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """Speak a clause, a comma at a time; see `Synthesizer.stream`. An empty voice name takes the default.

        Raises UnsupportedLanguage, UnsupportedVoice, EngineError.
        """
        language = primary_language(voice.language)
        name = self._voice(voice.name, language)
        rate = min(max(style.rate, MIN_RATE), MAX_RATE)
        self._streams += 1
        owner = ("kokoro", self._streams)
        began_s = 0.0
        pieces = split_pieces(
            plain_text(text), first_chars=FIRST_CHARS[language], later_chars=LATER_CHARS[language], every_comma=True
        )
        for piece in pieces:
            if not speakable(piece):
                continue
            speech = await self._pool.run(
                _speak, self._model, piece, name, rate, began_s, owner=owner, priority=current_priority()
            )
            if speech is not None:
                began_s += len(speech.pcm) / SPEAKING_HZ
                yield speech

    async def close(self) -> None:
        """The model goes with the object."""

    def _voice(self, name: str, language: str) -> str:
        voices = self._model.voices
        if language not in self._info.languages:
            raise UnsupportedLanguage(f"kokoro speaks {', '.join(self._info.languages)}, not {language!r}")
        if not name:
            return next(voice for voice in self._info.voices if voices[voice] == language)
        if name not in voices:
            raise UnsupportedVoice(f"kokoro has no voice {name!r}; there is {', '.join(self._info.voices)}")
        if voices[name] != language:
            raise UnsupportedLanguage(f"voice {name!r} speaks {voices[name]}, not {language!r}")
        return name


def _load(folder: Path) -> KokoroModel:
    model = KokoroModel(folder)
    for language, name in DEFAULT_VOICES.items():
        if model.voices.get(name) != language:
            raise EnvironmentFault(f"{folder / 'voices'} lacks {name}.bin; rejoinder models fetch zh")
    model.speak(WARM_UP, DEFAULT_VOICES["zh"], 1.0)
    return model


def _speak(model: KokoroModel, text: str, voice: str, rate: float, began_s: float) -> Speech | None:
    wave, words = model.speak(text, voice, rate)
    return shape(wave, text, words, gain=GAIN[model.voices[voice]], rate=rate, began_s=began_s)
