"""One connection's deadlines, keep-alives and fairness, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from signaling.sip.framing import PING, PONG
from signaling.sip.peer import Peer
from signaling.sip.protocol import Received, Unreadable
from signaling.sip.transport import stream
from signaling.sip.transport.stream import BATCH, IDLE_S, MESSAGE_S, PING_S, PONG_S, Connection

OPTIONS = (
    b"OPTIONS sip:a@h SIP/2.0\r\nVia: SIP/2.0/TCP 127.0.0.1;branch=z9hG4bK1\r\nFrom: <sip:b@h>;tag=1\r\n"
    b"To: <sip:a@h>\r\nCall-ID: x\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
)


class Wire(asyncio.Transport):
    """Remembers what was done to it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.gone = False
        self.paused = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.9", 40_000) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += bytes(data)

    def is_closing(self) -> bool:
        return self.gone

    def close(self) -> None:
        self.gone = True

    abort = close

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


class Handle:
    def __init__(self, when: float, action: Callable[..., object], args: tuple[object, ...]) -> None:
        self.when, self.action, self.args = when, action, args
        self.live = True

    def cancel(self) -> None:
        self.live = False


class Loop:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self._handles: list[Handle] = []

    def call_later(self, seconds: float, action: Callable[..., object], *args: object) -> Handle:
        self._handles.append(Handle(self.now + seconds, action, args))
        return self._handles[-1]

    def call_soon(self, action: Callable[..., object], *args: object) -> Handle:
        return self.call_later(0.0, action, *args)

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [handle for handle in self._handles if handle.live and handle.when <= end]:
            first = min(due, key=lambda handle: handle.when)
            first.live, self.now = False, first.when
            first.action(*first.args)
        self.now = end

    def turn(self) -> None:
        """What was asked for this moment, without what that asks for in its turn."""
        for handle in [handle for handle in self._handles if handle.live and handle.when <= self.now]:
            handle.live = False
            handle.action(*handle.args)


class Owner:
    def __init__(self) -> None:
        self.heard: list[Received | Unreadable] = []
        self.lost = 0

    def deliver(self, event: Received | Unreadable) -> None:
        self.heard.append(event)

    def opened(self, connection: Connection) -> bool:
        return True

    def closed(self, connection: Connection) -> None:
        self.lost += 1


class Line:
    """A connection with everything around it."""

    def __init__(self, loop: Loop, target: Peer | None = None) -> None:
        self.loop = loop
        self.owner = Owner()
        self.wire = Wire()
        self.connection = Connection(self.owner, "tcp", 1, target)
        self.connection.connection_made(self.wire)


@pytest.fixture
def loop(monkeypatch: pytest.MonkeyPatch) -> Loop:
    made = Loop()
    monkeypatch.setattr(stream.asyncio, "get_running_loop", lambda: made)
    return made


def test_who_connects_and_says_nothing_is_cut_off(loop: Loop) -> None:
    line = Line(loop)
    loop.run(MESSAGE_S - 0.1)
    assert not line.wire.gone
    loop.run(0.2)
    assert line.wire.gone


def test_a_message_that_comes_byte_by_byte_must_be_whole_in_time_all_the_same(loop: Loop) -> None:
    line = Line(loop)
    for at in range(20):
        line.connection.data_received(OPTIONS[at : at + 1])
        loop.run(MESSAGE_S / 8)
        if line.wire.gone:
            break
    assert line.wire.gone
    assert loop.now <= MESSAGE_S + MESSAGE_S / 8


def test_each_message_has_its_own_deadline(loop: Loop) -> None:
    line = Line(loop)
    half = len(OPTIONS) // 2
    line.connection.data_received(OPTIONS[:half])
    for _ in range(10):
        loop.run(MESSAGE_S * 0.8)
        line.connection.data_received(OPTIONS[half:] + OPTIONS[:half])
    assert len(line.owner.heard) == 10
    assert not line.wire.gone
    loop.run(MESSAGE_S + 0.1)
    assert line.wire.gone


def test_an_idle_connection_is_closed_at_last(loop: Loop) -> None:
    line = Line(loop)
    line.connection.data_received(OPTIONS)
    loop.run(IDLE_S - 0.1)
    assert not line.wire.gone
    assert line.wire.written == b""
    loop.run(0.2)
    assert line.wire.gone


def test_a_connection_of_ours_is_kept_alive_as_long_as_the_peer_answers(loop: Loop) -> None:
    line = Line(loop, Peer("tcp", "10.0.0.9", 5060))
    for number in range(1, 6):
        loop.run(PING_S)
        assert line.wire.written == PING * number
        line.connection.data_received(PONG)
    assert not line.wire.gone
    loop.run(PING_S + PONG_S)
    assert line.wire.gone


def test_a_ping_of_ours_gives_half_a_message_no_more_time(loop: Loop) -> None:
    line = Line(loop, Peer("tcp", "10.0.0.9", 5060))
    loop.run(PING_S - MESSAGE_S + 1.0)
    line.connection.data_received(OPTIONS[:9])
    loop.run(MESSAGE_S - 0.5)
    assert line.wire.written == PING
    assert not line.wire.gone
    loop.run(1.0)
    assert line.wire.gone


def test_a_flood_is_taken_in_portions_and_read_no_further_meanwhile(loop: Loop) -> None:
    line = Line(loop)
    line.connection.data_received(OPTIONS * (2 * BATCH + 3))
    heard = [len(line.owner.heard)]
    while line.wire.paused:
        loop.turn()
        heard.append(len(line.owner.heard))
    assert heard == [BATCH, 2 * BATCH, 2 * BATCH + 3]
    assert not line.wire.gone


def test_a_flood_ends_with_its_connection(loop: Loop) -> None:
    line = Line(loop)
    line.connection.data_received(OPTIONS * (3 * BATCH))
    line.connection.abort()
    loop.run(1.0)
    assert len(line.owner.heard) == BATCH


def test_a_connection_that_is_gone_has_no_timers(loop: Loop) -> None:
    line = Line(loop, Peer("tcp", "10.0.0.9", 5060))
    line.connection.data_received(OPTIONS[:9])
    line.connection.connection_lost(None)
    assert line.owner.lost == 1
    loop.run(2 * IDLE_S)
    assert not line.wire.gone
    assert line.wire.written == b""
