"""A call's side of the recogniser: one stream a turn, however many segments of speech the turn has."""

from __future__ import annotations

from agent.asr.protocol import Hypothesis, Recognizer, RecognizerStream
from agent.media.frames import HEARING_HZ, Pcm

__all__ = ["Ear"]


SILENCE_SAMPLES = HEARING_HZ * 80 // 1000
"""What closed the segment before is silence for longer than this, and may hold the breath of the next word."""


class Ear:
    """Feeds speech to a recogniser and tells news from old.

    Args:
        recognizer: shared by all calls.
        language: BCP 47 tag; a change takes effect with the next turn.
    """

    def __init__(self, recognizer: Recognizer, language: str) -> None:
        self.recognizer = recognizer
        self.language = language
        self._stream: RecognizerStream | None = None
        self._seen = 0
        self._worded = False

    @property
    def open(self) -> bool:
        """True while a turn is being heard."""
        return self._stream is not None

    def begin(self, pcm: Pcm, repeated: int) -> None:
        """A segment opened; the first `repeated` samples were part of the segment before.

        Raises UnsupportedLanguage.
        """
        if self._stream is None:
            self._stream = self.recognizer.stream(language=self.language)
            self._seen = 0
            # The last word of the turn before must not be the first of this one; where nothing was read, none was lost
            # to a turn, and a short one may have begun this.
            repeated = max(0, repeated - SILENCE_SAMPLES) if self._worded else 0
            self._worded = False
        self._stream.push(pcm[repeated:])

    def push(self, pcm: Pcm) -> None:
        """More of the open segment."""
        if self._stream is not None:
            self._stream.push(pcm)

    def news(self) -> Hypothesis | None:
        """The newest reading if it was not asked for before."""
        if self._stream is None:
            return None
        hypothesis = self._stream.partial()
        if hypothesis.revision == self._seen:
            return None
        self._seen = hypothesis.revision
        self._worded |= bool(hypothesis.text)
        return hypothesis

    async def final(self) -> Hypothesis:
        """Read all that was heard in this turn. Raises EngineError."""
        stream = self._stream
        if stream is None:
            return Hypothesis()
        hypothesis = await stream.final()
        if stream is self._stream:
            self._worded |= bool(hypothesis.text)
        return hypothesis

    def reset(self) -> None:
        """The turn is over: drop its stream. Idempotent."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None
