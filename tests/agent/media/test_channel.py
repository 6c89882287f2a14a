"""The event channel without a network: open before or after, closed, full, and not ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aiortc import InvalidStateError

from agent.media.channel import LABEL, MAX_BUFFERED_BYTES, MAX_WAITING, EventChannel


class Channel:
    """Stands for an RTCDataChannel."""

    def __init__(self, state: str, label: str = LABEL) -> None:
        self.readyState = state
        self.label = label
        self.bufferedAmount = 0
        self.sent: list[str] = []
        self.handlers: dict[str, Callable[..., Any]] = {}
        self.closed = False

    def on(self, event: str, handler: Callable[..., Any]) -> None:
        self.handlers[event] = handler

    def send(self, text: str) -> None:
        if self.readyState != "open":
            raise InvalidStateError
        self.sent.append(text)

    def close(self) -> None:
        self.closed = True


def make(closed: list[str] | None = None, got: list[str] | None = None) -> EventChannel:
    return EventChannel(
        (got if got is not None else []).append, lambda: (closed if closed is not None else []).append("closed")
    )


def test_a_channel_that_is_open_when_it_arrives_gets_what_waited() -> None:
    events, channel = make(), Channel("open")
    for n in range(3):
        events.send(str(n))
    events.adopt(channel)  # type: ignore[arg-type]
    assert channel.sent == ["0", "1", "2"], "no open event comes for a channel that is open already"
    events.send("3")
    assert channel.sent == ["0", "1", "2", "3"]
    channel.handlers["open"]()
    assert channel.sent == ["0", "1", "2", "3"]


def test_a_channel_that_opens_later_gets_what_waited_then() -> None:
    events, channel = make(), Channel("connecting")
    events.send("early")
    events.adopt(channel)  # type: ignore[arg-type]
    assert channel.sent == []
    channel.readyState = "open"
    channel.handlers["open"]()
    assert channel.sent == ["early"]


def test_what_waits_is_bounded_and_counted() -> None:
    events = make()
    for n in range(MAX_WAITING + 5):
        events.send(str(n))
    assert events.dropped == 5


def test_a_page_that_does_not_read_loses_messages_and_no_memory_is_taken() -> None:
    events, channel = make(), Channel("open")
    events.adopt(channel)  # type: ignore[arg-type]
    channel.bufferedAmount = MAX_BUFFERED_BYTES + 1
    events.send("too much")
    assert (channel.sent, events.dropped) == ([], 1)


def test_a_channel_that_closes_between_is_no_fault_and_ends_the_call_once() -> None:
    closed: list[str] = []
    events, channel = make(closed), Channel("open")
    events.adopt(channel)  # type: ignore[arg-type]
    channel.readyState = "closing"
    events.send("late")
    channel.handlers["close"]()
    channel.handlers["close"]()
    events.send("later")
    assert channel.sent == []
    assert closed == ["closed"]


def test_other_and_second_channels_are_closed() -> None:
    events, first = make(), Channel("open")
    events.adopt(Channel("open", label="files"))  # type: ignore[arg-type]
    events.adopt(first)  # type: ignore[arg-type]
    second = Channel("open")
    events.adopt(second)  # type: ignore[arg-type]
    assert (first.closed, second.closed, events.ignored) == (False, True, 2)
