"""The other end of `bench links`: sends each frame back, in a process of its own."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import Sequence

from agent.core.address import parse_core_address
from agent.core.link import Link
from agent.core.linking import LinkOptions, listening
from agent.core.messages import Hello, Message
from agent.errors import CoreLost
from agent.media.priority import favour_media_thread

DEADLINE_S = 30.0


async def serve(address: str) -> None:
    """Listen, tell the real address on standard output, echo until killed."""
    tasks: set[asyncio.Task[None]] = set()

    async def greet(link: Link) -> None:
        def echo(messages: Sequence[Message]) -> None:
            for message in messages:
                link.send(message)

        try:
            await link.welcome(Hello("echo"), DEADLINE_S)
        except CoreLost:
            return
        link.start(echo, lambda _reason: None)

    def on_link(link: Link) -> None:
        task = asyncio.create_task(greet(link))
        tasks.add(task)

    async with listening(parse_core_address(address), LinkOptions(), on_link, lambda _name: True) as real:
        print(real, flush=True)
        favour_media_thread()
        # A collection in mid-run would be measured with the link.
        gc.freeze()
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
