import asyncio
import json
import os
import signal
import socket
import sys
import types
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agent.config import ServerSettings, Settings
from agent.errors import ConfigError, EnvironmentFault
from agent.media.ticker import Ticker
from agent.observe.metrics import Metrics, process_metrics
from signaling.server import Listening, announcement, create_app, run_server, serve
from signaling.tokens import load_keys
from tests.signaling.conftest import Door
from tests.signaling.doubles import OFFER_SDP, AgentDouble, Negotiator, PcmDouble


class Served:
    """`serve` running on a free port."""

    def __init__(self, agent: AgentDouble, app: web.Application, settings: Settings) -> None:
        self.agent = agent
        self.stop = asyncio.Event()
        self._up: asyncio.Future[Listening] = asyncio.get_running_loop().create_future()
        self.task = asyncio.create_task(
            serve(agent, settings, app=app, stop=self.stop, on_listening=self._up.set_result)
        )

    async def url(self) -> str:
        async with asyncio.timeout(10):
            waiting: set[asyncio.Future[Any]] = {self._up, self.task}
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self.task.done():
                await self.task
            return (await self._up).url

    async def ended(self) -> None:
        async with asyncio.timeout(10):
            await self.task


def build(ticker: Ticker, web_root: Path, **server: Any) -> tuple[AgentDouble, web.Application, Settings, str]:
    settings = Settings(server=ServerSettings(port=0, **server))
    agent = AgentDouble(settings, ticker)
    keys = load_keys(settings)
    app = create_app(agent, verifier=keys.verifier, answer=Negotiator(), make_pcm_port=PcmDouble, web_root=web_root)
    return agent, app, settings, keys.mint("alice")


async def post(client: aiohttp.ClientSession, url: str, token: str) -> aiohttp.ClientResponse:
    return await client.post(
        f"{url}/v1/calls", json={"sdp": OFFER_SDP, "type": "offer"}, headers={"Authorization": f"Bearer {token}"}
    )


async def test_port_zero_takes_a_free_port_and_says_which(ticker: Ticker, web_root: Path) -> None:
    agent, app, settings, token = build(ticker, web_root)
    served = Served(agent, app, settings)
    url = await served.url()
    assert not url.endswith(":0")
    async with aiohttp.ClientSession() as client:
        assert (await client.get(f"{url}/healthz")).status == 200
        assert (await post(client, url, token)).status == 201
    agent.started[0].hangup("completed")
    served.stop.set()
    await served.ended()


async def test_a_taken_port_is_one_line_that_says_what_to_do(ticker: Ticker, web_root: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        agent, app, settings, _ = build(ticker, web_root)
        settings = settings.model_copy(update={"server": ServerSettings(port=taken.getsockname()[1])})
        with pytest.raises(EnvironmentFault, match="is taken") as caught:
            await serve(agent, settings, app=app)
    assert "\n" not in str(caught.value)
    assert "--port" in str(caught.value)


async def test_a_taken_port_is_told_before_any_engine_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    # Whoever reaches for the engines finds a module without them, and the error is another one.
    monkeypatch.setitem(sys.modules, "agent.app", types.ModuleType("agent.app"))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        settings = Settings(server=ServerSettings(port=taken.getsockname()[1]))
        with pytest.raises(EnvironmentFault, match="is taken"):
            await run_server(settings)


async def test_a_server_shows_the_metrics_of_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Metrics | None] = []

    class Agent:
        @staticmethod
        def open(settings: Settings, *, metrics: Metrics | None = None) -> None:
            given.append(metrics)
            raise EnvironmentFault("far enough")

    module = types.ModuleType("agent.app")
    module.Agent = Agent  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agent.app", module)
    with pytest.raises(EnvironmentFault, match="far enough"):
        await run_server(Settings(server=ServerSettings(port=0)))
    assert given == [process_metrics()]


async def test_an_address_that_is_not_ours_is_named(ticker: Ticker, web_root: Path) -> None:
    agent, app, settings, _ = build(ticker, web_root)
    settings = settings.model_copy(update={"server": ServerSettings(host="192.0.2.77", port=0)})
    with pytest.raises(EnvironmentFault, match=r"192\.0\.2\.77"):
        await serve(agent, settings, app=app)


async def test_a_public_address_without_a_key_does_not_open(ticker: Ticker) -> None:
    settings = Settings(server=ServerSettings(host="0.0.0.0", port=0))
    with pytest.raises(ConfigError, match="REJOINDER_AUTH__SECRET"):
        await serve(AgentDouble(settings, ticker), settings)


