"""In which language, voice and style a call is held."""

from __future__ import annotations

from agent.errors import ProtocolError
from agent.language import primary_language
from agent.parts import CallParts
from agent.tts.protocol import Style, Voice

__all__ = ["Manner"]

SILENCE_MS = (100, 5000)
"""What a client may set the wait after speech to, as `listening.endpoint_silence_ms`."""


class Manner:
    """What the next clause sounds like, and what may be asked for.

    Args:
        parts: engines and settings.
        language: BCP 47 tag of the caller.

    Raises ProtocolError if the recogniser does not know the language: the caller would talk to the deaf.
    """

    def __init__(self, parts: CallParts, language: str) -> None:
        self._parts = parts
        self._check_heard(language, "language")
        self.voice = Voice(parts.settings.tts.voice, self._spoken(language))
        self.style = Style(parts.settings.tts.rate)

    def check(self, *, voice: str | None, language: str | None, silence_ms: int | None) -> None:
        """Raises ProtocolError naming the field that cannot be had."""
        voices = self._parts.voices()
        if voice is not None and voice not in voices:
            raise ProtocolError(f"expected one of {', '.join(voices)}", field="session.voice", code="invalid_value")
        if language is not None:
            self._check_heard(language, "session.language")
        low, high = SILENCE_MS
        if silence_ms is not None and not low <= silence_ms <= high:
            field = "session.turn_detection.silence_duration_ms"
            raise ProtocolError(f"expected {low} to {high}", field=field, code="invalid_value")

    def change(self, *, voice: str | None, language: str | None) -> None:
        """From the next clause on; both were checked."""
        name = self.voice.name if voice is None else voice
        self.voice = Voice(name, self.voice.language if language is None else self._spoken(language))

    def _check_heard(self, language: str, field: str) -> None:
        known = self._parts.recognizer.info.languages
        if primary_language(language) not in known:
            raise ProtocolError(f"expected one of {', '.join(known)}", field=field, code="invalid_value")

    def _spoken(self, language: str) -> str:
        """The language to speak to a caller of `language`: that one if a voice has it, else the configured one."""
        spoken = {primary_language(tag) for tag in self._parts.synthesizer.info.languages}
        return language if primary_language(language) in spoken else self._parts.settings.tts.language
