"""Phrases made at start-up and kept ready, so that an overloaded or dead engine never means silence."""

from __future__ import annotations

import asyncio
import logging
import time
import tomllib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

import numpy as np

from agent.config import PhraseSettings, Settings
from agent.errors import ConfigError, EngineError
from agent.language import primary_language
from agent.speech.chunker import ClauseChunker
from agent.speech.normalize import normalize
from agent.tts.protocol import Speech, Style, Synthesizer, Voice

__all__ = ["PHRASES", "Phrase", "PhraseBook", "configured_languages", "configured_voices", "greetings_of"]

MAKE_DEADLINE_S = 20.0
"""A phrase takes tens of milliseconds; an engine that needs longer than this at start-up is taken for dead."""

TELL_EVERY_S = 1.0
"""Progress of what takes longer than this is told."""

PHRASES = ("filler", "hold", "apology", "still_there", "goodbye", "time_warning")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Phrase:
    """Its words, and their sound."""

    text: str
    speech: Speech


def configured_languages(settings: Settings) -> list[str]:
    """BCP 47 tags that calls are held in by the settings, the agent's own first."""
    named = (settings.tts.language, settings.asr.language, *settings.phrases.languages)
    by_primary: dict[str, str] = {}
    for tag in named:
        by_primary.setdefault(primary_language(tag), tag)
    return list(by_primary.values())


def configured_voices(settings: Settings, synthesizer: Synthesizer) -> list[Voice]:
    """Every voice of the settings in every language of theirs that is spoken, the one most calls have first.

    Raises ConfigError for one of `tts.voices` that there is not.
    """
    spoken = {primary_language(tag) for tag in synthesizer.info.languages}
    languages = [tag for tag in configured_languages(settings) if primary_language(tag) in spoken]
    names = dict.fromkeys((settings.tts.voice, *settings.tts.voices))
    for name in settings.tts.voices:
        if name not in synthesizer.info.voices:
            known = ", ".join(synthesizer.info.voices)
            raise ConfigError(f"tts.voices: {synthesizer.info.name} has no voice {name!r}; there is {known}")
    return [Voice(name, tag) for tag in languages for name in names]


def greetings_of(nlu: object, settings: Settings) -> list[str]:
    """What calls surely begin with, as the engine reads it clause by clause.

    That is the announcement of a recording, and what the hook says that it greets with (`greeting`: texts, or one).
    """
    greeting: Any = getattr(nlu, "greeting", ())
    greetings = [greeting] if isinstance(greeting, str) else list(greeting) if isinstance(greeting, Sequence) else []
    out: list[str] = []
    for text in (settings.recording.announcement, *greetings):
        if isinstance(text, str):
            chunker = ClauseChunker(settings.tts.language)
            out += [clause.spoken for clause in chunker.push(text) + chunker.flush() if clause.spoken]
    return out


class PhraseBook:
    """Ready speech by phrase name, voice and language.

    Args:
        settings: the operator's words.
        synthesizer: the voice engine, with its fallbacks and its cache.
        language: BCP 47 tag of what `settings` says outside its `languages`.
    """

    def __init__(self, settings: PhraseSettings, synthesizer: Synthesizer, language: str = "en") -> None:
        self._settings = settings
        self._synthesizer = synthesizer
        self._language = primary_language(language)
        self._ready: dict[tuple[str, str, str], Phrase] = {}

    def text(self, name: str, language: str = "") -> str:
        """The words of a phrase in a language: the operator's, else ours, else the operator's in their own language.

        Raises KeyError for an unknown name.
        """
        if name not in PHRASES:
            raise KeyError(name)
        tag = primary_language(language) if language else self._language
        for named, texts in self._settings.languages.items():
            if primary_language(named) == tag and (text := getattr(texts, name)):
                return str(text)
        own = str(getattr(self._settings, name))
        if tag == self._language and name in self._settings.model_fields_set:
            return own
        return _TEXTS.get(tag, {}).get(name, own)

    async def make(
        self,
        voices: Iterable[Voice],
        style: Style,
        *,
        greetings: Sequence[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Synthesise every phrase in every voice, and the greetings in the first one, for the cache to have them.

        Args:
            greetings: their clauses, as the engine reads them.

        A phrase that fails is logged and stays without sound; a voice that hangs is left alone after the first time.
        """
        voices = list(voices)
        wanted = [(voice, name, self.text(name, voice.language)) for voice in voices for name in PHRASES]
        wanted += [(voice, "greeting", text) for voice in voices[:1] for text in greetings]
        told_at, made = now(), 0
        hanging: set[Voice] = set()
        for at, (voice, name, text) in enumerate(wanted):
            if voice in hanging:
                continue
            try:
                async with asyncio.timeout(MAKE_DEADLINE_S):
                    spoken = text if name == "greeting" else normalize(text, voice.language)
                    pieces = [piece async for piece in self._synthesizer.stream(spoken, voice, style)]
            except (EngineError, TimeoutError) as exc:
                log.warning("phrase %s in voice %s was not made: %s", name, voice.name, type(exc).__name__)
                if isinstance(exc, TimeoutError):
                    hanging.add(voice)
                continue
            made += 1
            if pieces and name != "greeting":
                self._ready[name, voice.name, primary_language(voice.language)] = Phrase(text, _joined(pieces))
            if now() - told_at >= TELL_EVERY_S:
                told_at = now()
                log.info("phrases: %d of %d", at + 1, len(wanted))
        log.info("%d of %d phrases are ready", made, len(wanted), extra={"voices": len(voices)})

    def phrase(self, name: str, voice: Voice) -> Phrase | None:
        """A phrase in this voice; else in another one, and at last in another language: better than silence."""
        tag = primary_language(voice.language)
        ready = self._ready.get((name, voice.name, tag))
        if ready is None:
            others = [(key, phrase) for key, phrase in self._ready.items() if key[0] == name]
            others.sort(key=lambda other: (other[0][2] != tag, other[0][1] != voice.name))
            ready = others[0][1] if others else None
        return ready


def _joined(pieces: Sequence[Speech]) -> Speech:
    # In one piece it is stored speech, which may have packets.
    if len(pieces) == 1:
        return pieces[0]
    pcm = np.concatenate([piece.pcm for piece in pieces])
    return Speech(pcm, tuple(word for piece in pieces for word in piece.words))


_TEXTS: dict[str, dict[str, str]] = tomllib.loads(
    resources.files("agent.speech").joinpath("data", "phrases.toml").read_text(encoding="utf-8")
)
