"""A recogniser that hears what a test tells it, or what is in the sound of a scripted caller."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from agent.asr.protocol import EngineInfo, Hypothesis
from agent.errors import EngineError
from agent.media.frames import HEARING_HZ, Pcm
from agent.testing.lexicon import Lexicon

__all__ = ["Reading", "ScriptedRecognizer", "ScriptedStream"]

MS_PER_WORD = 320
"""Audio that reveals another word where the sound carries none."""

PUNCTUATED = 0.9
"""How sure a recogniser that punctuates is of the end at a full stop."""

HEARD_SHARE = 0.6
"""A word is understood when this share of its sound came."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How one final reading goes."""

    after_s: float = 0.0
    """How long it takes, beside the recogniser's `final_s`."""
    text: str | None = None
    """What is read in place of what was heard; empty for nothing."""
    fails: bool = False
    hangs: bool = False
    end_of_turn: float | None = None
    """As `Hypothesis.end_of_turn`."""


class ScriptedStream:
    """One turn of a ScriptedRecognizer."""

    def __init__(self, owner: ScriptedRecognizer, language: str) -> None:
        self._owner = owner
        self.language = language
        self.closed = False
        self._samples = 0
        self._heard: dict[int, int] = {}
        self._text = owner.texts.pop(0) if owner.lexicon is None and owner.texts else ""

    def push(self, pcm: Pcm) -> None:
        """Audio reveals words: those it carries, or one of the text every 320 ms."""
        self._samples += len(pcm)
        if self._owner.lexicon is not None:
            for number, samples in self._owner.lexicon.read(pcm).items():
                self._heard[number] = self._heard.get(number, 0) + samples

    def partial(self) -> Hypothesis:
        """The words revealed so far."""
        if not self._owner.partials:
            return Hypothesis()
        shown = " ".join(self._understood())
        return Hypothesis(shown, shown, revision=len(shown))

    async def final(self) -> Hypothesis:
        """All words, after `final_s`, or what the next scripted Reading says. Raises EngineError."""
        owner = self._owner
        text = self._text if owner.lexicon is None else " ".join(self._understood())
        reading = owner.readings.popleft() if owner.readings else Reading()
        owner.finals += 1
        await asyncio.sleep(owner.final_s + reading.after_s)
        if reading.hangs:
            await asyncio.Event().wait()
        if owner.broken or reading.fails:
            raise EngineError("scripted failure")
        text = text if reading.text is None else reading.text
        return Hypothesis(text, text, end_of_turn=_ends(text) if reading.end_of_turn is None else reading.end_of_turn)

    def close(self) -> None:
        """Marks the stream closed."""
        self.closed = True

    def _understood(self) -> list[str]:
        lexicon = self._owner.lexicon
        if lexicon is None:
            return self._text.split()[: self._samples * 1000 // HEARING_HZ // MS_PER_WORD]
        words = [(lexicon.word(number), samples) for number, samples in self._heard.items()]
        return [word.text for word, samples in words if word is not None and samples >= word.samples * HEARD_SHARE]


class ScriptedRecognizer:
    """Hears the given texts, one a turn; or, given a lexicon, the words that a scripted caller's sound carries.

    Args:
        texts: what successive streams will have heard.
        final_s: how long a final takes.
        lexicon: hear the words of the sound.
        languages: what it knows.
    """

    def __init__(
        self,
        texts: Sequence[str] = (),
        *,
        final_s: float = 0.0,
        lexicon: Lexicon | None = None,
        languages: tuple[str, ...] = ("en", "zh"),
    ) -> None:
        self.texts = list(texts)
        self.final_s = final_s
        self.lexicon = lexicon
        self.broken = False
        """True: every final fails."""
        self.partials = True
        """False: nothing is read before a final, as by an engine that does not stream."""
        self.readings: deque[Reading] = deque()
        """How the next finals go, in order; after them all is well."""
        self.finals = 0
        """Finals asked for so far."""
        self.streams: list[ScriptedStream] = []
        self.info = EngineInfo("scripted", "1", HEARING_HZ, languages, streams=True)

    def stream(self, *, language: str, hints: Sequence[str] = ()) -> ScriptedStream:  # noqa: ARG002
        """The next turn's stream."""
        stream = ScriptedStream(self, language)
        self.streams.append(stream)
        return stream

    async def close(self) -> None:
        """Nothing to free."""


def _ends(text: str) -> float | None:
    """What a recogniser that punctuates thinks of a text that is punctuated."""
    return PUNCTUATED if text.endswith(tuple(".?!。？！")) else None
