"""Builds the voice from the settings: the engine asked for, behind it the last-resort voices."""

from __future__ import annotations

import logging

from agent.config import Settings, TtsSettings
from agent.core.pool import WorkerPool
from agent.errors import ConfigError, EnvironmentFault, UnsupportedVoice
from agent.language import primary_language
from agent.tts.fallback import FallbackSynthesizer
from agent.tts.process import ProcessSynthesizer, installed
from agent.tts.protocol import Synthesizer

__all__ = ["create_synthesizer"]

FIRST_PIECE_DEADLINES_S = {"kokoro": 8.0}
"""Kokoro takes half of real time for a first piece of up to 4 s, and two callers may be waiting."""

log = logging.getLogger(__name__)


async def create_synthesizer(
    settings: Settings, pool: WorkerPool, *, primary: Synthesizer | None = None
) -> Synthesizer:
    """Load the engine that `tts.engine` names, warmed up, with `tts.fallback` behind it.

    Args:
        settings: the whole tree.
        pool: where the engine works.
        primary: an engine that is there already (in a core) and takes the place of the one named.

    Raises:
        ConfigError: the engine does not speak `tts.language`, or has no voice `tts.voice`.
        EnvironmentFault: something must be installed first; the message says what. For the fallback `auto` that is
            only logged.
    """
    tts = settings.tts
    default = TtsSettings.model_fields["voice"].default
    primary = primary or await _primary(settings, pool)
    spoken = {primary_language(tag) for tag in primary.info.languages}
    if primary_language(tts.language) not in spoken:
        raise ConfigError(f"tts.language: {primary.info.name} speaks {', '.join(sorted(spoken))}, not {tts.language!r}")
    if tts.voice != default and tts.voice not in primary.info.voices:
        raise ConfigError(
            f"tts.voice: {primary.info.name} has no voice {tts.voice!r}; there is {', '.join(primary.info.voices)}"
        )
    engines = [primary, *await _last_resorts(tts)]
    return FallbackSynthesizer(engines, first_deadline_s=FIRST_PIECE_DEADLINES_S, default_names={"", str(default)})


async def _primary(settings: Settings, pool: WorkerPool) -> Synthesizer:
    match settings.tts.engine:
        case "hibari":
            from agent.tts.hibari import HibariSynthesizer

            try:
                return await HibariSynthesizer.load(settings.tts, pool)
            except UnsupportedVoice as exc:
                raise ConfigError(f"tts.voice: {exc}") from exc
        case "kokoro":
            from agent.tts.kokoro import KokoroSynthesizer

            return await KokoroSynthesizer.load(settings, pool)
        case kind:
            return await ProcessSynthesizer.load(kind)


async def _last_resorts(tts: TtsSettings) -> list[Synthesizer]:
    if tts.fallback == "none":
        return []
    if tts.fallback != "auto":
        return [] if tts.fallback == tts.engine else [await ProcessSynthesizer.load(tts.fallback)]
    found: list[Synthesizer] = []
    for kind in installed():
        if kind == tts.engine:
            continue
        try:
            found.append(await ProcessSynthesizer.load(kind))
        except EnvironmentFault as exc:
            log.warning("last-resort voice left out: %s", exc)
    if not found:
        log.warning("no last-resort voice is installed; apt-get install espeak-ng or flite")
    return found
