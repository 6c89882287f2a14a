"""Every shape a hook's answer may take, as one asynchronous iterator of its items."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, AsyncIterable, Iterator
from contextlib import aclosing
from typing import Any

from agent.nlu.threads import ThreadedIterator

__all__ = ["spread"]


async def spread(answer: object) -> AsyncGenerator[Any, None]:
    """Iterate an answer: an async iterator, an awaitable of one, a blocking iterator, a list, None or a single item.

    Items are passed on unchecked. Closing this closes the answer's own iterator; a blocking iterator runs in a thread.
    """
    if inspect.isawaitable(answer):
        answer = await answer
    if answer is None:
        return
    if isinstance(answer, AsyncIterable):
        items = aiter(answer)
        try:
            async for item in items:
                yield item
        finally:
            close = getattr(items, "aclose", None)
            if close is not None:
                await close()
    elif isinstance(answer, Iterator):
        async with aclosing(ThreadedIterator(answer)) as steps:
            async for item in steps:
                yield item
    elif isinstance(answer, list | tuple):
        for item in answer:
            yield item
    else:
        yield answer
