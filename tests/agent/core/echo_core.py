"""A core that sends back what it gets, as a process of its own: `python -m tests.agent.core.echo_core ADDRESS`."""

from __future__ import annotations

import asyncio
import os
import sys
from contextlib import suppress

from agent.core.address import parse_core_address
from agent.core.link import Link
from agent.core.linking import LinkOptions, connect, listening
from agent.core.messages import Hello
from agent.errors import CoreLost

DEADLINE_S = 20.0


async def serve(text: str) -> None:
    """Listen, say so on standard output, echo."""
    tasks: set[asyncio.Task[None]] = set()

    async def echo(link: Link) -> None:
        with suppress(CoreLost):
            await link.welcome(Hello(f"pid {os.getpid()}"), DEADLINE_S)
            link.start(lambda batch: [link.send(message) for message in batch] and None, lambda _: None)

    def on_link(link: Link) -> None:
        tasks.add(asyncio.create_task(echo(link)))

    async with listening(parse_core_address(text), LinkOptions(), on_link, lambda _: True) as real:
        print(real, flush=True)
        await asyncio.Event().wait()


async def call(text: str) -> None:
    """Be an edge that connects and then does nothing, for ever."""
    link = await connect(parse_core_address(text), LinkOptions())
    await link.greet(Hello(f"pid {os.getpid()}"), DEADLINE_S)
    link.start(lambda _: None, lambda _: None)
    print("connected", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[2]) if sys.argv[1] == "serve" else call(sys.argv[2]))
