"""Notices that the other side has closed its connection while nothing is read from it.

A transport that is paused for back-pressure does not look at its socket, and the end of the stream is behind the data
that waits there. The kernel knows at once (EPOLLRDHUP, epoll(7)); where there is no epoll the reader finds out later.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["departure"]


@contextmanager
def departure(transport: asyncio.BaseTransport | None) -> Iterator[asyncio.Event]:
    """An event that is set once the peer of `transport` has closed, or shut down, its side."""
    gone = asyncio.Event()
    sock = None if transport is None else transport.get_extra_info("socket")
    if sock is None or sock.fileno() < 0 or not hasattr(select, "epoll"):
        yield gone
        return
    loop = asyncio.get_running_loop()
    # An epoll of its own, since the loop's selector has no word for this event; it is readable when the event is there.
    with select.epoll() as watch:
        watch.register(sock.fileno(), select.EPOLLRDHUP)

        def take() -> None:
            loop.remove_reader(watch.fileno())
            gone.set()

        loop.add_reader(watch.fileno(), take)
        try:
            yield gone
        finally:
            loop.remove_reader(watch.fileno())
