"""A hook for benches: one answer that is always the same, and answers that never were given before."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from agent.nlu.function import on_turn
from agent.nlu.hook import Turn

__all__ = ["KNOWN", "reply"]

KNOWN = "Of course, let me have a look at that for you."
"""What a question with this word is answered with: a sentence as hooks say it many times a day."""

_WORDS = (
    "amber basket candle dragon engine feather garden harbour island jungle kettle ladder meadow needle orchard pepper "
    "quarry ribbon saddle timber umbrella velvet window yellow zipper anchor barrel castle desert ember forest glacier"
).split()

_random = random.Random(11)


@on_turn
async def reply(turn: Turn) -> AsyncIterator[str]:
    """`known` gets the known answer, all else a new one."""
    if turn.kind == "greeting":
        yield "Hello."
    elif "known" in turn.text:
        yield KNOWN
    else:
        one, two, three, four = _random.sample(_WORDS, 4)
        yield f"The {one} beside the {two} holds a {three} and a {four}."
