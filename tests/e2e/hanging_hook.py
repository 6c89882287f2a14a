"""A hook that breaks the rules: it blocks the event loop for good, in its first reply."""

import time
from collections.abc import AsyncIterator

from agent import Turn


async def reply(turn: Turn) -> AsyncIterator[str]:
    while True:
        time.sleep(1)  # noqa: ASYNC251
    yield turn.text
