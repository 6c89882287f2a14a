from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from agent.config import Settings
from agent.media.ticker import Ticker
from signaling.admission import CallRegistry
from signaling.connection import DoorRunner
from signaling.places import Places
from signaling.server import create_app
from signaling.tokens import TokenKeys, load_keys
from tests.signaling.doubles import AgentDouble, Negotiator, PcmDouble


class _Server(TestServer):
    """A test server whose handlers may be left running when their client goes."""

    def __init__(self, app: web.Application, *, cancels: bool) -> None:
        super().__init__(app)
        self._cancels = cancels

    async def _make_runner(self, **kwargs: Any) -> web.AppRunner:
        return DoorRunner(self.app, **kwargs | {"handler_cancellation": self._cancels})


class Door:
    """A served application with doubles behind it, and a client."""

    def __init__(self, agent: AgentDouble, keys: TokenKeys) -> None:
        self.agent = agent
        self.keys = keys
        self.negotiator = Negotiator()
        self.pcm_ports: list[PcmDouble] = []
        self.client: TestClient[Any, Any]

    def make_pcm_port(
        self, rate_hz: int, *, ticker: Ticker, send: Callable[[bytes], None], silence_s: float | None = None
    ) -> PcmDouble:
        port = PcmDouble(rate_hz, ticker=ticker, send=send, silence_s=silence_s)
        self.pcm_ports.append(port)
        return port

    def token(self, subject: str = "alice", **claims: Any) -> str:
        return self.keys.mint(subject, **claims)

    def auth(self, subject: str = "alice", **claims: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token(subject, **claims)}"}


@pytest.fixture
async def ticker() -> AsyncIterator[Ticker]:
    async with Ticker() as running:
        yield running


@pytest.fixture
def web_root(tmp_path: Path) -> Path:
    root = tmp_path / "web"
    (root / "js").mkdir(parents=True)
    (root / "index.html").write_text("<!doctype html><title>call</title>", encoding="utf-8")
    (root / "js" / "app.js").write_text("export const ready = true;\n", encoding="utf-8")
    (root / "__init__.py").write_text("SECRET = 1\n", encoding="utf-8")
    (root / ".env").write_text("KEY=1\n", encoding="utf-8")
    (tmp_path / "outside.html").write_text("outside", encoding="utf-8")
    (root / "link.html").symlink_to(tmp_path / "outside.html")
    return root


OpenDoor = Callable[..., Awaitable[Door]]


@pytest.fixture
async def open_door(ticker: Ticker, web_root: Path) -> AsyncIterator[OpenDoor]:
    clients: list[TestClient[Any, Any]] = []

    async def build(
        settings: Settings | None = None,
        *,
        cancels: bool = True,
        places: Callable[[AgentDouble], Places] | None = None,
    ) -> Door:
        settings = settings or Settings()
        agent = AgentDouble(settings, ticker)
        door = Door(agent, load_keys(settings, bind_host="127.0.0.1"))
        app = create_app(
            agent,
            verifier=door.keys.verifier,
            answer=door.negotiator,
            make_pcm_port=door.make_pcm_port,
            make_bridge_port=door.make_pcm_port,
            registry=None if places is None else CallRegistry(agent, places(agent)),
            web_root=web_root,
        )
        server = _Server(app, cancels=cancels)
        await server.start_server()
        door.client = TestClient(server, timeout=aiohttp.ClientTimeout(total=20))
        clients.append(door.client)
        return door

    yield build
    for client in clients:
        await client.close()


@pytest.fixture
async def door(open_door: OpenDoor) -> Door:
    return await open_door()
