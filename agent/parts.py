"""What all calls of a process share: engines, settings, phrases, numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.asr.protocol import Recognizer
from agent.config import Settings
from agent.foreseeing import DialogueWatcher
from agent.listening.silero import VadEngine
from agent.listening.sound import TurnSound
from agent.media.frames import Pcm
from agent.nlu.hook import Nlu
from agent.observe.metrics import Metrics
from agent.speech.phrases import PhraseBook
from agent.tts.protocol import Synthesizer

__all__ = ["CallParts"]


def _idle() -> float:
    return 0.0


def _silent() -> None:
    return None


@dataclass(frozen=True, slots=True)
class CallParts:
    """What all calls of a process share."""

    settings: Settings
    nlu: Nlu
    recognizer: Recognizer
    synthesizer: Synthesizer
    vad: VadEngine
    phrases: PhraseBook
    clips: Mapping[str, Pcm]
    """Recordings that `Play` names: int16 [n] mono at the synthesiser's rate."""
    metrics: Metrics
    voices: Callable[[], tuple[str, ...]]
    """Names of the voices that can be asked for."""
    load: Callable[[], float] = _idle
    """Share of the engines' time that was in use in the last second, 0 to 1."""
    turn_sound: Callable[[], TurnSound | None] = _silent
    """One for each call: judges the sound of its turns; None where nothing asks for that."""
    foresight: DialogueWatcher | None = None
    """Told how dialogues go, so that likely speech is made ahead; None without a voice cache."""
