"""A hook that says back what it heard: for trying microphones, voices and latency without any dialogue in between."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agent.nlu.hook import Action, Turn

__all__ = ["EchoNlu"]


class EchoNlu:
    """Answers speech and typed text with itself, keys with their names, silence with a short question."""

    async def reply(self, turn: Turn) -> AsyncIterator[str | Action]:
        """One piece a turn; nothing for events and empty text."""
        if turn.kind == "greeting":
            yield "Hello! Say something, and I will say it back."
        elif turn.kind == "silence":
            yield "I'm listening."
        elif turn.kind == "dtmf":
            yield "You pressed " + " ".join(turn.text) + "."
        elif turn.kind == "speech" and turn.text.strip():
            yield turn.text

    async def close(self) -> None:
        """Nothing is held."""
