"""Scripted engines and ports for tests of hooks and of Rejoinder itself. They keep the real ones' contracts."""

from agent.testing.fakes import ScriptedPort, ScriptedRecognizer, ScriptedSynthesizer, ScriptedVad, voice

__all__ = ["ScriptedPort", "ScriptedRecognizer", "ScriptedSynthesizer", "ScriptedVad", "voice"]
