"""The hook of `bench voice_to_voice`: it answers whatever was understood, with a known opening or with one never said.

The recorded sentences belong to no service, so no hook of one has an answer to them.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

from agent.nlu.function import on_turn
from agent.nlu.hook import Turn

__all__ = ["COLD", "OPENINGS", "WARM", "reply"]

OPENINGS = (
    "Let me have a look at that.",
    "That is no problem at all.",
    "I am sorry to hear that.",
    "Let me see what I can do.",
)
"""Sentences as hooks say them many times a day."""

WARM, COLD = "warm", "cold"
"""Typed, these choose what the rest of the call is answered with."""

_THINGS = (
    "amber basket candle dragon engine feather garden harbour island jungle kettle ladder meadow needle orchard pepper "
    "quarry ribbon saddle timber umbrella velvet window yellow zipper anchor barrel castle desert ember forest glacier"
).split()


@on_turn
async def reply(turn: Turn) -> AsyncIterator[str]:
    """Known openings by turns, or three words that never came together before."""
    state = turn.session.state
    if turn.kind == "greeting":
        yield "Hello."
        return
    if turn.text in (WARM, COLD):
        state["answers"] = turn.text
    number = sum(item.role == "user" for item in turn.history)
    if state.get("answers") == COLD:
        # The same words for the same turn: a reply begun before the turn's end may then be taken over.
        one, two, three = random.Random(f"{turn.session.id} {number}").sample(_THINGS, 3)
        yield f"The {one} {two} is in the {three}."
    else:
        yield OPENINGS[number % len(OPENINGS)]
