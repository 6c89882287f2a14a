"""What a speech synthesiser is to the rest of Rejoinder."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from agent.asr.protocol import EngineInfo, Word
from agent.media.codec import Codec
from agent.media.encoded import EncodedSpeech

__all__ = ["CUT_SHORT", "Discreet", "Speech", "Style", "Synthesizer", "Voice"]

CUT_SHORT = "cut short"
"""`Speech.source` of the empty piece that ends an incomplete stream: good enough to be heard, not to be kept."""


@dataclass(frozen=True, slots=True)
class Voice:
    """A voice by name and language."""

    name: str = "heart"
    language: str = "en"


@dataclass(frozen=True, slots=True)
class Style:
    """How to speak. `rate` 1.0 is the voice's own pace."""

    rate: float = 1.0
    instruction: str = ""


@dataclass(frozen=True, slots=True)
class Speech:
    """A piece of synthesised speech: int16 [n] mono at the engine's sample rate.

    `words` are timed from the start of the `stream()` call's audio, and name words of the text given to it.
    """

    pcm: npt.NDArray[np.int16]
    words: tuple[Word, ...] = field(default=())
    source: str = ""
    """Name and version of the engine that made it (`EngineInfo.identity`), where one of several may have; else empty.
    `CUT_SHORT`, without samples, ends a stream of which a part was lost."""
    packets: Callable[[Codec], EncodedSpeech | None] | None = field(default=None, compare=False)
    """Of stored speech that is one whole clause: its packets in a call's encoding, if they are there."""


class Synthesizer(Protocol):
    """A synthesiser that many calls share. One per voice shard."""

    @property
    def info(self) -> EngineInfo: ...

    def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """Speak one clause, yielding pieces as they exist. Closing the iterator cancels the work.

        Raises EngineError, UnsupportedVoice, UnsupportedLanguage.
        """
        ...

    async def close(self) -> None: ...


@runtime_checkable
class Discreet(Protocol):
    """A synthesiser that stores what it says, and can be told not to."""

    def privately(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """`Synthesizer.stream`, of which nothing leaves memory."""
        ...
