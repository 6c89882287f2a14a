"""A voice that does what a test tells it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass

import numpy as np

from agent.asr.protocol import EngineInfo, Word
from agent.errors import EngineError
from agent.media.frames import Pcm
from agent.testing.lexicon import Lexicon
from agent.tts.protocol import Speech, Style, Voice

__all__ = ["Making", "ScriptedSynthesizer"]

MS_PER_CHARACTER = 60
"""Pace of the scripted voice: about that of a person."""


@dataclass(frozen=True, slots=True)
class Making:
    """How one clause is made."""

    first_s: float = 0.0
    """Until its first sound, beside the synthesiser's `first_s`."""
    word_s: float = 0.0
    """Before each further word."""
    words: int | None = None
    """Only so many words are made; 0 makes no sound."""
    fails: bool = False
    """An error follows what was made."""
    hangs: bool = False
    """Nothing follows what was made."""
    extra_s: float = 0.0
    """Sound that goes on after the text."""


class ScriptedSynthesizer:
    """Speaks a tone as long as a person would need for the text, word by word.

    Args:
        first_s: how long it takes to the first piece.
        rate_hz: sample rate.
        lexicon: numbers the words, so that who listens can tell them.
    """

    def __init__(self, *, first_s: float = 0.0, rate_hz: int = 24_000, lexicon: Lexicon | None = None) -> None:
        self.first_s = first_s
        self.lexicon = lexicon or Lexicon()
        self.broken = False
        """True: every clause fails."""
        self.makings: deque[Making] = deque()
        """How the next clauses are made, in order; after them all is well."""
        self.spoken: list[str] = []
        """Clauses asked for, in order."""
        self.asked_as: list[tuple[Voice, Style]] = []
        """The voice and style of each."""
        self.info = EngineInfo("scripted", "1", rate_hz, ("en", "zh"), streams=True, voices=("heart", "other"))

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """One piece a word. Raises EngineError when broken."""
        making = self.makings.popleft() if self.makings else Making()
        await asyncio.sleep(self.first_s + making.first_s)
        if self.broken:
            raise EngineError("scripted failure")
        self.spoken.append(text)
        self.asked_as.append((voice, style))
        at = 0.0
        for number, word in enumerate(text.split()[: making.words]):
            if number and making.word_s:
                await asyncio.sleep(making.word_s)
            seconds = (len(word) + 1) * MS_PER_CHARACTER / 1000
            yield Speech(self.lexicon.mark(self._tone(seconds), word), (Word(word, at, at + seconds),))
            at += seconds
        if making.extra_s:
            yield Speech(self.lexicon.mark(self._tone(making.extra_s)))
        if making.hangs:
            await asyncio.Event().wait()
        if making.fails:
            raise EngineError("scripted failure")

    async def close(self) -> None:
        """Nothing to free."""

    def _tone(self, seconds: float) -> Pcm:
        rate = self.info.sample_rate_hz
        return np.asarray(8000 * np.sin(2 * np.pi * 220 * np.arange(round(seconds * rate)) / rate), np.int16)
