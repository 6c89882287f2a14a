"""Text that must leave no trace outside memory, as its author marks it."""

from __future__ import annotations

__all__ = ["Private"]


class Private(str):
    """Text that is spoken as any other, and whose speech is kept nowhere but in memory.

    The mark is of this very object: joined to other text, or cut, it is plain text again. Whoever does that carries the
    mark over (`agent.speech.marked`).
    """

    __slots__ = ()
