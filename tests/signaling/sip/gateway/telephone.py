"""A telephone for the gateway's tests: our own user agent on the other side, with its RTP."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from dataclasses import replace

from agent.media.rtp import build_rtp
from agent.media.rtp_sockets import RtpSockets
from signaling.sip.defence import Door, DoorSettings
from signaling.sip.digest import Account
from signaling.sip.negotiation import LocalMedia
from signaling.sip.protocol import CallEnded, CallEstablished, Command, Dial, MediaAgreed, News
from signaling.sip.stack import AgentSettings
from signaling.sip.transport.endpoint import Listen, SipEndpoint
from signaling.sip.uri import Uri
from signaling.sip.user_agent import UserAgent

HOST = "127.0.0.1"


def free_port() -> int:
    """Free for UDP and TCP at this moment."""
    with socket.socket() as tcp, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
        tcp.bind((HOST, 0))
        port = int(tcp.getsockname()[1])
        udp.bind((HOST, port))
        return port


async def eventually(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for what the other side does in its own time."""
    for _ in range(round(seconds * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("the other side did not do it in time")


class Telephone:
    """Use as `async with`. `on_news` may answer."""

    def __init__(
        self,
        account: Account | None = None,
        *,
        on_news: Callable[[Telephone, News], None] | None = None,
        **agent: object,
    ) -> None:
        self.port = free_port()
        settings = AgentSettings({"udp": (HOST, self.port)}, user="alice", account=account, **agent)
        user_agent = UserAgent(settings, Door(DoorSettings(open_to_all=True, requests_per_minute=10_000)))
        self.endpoint = SipEndpoint(user_agent, [Listen("udp", HOST, self.port)], self._told)
        self.sockets = RtpSockets(HOST, None, None)
        self.media = LocalMedia(HOST, self.sockets.port)
        self.news: list[News] = []
        self.rtp: list[bytes] = []
        self.rtcp: list[bytes] = []
        self._on_news = on_news
        self._changed = asyncio.Event()
        self._sequence = 0

    async def __aenter__(self) -> Telephone:
        await self.endpoint.__aenter__()
        self.sockets.listen(lambda data, _: self._heard(self.rtp, data), lambda data, _: self._heard(self.rtcp, data))
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.endpoint.__aexit__(None, None, None)
        self.sockets.close()

    def command(self, command: Command) -> None:
        self.endpoint.handle(command)

    def dial(self, port: int, user: str = "100", **options: object) -> None:
        self.command(Dial("out", Uri.sip(user, HOST, port), self.media, **options))

    async def call(self, port: int, user: str = "100", **options: object) -> None:
        """Dial, and wait until it is up."""
        self.dial(port, user, **options)
        await self.until(lambda: bool(self.told(CallEstablished) or self.told(CallEnded)))
        assert self.told(CallEstablished), self.news

    def told(self, kind: type) -> list:
        return [news for news in self.news if isinstance(news, kind)]

    def send_rtp(self, payload: bytes = b"\xff" * 160, payload_type: int = 0) -> None:
        """One packet of 20 ms to where the last agreement says."""
        agreement = self.told(MediaAgreed)[-1].agreement
        self._sequence += 1
        packet = build_rtp(payload_type, False, self._sequence, self._sequence * 160, 77, payload)
        self.sockets.send_rtp(packet, (agreement.remote_address, agreement.remote_port))

    def moved(self, sockets: RtpSockets) -> LocalMedia:
        """Our media at another port from now on."""
        self.media = replace(self.media, port=sockets.port)
        return self.media

    async def until(self, condition: Callable[[], bool], seconds: float = 10) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _told(self, news: News) -> None:
        self.news.append(news)
        if self._on_news is not None:
            self._on_news(self, news)
        self._changed.set()

    def _heard(self, where: list[bytes], data: bytes) -> None:
        where.append(data)
        self._changed.set()
