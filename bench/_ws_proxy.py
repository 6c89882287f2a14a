"""The way not taken: a WebSocket proxy of a few lines, for `bench/workers` to measure. Prints its port."""

from __future__ import annotations

import asyncio
import sys

import aiohttp
from aiohttp import WSMsgType, web


async def main(upstream: str) -> None:
    """Proxy every WebSocket to `upstream` until killed."""
    session = aiohttp.ClientSession()

    async def proxy(request: web.Request) -> web.StreamResponse:
        near = web.WebSocketResponse(compress=False)
        await near.prepare(request)
        async with session.ws_connect(upstream + request.path_qs) as far:

            async def pump(
                source: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
                target: web.WebSocketResponse | aiohttp.ClientWebSocketResponse,
            ) -> None:
                async for message in source:
                    if message.type is WSMsgType.BINARY:
                        await target.send_bytes(message.data)
                    elif message.type is WSMsgType.TEXT:
                        await target.send_str(message.data)
                await target.close()

            await asyncio.gather(pump(near, far), pump(far, near))
        return near

    app = web.Application()
    app.router.add_get("/{path:.*}", proxy)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
