"""Says that the call is recorded before anything else is said, and again until it was heard in full."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from agent.nlu.hook import Action, Nlu, Turn
from agent.nlu.spread import spread

__all__ = ["Announcing"]


class Announcing:
    """A hook in front of a hook.

    Args:
        nlu: the hook that answers.
        text: what is said first.
        greet: whether the hook is asked for a greeting; if not, the announcement is the greeting.
    """

    def __init__(self, nlu: Nlu, text: str, *, greet: bool) -> None:
        self._nlu = nlu
        self._text = text.strip()
        self._greet = greet

    async def reply(self, turn: Turn) -> AsyncIterator[str | Action]:
        """The announcement while it was not heard, then the hook's own reply."""
        if not self._heard(turn):
            yield self._text + "\n"
        if turn.kind == "greeting" and not self._greet:
            return
        async with aclosing(spread(self._nlu.reply(turn))) as items:
            async for item in items:
                yield item

    def __getattr__(self, name: str) -> Any:
        # What else a hook may offer (`expect`).
        return getattr(self._nlu, name)

    def _heard(self, turn: Turn) -> bool:
        wanted = " ".join(self._text.split())
        return any(wanted in " ".join(item.text.split()) for item in turn.history if item.role == "agent")
