"""Two or more user agents on a simulated network: virtual time, bytes on the wire, loss and delay by a seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from signaling.sip.defence import Door, DoorSettings
from signaling.sip.message import Request, Response
from signaling.sip.negotiation import LocalMedia
from signaling.sip.parser import parse_message
from signaling.sip.peer import Peer
from signaling.sip.protocol import (
    Answer,
    CallEnded,
    CallEstablished,
    CallOffered,
    Dial,
    Event,
    News,
    Received,
    Send,
    SendFailed,
    Tick,
)
from signaling.sip.stack import AgentSettings
from signaling.sip.uri import parse_uri
from signaling.sip.user_agent import UserAgent

OPEN = DoorSettings(open_to_all=True, requests_per_minute=100_000)


@dataclass
class Host:
    """A user agent at an address, and all it told."""

    agent: UserAgent
    peer: Peer
    media: LocalMedia
    news: list[News] = field(default_factory=list)
    sent: list[Request | Response] = field(default_factory=list)
    on_news: Callable[[News], list[Event]] = lambda news: []

    def told(self, kind: type) -> list:
        return [news for news in self.news if isinstance(news, kind)]

    def methods(self) -> list[str]:
        return [message.method for message in self.sent if isinstance(message, Request)]

    def statuses(self) -> list[int]:
        return [message.status for message in self.sent if isinstance(message, Response)]


class Network:
    """Delivers messages between hosts.

    Args:
        loss: probability that a datagram is lost.
        delay_s: one way.
    """

    def __init__(self, *, loss: float = 0.0, delay_s: float = 0.02, seed: int = 1, transport: str = "udp") -> None:
        self.now = 1000.0
        self.loss = loss
        self.delay_s = delay_s
        self.transport = transport
        self.random = random.Random(seed)
        self.hosts: dict[tuple[str, int], Host] = {}
        self.unreachable: set[tuple[str, int]] = set()
        self.drop: Callable[[Request | Response, Host], bool] = lambda message, sender: False
        self.lost = 0
        self._queue: list = []
        self._order = itertools.count()

    def add(self, address: str, *, door: DoorSettings = OPEN, digest=None, **settings) -> Host:
        peer = Peer(self.transport, address, 5060)
        agent = UserAgent(
            AgentSettings(contacts={self.transport: (address, 5060)}, **settings),
            Door(door, digest),
            new_token=lambda: f"{self.random.getrandbits(80):020x}",
            uniform=self.random.random,
        )
        host = Host(agent, peer, LocalMedia(address, 20_000))
        self.hosts[(address, 5060)] = host
        return host

    def do(self, host: Host, event: Event) -> None:
        """Have a host take an event now."""
        self._outputs(host, host.agent.handle(event, self.now))

    def put(self, host: Host, data: bytes, source: Peer) -> None:
        """Deliver bytes to a host at once."""
        self.do(host, Received(parse_message(data), source))

    def later(self, host: Host, data: bytes, source: Peer) -> None:
        """Deliver bytes to a host after the delay."""
        event = Received(parse_message(data), source)
        heapq.heappush(self._queue, (self.now + self.delay_s, next(self._order), host, event))

    def _outputs(self, host: Host, outputs: list) -> None:
        for output in outputs:
            if isinstance(output, Send):
                self._send(host, output)
            else:
                host.news.append(output)
                for event in host.on_news(output):
                    self.do(host, event)

    def _send(self, host: Host, send: Send) -> None:
        host.sent.append(send.message)
        target = (send.peer.host, send.peer.port)
        if target in self.unreachable:
            heapq.heappush(self._queue, (self.now, next(self._order), host, SendFailed(send)))
        elif self.drop(send.message, host) or (self.transport == "udp" and self.random.random() < self.loss):
            self.lost += 1
        elif target in self.hosts:
            event = Received(parse_message(send.message.to_bytes()), host.peer)
            when = self.now + self.delay_s
            heapq.heappush(self._queue, (when, next(self._order), self.hosts[target], event))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        end = self.now + seconds
        for _ in range(1_000_000):
            ticks = [(host.agent.next_at, host) for host in self.hosts.values() if host.agent.next_at is not None]
            next_tick = min((at for at, _ in ticks), default=end)
            next_packet = self._queue[0][0] if self._queue else end
            when = min(next_tick, next_packet)
            if when >= end:
                self.now = end
                return
            self.now = max(self.now, when)
            if next_packet <= next_tick:
                _, _, host, event = heapq.heappop(self._queue)
                self.do(host, event)
            else:
                for at, host in ticks:
                    if at <= self.now:
                        self.do(host, Tick())
        raise AssertionError("the network does not come to rest")


def dial(network: Network, caller: Host, callee: Host, **more) -> str:
    """Place a call; its id is `out`."""
    target = parse_uri(f"sip:1000@{callee.peer.host}" + ("" if network.transport == "udp" else ";transport=tcp"))
    network.do(caller, Dial("out", target, caller.media, **more))
    return "out"


def auto_answer(host: Host) -> None:
    """Answer each call at once."""
    host.on_news = lambda news: [Answer(news.call, host.media)] if isinstance(news, CallOffered) else []


def established(network: Network, **settings) -> tuple[Host, Host, str, str]:
    """Two hosts with a call between them: caller, callee, and the call's id at each."""
    caller, callee = network.add("10.0.0.1", **settings), network.add("10.0.0.2", **settings)
    auto_answer(callee)
    dial(network, caller, callee)
    network.run(1.0)
    assert caller.told(CallEstablished)
    assert callee.told(CallEstablished)
    assert not caller.told(CallEnded)
    return caller, callee, "out", callee.told(CallOffered)[0].call
