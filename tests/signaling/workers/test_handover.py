"""A connection accepted by one server and served by another, as between supervisor and worker, in one process."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
import pytest
from aiohttp import WSMsgType, web

from signaling.workers.handover import adopt, early_bytes, upgrade_head


@dataclass
class Pair:
    port: int = 0
    back: web.Server | None = None
    requests: list[web.Request] = field(default_factory=list)
    lost: asyncio.Event = field(default_factory=asyncio.Event)
    adoptions: list[asyncio.Task[None]] = field(default_factory=list)


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    pair = Pair()

    async def echo(request: web.Request) -> web.StreamResponse:
        pair.requests.append(request)
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            if message.type is WSMsgType.BINARY:
                await ws.send_bytes(message.data)
        return ws

    async def give(request: web.Request) -> web.StreamResponse:
        transport = request.transport
        assert transport is not None
        transport.pause_reading()
        head = upgrade_head(request, {"Authorization": "Bearer checked"}) + early_bytes(request)
        descriptor = os.dup(transport.get_extra_info("socket").fileno())
        assert inner.server is not None
        pair.adoptions.append(asyncio.create_task(adopt(inner.server, descriptor, head, pair.lost.set)))
        transport.abort()
        return web.Response()

    back = web.Application()
    back.router.add_get("/v1/stream", echo)
    inner = web.AppRunner(back, handler_cancellation=True)
    await inner.setup()
    pair.back = inner.server
    front = web.Application()
    front.router.add_get("/v1/stream", give)
    outer = web.AppRunner(front, handler_cancellation=True)
    await outer.setup()
    await web.TCPSite(outer, "127.0.0.1", 0).start()
    pair.port = outer.addresses[0][1]
    yield pair
    await asyncio.gather(*pair.adoptions)
    await outer.cleanup()
    await inner.cleanup()


async def test_the_client_notices_nothing_and_the_token_stays_behind(pair: Pair) -> None:
    async with aiohttp.ClientSession() as client:
        url = f"http://127.0.0.1:{pair.port}/v1/stream?rate=8000&token=secret"
        async with client.ws_connect(url, headers={"X-Rejoinder-Call": "forged", "Cookie": "a=b"}) as ws:
            for n in range(50):
                await ws.send_bytes(bytes([n]) * 640)
                assert await ws.receive_bytes(timeout=5) == bytes([n]) * 640
    (request,) = pair.requests
    assert request.path_qs == "/v1/stream?rate=8000"
    assert request.headers["Authorization"] == "Bearer checked"
    assert "X-Rejoinder-Call" not in request.headers
    assert "Cookie" not in request.headers
    async with asyncio.timeout(5):
        await pair.lost.wait()


async def test_a_client_that_does_not_wait_for_the_answer_loses_nothing(pair: Pair) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", pair.port)
    frame = bytes([0x82, 0x83, 0, 0, 0, 0]) + b"abc"
    head = (
        b"GET /v1/stream HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: MDEyMzQ1Njc4OWFiY2RlZg==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    writer.write(head + frame + frame[:4])
    async with asyncio.timeout(5):
        assert b"101" in (await reader.readuntil(b"\r\n\r\n")).splitlines()[0]
        writer.write(frame[4:])
        assert await reader.readexactly(5) == b"\x82\x03abc"
        assert await reader.readexactly(5) == b"\x82\x03abc"
    writer.close()
    await writer.wait_closed()


async def test_a_connection_that_has_carried_other_requests_is_given_away_as_well(pair: Pair) -> None:
    connector = aiohttp.TCPConnector(limit=1)
    async with aiohttp.ClientSession(connector=connector) as client:
        async with client.get(f"http://127.0.0.1:{pair.port}/none") as answer:
            assert answer.status == 404
        async with client.ws_connect(f"http://127.0.0.1:{pair.port}/v1/stream") as ws:
            await ws.send_bytes(b"hello")
            assert await ws.receive_bytes(timeout=5) == b"hello"


async def test_a_client_that_is_gone_by_then_is_told_as_lost(pair: Pair) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    head = b"GET /v1/stream HTTP/1.1\r\nHost: x\r\n\r\n"
    assert pair.back is not None
    await adopt(pair.back, ours.detach(), head, pair.lost.set)
    async with asyncio.timeout(5):
        await pair.lost.wait()
