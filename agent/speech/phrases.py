"""Phrases made at start-up and kept ready, so that an overloaded or dead engine never means silence."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import numpy as np

from agent.config import PhraseSettings
from agent.errors import EngineError
from agent.speech.normalize import normalize
from agent.tts.protocol import Speech, Style, Synthesizer, Voice

__all__ = ["PhraseBook"]

log = logging.getLogger(__name__)

MAKE_DEADLINE_S = 20.0
"""A phrase takes tens of milliseconds; an engine that needs longer than this at start-up is taken for dead."""


class PhraseBook:
    """Ready speech by phrase name and voice.

    Args:
        settings: the words of each phrase.
        synthesizer: the voice engine, with its fallbacks.
    """

    def __init__(self, settings: PhraseSettings, synthesizer: Synthesizer) -> None:
        self._texts = settings.model_dump()
        self._synthesizer = synthesizer
        self._ready: dict[tuple[str, str], Speech] = {}

    def text(self, name: str) -> str:
        """The words of a phrase. Raises KeyError for an unknown name."""
        return str(self._texts[name])

    async def make(self, voices: Iterable[Voice], style: Style) -> None:
        """Synthesise every phrase in every voice; a phrase that fails is logged and stays without sound."""
        for voice in voices:
            for name, text in self._texts.items():
                try:
                    async with asyncio.timeout(MAKE_DEADLINE_S):
                        spoken = normalize(text, voice.language)
                        pieces = [piece async for piece in self._synthesizer.stream(spoken, voice, style)]
                except (EngineError, TimeoutError) as exc:
                    log.warning("phrase %s in voice %s was not made: %s", name, voice.name, type(exc).__name__)
                    continue
                if pieces:
                    pcm = np.concatenate([piece.pcm for piece in pieces])
                    self._ready[name, voice.name] = Speech(pcm, tuple(w for piece in pieces for w in piece.words))

    def speech(self, name: str, voice: str) -> Speech | None:
        """A phrase's sound in this voice, else in any voice that has it: another voice is better than silence."""
        ready = self._ready.get((name, voice))
        return ready or next((speech for (other, _), speech in self._ready.items() if other == name), None)
