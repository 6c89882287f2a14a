"""A real Chromium on the real page, against a scripted signaling double with a real aiortc peer behind it.

The double serves the page under the server's own policy, records every request and data-channel message,
sends a tone, and says on the channel what the test tells it to say.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mimetypes
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import pytest_asyncio
from aiohttp import web
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.mediastreams import AudioStreamTrack
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame
from playwright.async_api import Browser, BrowserContext, Page, Playwright, async_playwright

from signaling.guards import CONTENT_SECURITY_POLICY

WEB = Path(__file__).parents[2] / "web"
CHROMIUM = "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--use-fake-device-for-media-stream",
    "--autoplay-policy=no-user-gesture-required",
    "--allow-loopback-in-peer-connection",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--host-resolver-rules=MAP insecure.example 127.0.0.1",
]
TOKEN = "a.test.token"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)
            item.add_marker(pytest.mark.e2e)


class Tone(AudioStreamTrack):
    """440 Hz at half scale, 20 ms frames at 48 kHz; nothing at all while `silence` is set."""

    def __init__(self, silence: asyncio.Event) -> None:
        super().__init__()
        self._silence = silence

    async def recv(self) -> AudioFrame:
        silent = await super().recv()
        while self._silence.is_set():
            silent = await super().recv()
        rate = 48_000
        samples = rate // 50
        phase = 2 * np.pi * 440 * (np.arange(samples) + (self._timestamp // 160) * samples) / rate
        frame = AudioFrame.from_ndarray((np.sin(phase) * 16_000).astype(np.int16)[None, :], "s16", "mono")
        frame.sample_rate = rate
        frame.pts = silent.pts * (rate // 8000)
        frame.time_base = silent.time_base / (rate // 8000)
        return frame


@dataclass
class Refusal:
    status: int
    code: str
    headers: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    """Further members of the problem."""


@dataclass
class Double:
    """What the page talks to. `refuse` makes POST fail; `deaf` answers with an SDP that leads nowhere; with `resume_s`
    each call may be resumed for so long."""

    origin: str = ""
    refuse: Refusal | None = None
    deaf: bool = False
    resume_s: float = 0.0
    ice_servers: list[dict[str, Any]] = field(default_factory=list)
    offers: list[dict[str, Any]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)
    asked_ice: list[str] = field(default_factory=list)
    candidates: list[str] = field(default_factory=list)
    deletes: list[str] = field(default_factory=list)
    received: list[dict[str, Any]] = field(default_factory=list)
    peers: list[RTCPeerConnection] = field(default_factory=list)
    channel: Any = None
    silence: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: ClassVar[type[Refusal]] = Refusal
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def say(self, *events: dict[str, Any]) -> None:
        for event in events:
            self.channel.send(json.dumps(event))

    async def until(self, condition: Any, what: str) -> None:
        """Wait until `condition()` holds, woken by each thing that happens here."""
        async with asyncio.timeout(10):
            while not condition():
                self.changed.clear()
                await self.changed.wait()
        assert condition(), what

    def _happened(self) -> None:
        self.changed.set()

    async def create(self, request: web.Request) -> web.Response:
        self.authorizations.append(request.headers.get("Authorization", ""))
        offer = await request.json()
        self.offers.append(offer)
        self._happened()
        if self.refuse:
            problem = {
                "type": f"about:blank#{self.refuse.code}",
                "title": self.refuse.code,
                "status": self.refuse.status,
                "detail": f"refused for the test: {self.refuse.code}",
                "code": self.refuse.code,
                **self.refuse.extra,
            }
            return web.json_response(
                problem, status=self.refuse.status, headers=self.refuse.headers, content_type="application/problem+json"
            )
        peer = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self.peers.append(peer)
        peer.addTrack(Tone(self.silence))

        @peer.on("datachannel")
        def opened(channel: Any) -> None:
            self.channel = channel

            @channel.on("message")
            def message(text: str) -> None:
                self.received.append(json.loads(text))
                self._happened()

            session = {"id": "sess_1", "model": "rejoinder", "voice": "heart", "language": "en", "channel": "browser"}
            self.say({"type": "session.created", "event_id": "e0", "session": session})
            self._happened()

        await peer.setRemoteDescription(RTCSessionDescription(offer["sdp"], "offer"))
        await peer.setLocalDescription(await peer.createAnswer())
        sdp = peer.localDescription.sdp
        if self.deaf:
            sdp = "".join(line for line in sdp.splitlines(keepends=True) if not line.startswith("a=candidate"))
            await peer.close()
        body: dict[str, Any] = {"id": f"call_{len(self.offers)}", "sdp": sdp, "type": "answer"}
        if self.resume_s:
            body["resume"] = {"token": f"resume-{len(self.offers)}", "expires_in_s": self.resume_s}
        return web.json_response(body, status=201, headers={"Location": f"/v1/calls/{body['id']}"})

    async def ice(self, request: web.Request) -> web.Response:
        self.asked_ice.append(request.headers.get("Authorization", ""))
        return web.json_response({"ice_servers": self.ice_servers, "expires_in_s": 600})

    async def trickle(self, request: web.Request) -> web.Response:
        body = await request.json()
        self.candidates.append(body["candidate"])
        self._happened()
        if body["candidate"] and not self.deaf:
            candidate = candidate_from_sdp(body["candidate"].removeprefix("candidate:"))
            candidate.sdpMid, candidate.sdpMLineIndex = body["sdpMid"], body["sdpMLineIndex"]
            await self.peers[-1].addIceCandidate(candidate)
        return web.Response(status=204)

    async def delete(self, request: web.Request) -> web.Response:
        self.deletes.append(request.match_info["id"])
        self._happened()
        return web.Response(status=204)

    async def close(self) -> None:
        for peer in self.peers:
            await peer.close()


def _page_file(path: str) -> web.Response:
    file = WEB / path
    kind = mimetypes.guess_type(path)[0] or "application/octet-stream"
    return web.Response(
        body=file.read_bytes(), content_type=kind, headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}
    )


@pytest_asyncio.fixture(loop_scope="session")
async def double() -> AsyncIterator[Double]:
    made = Double()

    async def index(_: web.Request) -> web.Response:
        return _page_file("index.html")

    async def static(request: web.Request) -> web.Response:
        return _page_file(request.match_info["path"])

    app = web.Application()
    app.router.add_get("/", index)
    app.router.add_get("/web/{path:.+}", static)
    app.router.add_post("/v1/calls", made.create)
    app.router.add_get("/v1/ice", made.ice)
    app.router.add_patch("/v1/calls/{id}", made.trickle)
    app.router.add_delete("/v1/calls/{id}", made.delete)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.origin = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield made
    await made.close()
    await runner.cleanup()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def playwright() -> AsyncIterator[Playwright]:
    async with async_playwright() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def browser(playwright: Playwright) -> AsyncIterator[Browser]:
    launched = await playwright.chromium.launch(
        executable_path=CHROMIUM, args=[*FLAGS, "--use-fake-ui-for-media-stream"]
    )
    yield launched
    await launched.close()


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def asking_browser(playwright: Playwright) -> AsyncIterator[Browser]:
    """A browser that does not say yes to the microphone by itself."""
    launched = await playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
    yield launched
    await launched.close()


@dataclass
class Caller:
    """A page, with all that it complained about."""

    page: Page
    double: Double
    complaints: list[str]

    async def open(self, token: str | None = TOKEN, origin: str | None = None) -> Page:
        await self.page.goto((origin or self.double.origin) + "/" + (f"#token={token}" if token else ""))
        await self.until("window.rejoinder")
        return self.page

    async def call(self) -> Page:
        await self.open()
        await self.page.get_by_role("button", name="Call", exact=True).click()
        await self.until("rejoinder.state.phase === 'live' && rejoinder.state.session")
        return self.page

    async def until(self, expression: str) -> None:
        """Wait until the JavaScript expression is true. Playwright's own wait evaluates strings inside the page, which
        the page's policy forbids, as it should."""
        async with asyncio.timeout(15):
            await self.page.evaluate(
                f"async () => {{ while (!({expression})) await new Promise((next) => setTimeout(next, 15)); }}"
            )

    async def state(self, expression: str) -> Any:
        return await self.page.evaluate(f"rejoinder.state.{expression}")


@contextlib.asynccontextmanager
async def _caller(browser: Browser, double: Double, **options: Any) -> AsyncIterator[Caller]:
    context: BrowserContext = await browser.new_context(**options)
    page = await context.new_page()
    page.set_default_timeout(15_000)
    caller = Caller(page, double, [])
    page.on("console", lambda m: caller.complaints.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: caller.complaints.append(str(error)))
    await page.add_init_script(
        "addEventListener('securitypolicyviolation', (e) => console.error('CSP', e.violatedDirective, e.blockedURI))"
    )
    try:
        yield caller
    finally:
        await context.close()


@pytest.fixture
def make_caller(browser: Browser, double: Double) -> Any:
    """A context manager for a caller with options of its own (colour scheme, viewport, permissions)."""
    return lambda browser=browser, **options: _caller(browser, double, **options)


@pytest_asyncio.fixture(loop_scope="session")
async def caller(browser: Browser, double: Double) -> AsyncIterator[Caller]:
    """A caller with the microphone allowed. The test fails if the page complained on the console."""
    async with _caller(browser, double) as made:
        yield made
        assert made.complaints == []
