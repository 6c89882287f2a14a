"""A hook for the end-to-end tests: a greeting long enough to be broken off, and an answer that knows what was said."""

from __future__ import annotations

from collections.abc import AsyncIterator

from agent.nlu.hook import Turn

__all__ = ["STORY", "story"]

STORY = (
    "Welcome to the department store. On the first floor we sell garden furniture. "
    "On the second floor we sell children's books. On the third floor we sell kitchen tables. "
    "And on the fourth floor we sell winter coats."
)


async def story(turn: Turn) -> AsyncIterator[str]:
    """The story as a greeting; afterwards how many contributions the history holds."""
    if turn.kind == "greeting":
        yield STORY
    else:
        yield f"So far I have said {sum(item.role == 'agent' for item in turn.history)} things."
