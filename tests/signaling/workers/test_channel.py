import asyncio
import os
import socket
from typing import Any

import pytest

from signaling.workers.channel import MAX_MESSAGE_BYTES, MAX_WAITING, Channel, ChannelBroken, channel_pair


class End:
    def __init__(self, sock: socket.socket) -> None:
        self.got: list[tuple[dict[str, Any], int | None]] = []
        self.news = asyncio.Event()
        self.closed = asyncio.Event()
        self.channel = Channel(sock, self._take, self.closed.set)

    def _take(self, message: dict[str, Any], descriptor: int | None) -> None:
        self.got.append((message, descriptor))
        self.news.set()

    async def until(self, count: int) -> None:
        async with asyncio.timeout(5):
            while len(self.got) < count:
                self.news.clear()
                await self.news.wait()


async def test_messages_come_whole_and_in_order() -> None:
    a, b = (End(sock) for sock in channel_pair())
    b.channel.start()
    for n in range(500):
        a.channel.send({"n": n, "text": "x" * (n % 50)})
    await b.until(500)
    assert [message["n"] for message, _ in b.got] == list(range(500))
    a.channel.close()
    b.channel.close()


async def test_what_does_not_fit_waits_until_the_other_side_reads() -> None:
    a, b = (End(sock) for sock in channel_pair())
    a.channel.start()
    count = 400
    for n in range(count):
        a.channel.send({"n": n, "text": "x" * 1000})
    # The kernel's buffer is full by now: a socket is not passed on a line that does not move.
    with pytest.raises(ChannelBroken, match="does not read"):
        a.channel.pass_socket({"n": -1}, 0)
    b.channel.start()
    await b.until(count)
    assert [message["n"] for message, _ in b.got] == list(range(count))
    a.channel.close()
    b.channel.close()


async def test_waiting_messages_are_bounded() -> None:
    a, b = (End(sock) for sock in channel_pair())

    def flood() -> None:
        for n in range(10 * MAX_WAITING):
            a.channel.send({"n": n})

    with pytest.raises(ChannelBroken, match=f"{MAX_WAITING} messages"):
        flood()
    a.channel.close()
    b.channel.close()


async def test_a_socket_comes_along_and_outlives_the_senders_copy() -> None:
    a, b = (End(sock) for sock in channel_pair())
    b.channel.start()
    given, peer = socket.socketpair()
    with peer:
        a.channel.pass_socket({"take": "this"}, given.fileno())
        given.close()
        await b.until(1)
        message, descriptor = b.got[0]
        assert message == {"take": "this"}
        assert descriptor is not None
        assert not os.get_inheritable(descriptor)
        with socket.socket(fileno=descriptor) as taken:
            taken.sendall(b"still open")
        assert peer.recv(100) == b"still open"
    a.channel.close()
    b.channel.close()


async def test_the_end_of_the_other_side_is_told_once_and_sending_fails() -> None:
    a, b = (End(sock) for sock in channel_pair())
    b.channel.start()
    a.channel.close()
    async with asyncio.timeout(5):
        await b.closed.wait()
    with pytest.raises(ChannelBroken):
        b.channel.send({"too": "late"})
    with pytest.raises(ChannelBroken):
        b.channel.pass_socket({"too": "late"}, 0)


async def test_a_message_that_is_too_long_is_refused() -> None:
    a, b = (End(sock) for sock in channel_pair())
    with pytest.raises(ChannelBroken, match="fit"):
        a.channel.send({"text": "x" * MAX_MESSAGE_BYTES})
    a.channel.close()
    b.channel.close()