async def test_while_draining_new_calls_wait_and_live_ones_finish(ticker: Ticker, web_root: Path) -> None:
    agent, app, settings, token = build(ticker, web_root, drain_s=30)
    served = Served(agent, app, settings)
    url = await served.url()
    async with aiohttp.ClientSession() as client:
        assert (await post(client, url, token)).status == 201
        served.stop.set()
        async with asyncio.timeout(5):
            await agent.drain_begun.wait()
        refused = await post(client, url, token)
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) > 0
        not_ready = await client.get(f"{url}/readyz")
        assert not_ready.status == 503
        assert (await not_ready.json(content_type=None))["reasons"] == ["draining"]
        assert (await client.get(f"{url}/healthz")).status == 200
        call = agent.started[0]
        assert call.end_reason is None
        hung_up = await client.delete(f"{url}/v1/calls/{call.id}", headers={"Authorization": f"Bearer {token}"})
        assert hung_up.status == 204
    await served.ended()
    assert call.end_reason == "caller hung up"


async def test_whoever_is_left_after_the_drain_is_hung_up_with_a_reason(ticker: Ticker, web_root: Path) -> None:
    agent, app, settings, token = build(ticker, web_root, drain_s=0.05)
    served = Served(agent, app, settings)
    url = (await served.url()).replace("http", "ws")
    async with aiohttp.ClientSession() as client:
        ws = await client.ws_connect(f"{url}/v1/stream", params={"token": token})
        await agent.began.wait()
        served.stop.set()
        assert json.loads(await ws.receive_str(timeout=5)) == {"type": "hangup", "reason": "server stopped"}
        await ws.close()
    await served.ended()
    assert not agent.calls


async def test_a_signal_drains_and_a_second_one_hurries(ticker: Ticker, web_root: Path) -> None:
    agent, app, settings, token = build(ticker, web_root, drain_s=60)
    before = signal.getsignal(signal.SIGTERM)
    served = Served(agent, app, settings)
    url = await served.url()
    async with aiohttp.ClientSession() as client:
        assert (await post(client, url, token)).status == 201
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(5):
            await agent.drain_begun.wait()
        assert agent.started[0].end_reason is None
        os.kill(os.getpid(), signal.SIGINT)
        await served.ended()
    assert agent.started[0].end_reason == "server stopped"
    assert signal.getsignal(signal.SIGTERM) == before


async def test_a_call_that_will_not_end_does_not_hold_the_server(
    ticker: Ticker, web_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("signaling.drain.HANGUP_TIMEOUT_S", 0.05)
    agent, app, settings, token = build(ticker, web_root, drain_s=0)
    served = Served(agent, app, settings)
    url = await served.url()
    async with aiohttp.ClientSession() as client:
        await post(client, url, token)
        agent.started[0].lingers = True
        served.stop.set()
        await served.ended()
    assert agent.started[0].end_reason == "server stopped"
    await agent.started[0].finish()


async def test_readiness_says_why_not(door: Door) -> None:
    ready = await door.client.get("/readyz")
    assert ready.status == 200
    assert (await ready.json())["status"] == "ready"
    door.agent.ready, door.agent.not_ready_reason = False, "loading the recogniser"
    waiting = await door.client.get("/readyz")
    assert waiting.status == 503
    assert waiting.content_type == "application/problem+json"
    assert (await waiting.json(content_type=None))["reasons"] == ["loading the recogniser"]
    assert waiting.headers["Retry-After"]


async def test_metrics_are_prometheus_text(door: Door) -> None:
    door.agent.metrics.call_started("browser")
    response = await door.client.get("/metrics")
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert 'voice_calls_active{channel="browser"} 1.0' in await response.text()


def test_the_announcement_has_a_token_only_when_nobody_else_could_mint_one() -> None:
    listening = Listening("127.0.0.1", 8080)
    keys = load_keys(Settings())
    text = announcement(listening, keys, as_json=False)
    assert "http://127.0.0.1:8080" in text
    told = json.loads(announcement(listening, keys, as_json=True))
    assert told["port"] == 8080
    assert keys.verifier.verify(told["token"]).subject == "developer"
    settings = Settings.model_validate({"auth": {"secret": "0123456789abcdef0123456789abcdef"}})
    assert json.loads(announcement(listening, load_keys(settings), as_json=True))["token"] is None


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("::1", "http://[::1]:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("voice.example", "http://voice.example:80"),
    ],
)
def test_the_url_opens_in_a_browser_here(host: str, url: str) -> None:
    assert Listening(host, 80).url == url


async def test_a_wrong_origin_stops_the_start(ticker: Ticker, web_root: Path) -> None:
    with pytest.raises(ConfigError, match=r"server\.origins"):
        build(ticker, web_root, origins=("*",))
