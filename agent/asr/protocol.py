"""What a speech recogniser is to the rest of Rejoinder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["EngineInfo", "Hypothesis", "Recognizer", "RecognizerStream", "Word"]


@dataclass(frozen=True, slots=True)
class EngineInfo:
    """What an engine states about itself; `version` is part of every cache key."""

    name: str
    version: str
    sample_rate_hz: int
    languages: tuple[str, ...]
    streams: bool
    voices: tuple[str, ...] = ()

    @property
    def identity(self) -> str:
        """Name and version, for cache keys."""
        return f"{self.name}/{self.version}"


@dataclass(frozen=True, slots=True)
class Word:
    """A word and when it was said or is heard, in seconds from the start of the segment."""

    text: str
    start_s: float
    end_s: float


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """What was understood so far."""

    text: str = ""
    stable: str = ""
    """The opening of `text` on which two readings agreed. Show this: it grows, and its words seldom change; a later
    reading, mostly the final one, may still correct them."""
    words: tuple[Word, ...] = ()
    confidence: float = 1.0
    end_of_turn: float | None = None
    """Probability that the speaker is done, if the engine can tell."""
    revision: int = 0
    """Grows with every new reading of the stream, so that a reader can tell news from old."""
    sound: float | None = None
    """Of a final: probability that the speaker is done by the sound alone, where it was judged beside the reading."""


class RecognizerStream(Protocol):
    """One caller's segment of speech. Cheap calls on the event loop; the work happens in the engine's threads."""

    def push(self, pcm: npt.NDArray[np.int16]) -> None:
        """Add audio: int16 [n], 16 kHz mono. Never blocks. May be called after `final()`: the segment goes on."""

    def partial(self) -> Hypothesis:
        """The newest reading; returns at once. A fresh reading is scheduled by `push` as audio accumulates."""
        ...

    async def final(self) -> Hypothesis:
        """Read everything pushed so far. Raises EngineError. May be called again after more `push`."""
        ...

    def close(self) -> None:
        """Drop pending work. Idempotent."""


class Recognizer(Protocol):
    """A recogniser that many calls share. One per language shard."""

    @property
    def info(self) -> EngineInfo: ...

    def stream(self, *, language: str, hints: Sequence[str] = ()) -> RecognizerStream:
        """Open a segment. Raises UnsupportedLanguage."""
        ...

    async def close(self) -> None: ...
