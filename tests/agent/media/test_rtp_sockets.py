"""Pairs of UDP sockets for RTP."""

from __future__ import annotations

import asyncio
import socket

import pytest

from agent.errors import CallRefused
from agent.media.rtp_sockets import RtpSockets


def free_even_port() -> int:
    while True:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
        if port % 2 == 0:
            return port


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
async def test_both_sockets_send_and_receive(host: str) -> None:
    here, there = RtpSockets(host, None, None), RtpSockets(host, None, None)
    heard: list[tuple[str, bytes, tuple[str, int]]] = []
    both = asyncio.Event()

    def take(kind: str, data: bytes, source: tuple[str, int]) -> None:
        heard.append((kind, data, source))
        if len(heard) == 2:
            both.set()

    there.listen(lambda data, source: take("rtp", data, source), lambda data, source: take("rtcp", data, source))
    try:
        assert here.port % 2 == 0
        assert here.send_rtp(b"a", (host, there.port))
        assert here.send_rtcp(b"b", (host, there.port + 1))
        async with asyncio.timeout(10):
            await both.wait()
    finally:
        here.close()
        there.close()
        there.close()
    assert sorted(heard) == [("rtcp", b"b", (host, here.port + 1)), ("rtp", b"a", (host, here.port))]


def test_a_range_without_a_free_pair_refuses_the_call_and_names_the_settings() -> None:
    port = free_even_port()
    taken = RtpSockets("127.0.0.1", port, port + 1)
    try:
        assert taken.port == port
        with pytest.raises(CallRefused, match="rtp_port_min"):
            RtpSockets("127.0.0.1", port, port + 1)
    finally:
        taken.close()
    RtpSockets("127.0.0.1", port, port + 1).close()


def test_a_packet_that_cannot_be_sent_is_counted_and_raises_nothing() -> None:
    sockets = RtpSockets("127.0.0.1", None, None)
    try:
        assert not sockets.send_rtp(b"x" * 70_000, ("127.0.0.1", 9))
        assert sockets.failures == 1
    finally:
        sockets.close()
