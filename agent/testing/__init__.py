"""Tests of hooks, and of Rejoinder itself, in virtual time and without engines. docs/testing.md shows how."""

from agent.testing.caller import Echo, HeardWord, Said, VirtualCall
from agent.testing.fakes import ScriptedPort, ScriptedVad, voice
from agent.testing.hook import ScriptedHook
from agent.testing.lexicon import Lexicon
from agent.testing.recognizer import Reading, ScriptedRecognizer
from agent.testing.stage import Stage, rehearsal
from agent.testing.synthesizer import Making, ScriptedSynthesizer
from agent.testing.virtualtime import run_virtual, virtual_time

__all__ = [
    "Echo",
    "HeardWord",
    "Lexicon",
    "Making",
    "Reading",
    "Said",
    "ScriptedHook",
    "ScriptedPort",
    "ScriptedRecognizer",
    "ScriptedSynthesizer",
    "ScriptedVad",
    "Stage",
    "VirtualCall",
    "rehearsal",
    "run_virtual",
    "virtual_time",
    "voice",
]
