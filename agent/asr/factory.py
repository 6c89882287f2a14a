"""Builds the recogniser that the settings name."""

from __future__ import annotations

from agent.asr.protocol import Recognizer
from agent.config import Settings
from agent.core.pool import WorkerPool

__all__ = ["create_recognizer"]


async def create_recognizer(settings: Settings, pool: WorkerPool) -> Recognizer:
    """Load the engine of `settings.asr`, off the event loop.

    Raises:
        ModelMissing: its model files are absent or damaged.
        EnvironmentFault: a package it needs is not installed.
        UnsupportedLanguage: it does not know `settings.asr.language`.
    """
    recognizer: Recognizer
    # Engines are imported when chosen: an optional one may not be installed.
    if settings.asr.engine == "whisper":
        from agent.asr.whisper import WhisperRecognizer

        recognizer = await WhisperRecognizer.load(settings, pool)
    else:
        from agent.asr.moonshine import MoonshineRecognizer

        recognizer = await MoonshineRecognizer.load(settings, pool)
    # Opening a stream checks the language: better now than in the first call.
    recognizer.stream(language=settings.asr.language).close()
    return recognizer
