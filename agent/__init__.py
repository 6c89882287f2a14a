"""Rejoinder: a real-time voice agent you can call.

The public face: what a hook or an engine needs to import.
"""

from __future__ import annotations

from agent.asr.protocol import EngineInfo, Hypothesis, Recognizer, RecognizerStream, Word
from agent.errors import RejoinderError
from agent.nlu.function import on_turn
from agent.nlu.hook import (
    Action,
    Dtmf,
    Hangup,
    HistoryItem,
    Interrupted,
    Listen,
    Nlu,
    Play,
    Private,
    Reply,
    Send,
    Session,
    SwitchLanguage,
    SwitchVoice,
    Transfer,
    Turn,
    Uninterruptible,
)
from agent.tts.protocol import Speech, Style, Synthesizer, Voice

__all__ = [
    "Action",
    "Dtmf",
    "EngineInfo",
    "Hangup",
    "HistoryItem",
    "Hypothesis",
    "Interrupted",
    "Listen",
    "Nlu",
    "Play",
    "Private",
    "Recognizer",
    "RecognizerStream",
    "RejoinderError",
    "Reply",
    "Send",
    "Session",
    "Speech",
    "Style",
    "SwitchLanguage",
    "SwitchVoice",
    "Synthesizer",
    "Transfer",
    "Turn",
    "Uninterruptible",
    "Voice",
    "Word",
    "__version__",
    "on_turn",
]

__version__ = "0.1.0"
