import asyncio
from collections.abc import AsyncIterator

import pytest

from signaling.departure import departure

Pair = tuple[asyncio.Transport, asyncio.StreamWriter]


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """The server's end of a connection, from which nothing is read, and the client's end."""
    accepted: asyncio.Future[asyncio.Transport] = asyncio.get_running_loop().create_future()

    class Deaf(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            transport.pause_reading()
            accepted.set_result(transport)

    server = await asyncio.get_running_loop().create_server(Deaf, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    transport = await accepted
    yield transport, writer
    transport.abort()
    writer.transport.abort()
    server.close()


@pytest.mark.parametrize("how", ["close", "half", "reset"])
async def test_a_client_that_goes_is_noticed_behind_what_nobody_reads(pair: Pair, how: str) -> None:
    transport, writer = pair
    with departure(transport) as gone:
        writer.write(b"unread")
        await writer.drain()
        if how == "close":
            writer.close()
        elif how == "half":
            writer.write_eof()
        else:
            transport.write(b"unread by a client that goes, so that its kernel resets the connection")
            writer.transport.abort()
        async with asyncio.timeout(5):
            await gone.wait()


async def test_data_alone_is_no_departure(pair: Pair) -> None:
    transport, writer = pair
    with departure(transport) as gone:
        writer.write(b"unread")
        await writer.drain()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await gone.wait()


async def test_without_a_socket_nobody_ever_goes() -> None:
    with departure(None) as gone:
        assert not gone.is_set()
