"""The HTTP application put together, and its life: bind, announce, serve, drain, stop."""

from __future__ import annotations

import asyncio
import errno
import gc
import json
import logging
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from agent.config import Settings
from agent.errors import EnvironmentFault
from agent.media.pcm import PcmPort
from agent.media.priority import favour_media_thread
from agent.media.webrtc import WebRtcPort
from agent.observe.metrics import CONTENT_TYPE, Metrics, process_metrics
from signaling.admission import CallRegistry
from signaling.bridges.doors import add_bridges
from signaling.bridges.port import BridgePort
from signaling.calls import WebRtcCalls
from signaling.connection import DoorRunner
from signaling.drain import drain
from signaling.guards import cors_headers, host_and_origin, rate_limit, security_headers
from signaling.ice import IceServers
from signaling.limits import RateLimiter
from signaling.origins import OriginPolicy, is_loopback
from signaling.places import create_places
from signaling.ports import AgentLike, AnswerOffer, Drains, MakePcmPort
from signaling.problems import problem, problems_middleware
from signaling.sip.gateway.outgoing import OutgoingCalls, wants_telephone
from signaling.static import StaticFiles, find_web_root
from signaling.stream import StreamDoor
from signaling.stream_host import StreamHost
from signaling.tokens import TokenKeys, TokenVerifier, load_keys

__all__ = [
    "Listening",
    "announcement",
    "base_app",
    "create_app",
    "run_server",
    "serve",
    "serve_app",
    "stop_signals",
    "try_bind",
]

SHUTDOWN_TIMEOUT_S = 3.0
"""Calls have been hung up by then; what is left are idle connections and the last bytes of others."""

NOT_READY_RETRY_S = 2

DEVELOPMENT_TTL_S = 30 * 86_400
"""The development key lives as long as the process, so its token need not end sooner."""

logger = logging.getLogger(__name__)


def create_app(
    agent: AgentLike,
    *,
    verifier: TokenVerifier,
    answer: AnswerOffer = WebRtcPort.answer,
    make_pcm_port: MakePcmPort = PcmPort,
    make_bridge_port: MakePcmPort = BridgePort,
    web_root: Path | None = None,
    registry: CallRegistry | None = None,
    outgoing: OutgoingCalls | None = None,
) -> web.Application:
    """The application over one agent.

    Args:
        agent: takes the calls; its settings say sizes, rates and origins.
        verifier: checks every token.
        answer: makes WebRTC ports.
        make_pcm_port: makes ports for the WebSocket.
        make_bridge_port: makes ports for telephone systems' streams.
        web_root: folder of the call page; found by itself by default.
        registry: the admission, when other doors share it, or as `settings.admission` says. Its places are entered and
            left with the application.
        outgoing: places calls by telephone; None: there are none.

    Raises:
        ConfigError: an entry of `server.origins` is no origin, or `admission.redis_url` no address.
        EnvironmentFault: the call page's folder is missing.
    """
    app = base_app(agent.settings, agent.metrics, web_root=web_root)
    registry = registry if registry is not None else CallRegistry(agent, create_places(agent))
    calls = WebRtcCalls(agent, verifier=verifier, registry=registry, answer=answer)
    stream = StreamDoor(agent, verifier=verifier, registry=registry, make_port=make_pcm_port)
    probes = _Probes(agent)

    async def create(request: web.Request) -> web.StreamResponse:
        """POST /v1/calls: a browser's offer, or an order to call somebody."""
        if outgoing is not None and await wants_telephone(request):
            return await outgoing.create(request)
        return await calls.create(request)

    app.router.add_post("/v1/calls", create)
    app.router.add_patch("/v1/calls/{call_id}", calls.trickle)
    app.router.add_delete("/v1/calls/{call_id}", calls.hang_up)
    app.router.add_get("/v1/ice", IceServers(agent.settings.turn).handler(verifier))
    app.router.add_get("/v1/stream", stream.handle, allow_head=False)
    app.router.add_get("/healthz", probes.alive)
    app.router.add_get("/readyz", probes.ready)
    app.router.add_get("/metrics", probes.metrics)

    async def closing(_app: web.Application) -> AsyncIterator[None]:
        async with registry.places or nullcontext():
            yield
            await calls.close()

    app.cleanup_ctx.append(closing)
    add_bridges(app, StreamHost(agent, registry, make_bridge_port), verifier)
    return app


def base_app(settings: Settings, metrics: Metrics, *, web_root: Path | None = None) -> web.Application:
    """What every public door has: problems, Host and Origin checks, rate limit, headers, and the call page.

    Raises:
        ConfigError: an entry of `server.origins` is no origin.
        EnvironmentFault: the call page's folder is missing.
    """
    door = settings.server
    policy = OriginPolicy(door.origins, bind_host=door.host)
    static = StaticFiles(web_root if web_root is not None else find_web_root())
    app = web.Application(
        client_max_size=door.max_body_bytes,
        middlewares=[
            problems_middleware(metrics),
            host_and_origin(policy),
            rate_limit(RateLimiter(door.rate_per_minute), trust_proxy=door.trust_proxy),
        ],
    )
    app.router.add_get("/", static.index)
    app.router.add_get("/web/{path:.+}", static.file)
    add_cors = cors_headers(policy)

    async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
        security_headers(request, response)
        add_cors(request, response)

    app.on_response_prepare.append(add_headers)
    return app


class _Probes:
    """What orchestrators and Prometheus ask. Open to all; a proxy keeps /metrics inside where that matters."""

    def __init__(self, agent: AgentLike) -> None:
        self._agent = agent

    async def alive(self, _request: web.Request) -> web.Response:
        """GET /healthz: the event loop turns."""
        return web.json_response({"status": "alive"}, headers={"Cache-Control": "no-store"})

    async def ready(self, _request: web.Request) -> web.Response:
        """GET /readyz: 200 while new calls are taken, 503 with the reasons while not."""
        reasons = []
        if self._agent.draining:
            reasons.append("draining")
        if not self._agent.ready and self._agent.not_ready_reason not in reasons:
            reasons.append(self._agent.not_ready_reason)
        if reasons:
            return problem(
                503,
                "not_ready",
                f"no new calls are taken: {'; '.join(reasons)}",
                headers={"Retry-After": str(NOT_READY_RETRY_S)},
                extra={"reasons": reasons},
            )
        body = {"status": "ready", "calls": len(self._agent.calls)}
        return web.json_response(body, headers={"Cache-Control": "no-store"})

    async def metrics(self, _request: web.Request) -> web.Response:
        """GET /metrics: Prometheus text."""
        self._agent.metrics.tasks(len(asyncio.all_tasks()))
        return web.Response(
            body=self._agent.metrics.render(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"}
        )


@dataclass(frozen=True, slots=True)
class Listening:
    """Where the server really listens."""

    host: str
    port: int
    """The real one, also when 0 was asked for."""

    @property
    def url(self) -> str:
        """What to open in a browser on this machine."""
        host = self.host if is_loopback(self.host) or self.host not in ("0.0.0.0", "::") else "127.0.0.1"
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"


async def serve(
    agent: AgentLike,
    settings: Settings,
    *,
    verifier: TokenVerifier | None = None,
    on_listening: Callable[[Listening], None] | None = None,
    stop: asyncio.Event | None = None,
    app: web.Application | None = None,
    on_draining: Callable[[], None] | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or `stop`; then drain: new calls get 503, live ones have `server.drain_s` to finish.

    A second signal ends the drain at once. Signals are taken only in the main thread, and given back at the end.

    Args:
        verifier: checks tokens; from `settings` by default (without a configured key no caller will have a token then).
        on_listening: told once the door is open.
        stop: ends serving from within the program.
        app: an application made by `create_app`, when its parts are to be chosen.
        on_draining: told when no more calls are taken.

    Raises:
        ConfigError: no key on a public address, or a wrong origin.
        EnvironmentFault: the address cannot be bound.
    """
    if app is None:
        app = create_app(agent, verifier=verifier if verifier is not None else load_keys(settings).verifier)
    await serve_app(app, agent, settings, on_listening=on_listening, stop=stop, on_draining=on_draining)


async def serve_app(
    app: web.Application,
    calls: Drains,
    settings: Settings,
    *,
    on_listening: Callable[[Listening], None] | None = None,
    stop: asyncio.Event | None = None,
    on_draining: Callable[[], None] | None = None,
) -> None:
    """`serve` for any application and whatever holds its calls."""
    stop = stop if stop is not None else asyncio.Event()
    hurry = asyncio.Event()
    # Access logs stay off: their request lines hold tokens. A handler is cancelled when its client goes away.
    runner = DoorRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=SHUTDOWN_TIMEOUT_S)
    await runner.setup()
    try:
        listening = await _bind(runner, settings.server.host, settings.server.port)
        with stop_signals(stop, hurry):
            logger.info("listening", extra={"host": listening.host, "port": listening.port})
            if on_listening is not None:
                on_listening(listening)
            await stop.wait()
            if on_draining is not None:
                on_draining()
            await drain(calls, patience_s=settings.server.drain_s, hurry=hurry)
    finally:
        await runner.cleanup()


async def _bind(runner: web.AppRunner, host: str, port: int) -> Listening:
    site = web.TCPSite(runner, host, port)
    try:
        await site.start()
    except OSError as exc:
        raise EnvironmentFault(_bind_fault(exc, host, port)) from exc
    address = runner.addresses[0]
    return Listening(host, int(address[1]))


async def try_bind(host: str, port: int) -> None:
    """Raises EnvironmentFault when that address cannot be listened on."""
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as exc:
        raise EnvironmentFault(_bind_fault(exc, host, port)) from exc
    server.close()
    await server.wait_closed()


def _bind_fault(error: OSError, host: str, port: int) -> str:
    where = f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"{where} is taken by another program: stop it, or choose another port (--port, REJOINDER_SERVER__PORT)"
    if error.errno == errno.EACCES:
        return f"no permission to listen on {where}: choose a port above 1023 (--port, REJOINDER_SERVER__PORT)"
    if error.errno == errno.EADDRNOTAVAIL or isinstance(error, socket.gaierror):
        return f"this machine has no address {host}: choose another (--host, REJOINDER_SERVER__HOST)"
    return f"cannot listen on {where}: {error.strerror or type(error).__name__}"


@contextmanager
def stop_signals(stop: asyncio.Event, hurry: asyncio.Event) -> Iterator[None]:
    """The first SIGTERM or SIGINT sets `stop`, the next one `hurry`."""
    loop = asyncio.get_running_loop()

    def take() -> None:
        (hurry if stop.is_set() else stop).set()

    taken = []
    for number in (signal.SIGTERM, signal.SIGINT):
        try:
            loop.add_signal_handler(number, take)
        except (NotImplementedError, RuntimeError, ValueError):
            # Windows, or not the main thread: whoever runs us there ends us by `stop`.
            continue
        taken.append(number)
    try:
        yield
    finally:
        for number in taken:
            loop.remove_signal_handler(number)


async def run_server(settings: Settings, *, announce_json: bool = False) -> None:
    """What `rejoinder serve` does: load the engines, open the door, say where and with which token, serve, stop.

    Raises ConfigError and EnvironmentFault, each with what to do.
    """
    # Before the engines, which take a second or more: a wrong key and a taken port are told at once.
    keys = load_keys(settings)
    await try_bind(settings.server.host, settings.server.port)

    # Here and not above, since signaling serves any agent and only this function builds the real one.
    from agent.app import Agent

    async with Agent.open(settings, metrics=process_metrics()) as agent:
        # What was loaded stays: a full collection over it would stop the media clock for 40 ms and more.
        gc.collect()
        gc.freeze()
        if settings.media.priority == "auto":
            logger.info("media thread", extra={"priority": favour_media_thread()})

        def announce(listening: Listening) -> None:
            sys.stdout.write(announcement(listening, keys, as_json=announce_json))
            sys.stdout.flush()

        if not settings.sip.enabled:
            await serve(agent, settings, verifier=keys.verifier, on_listening=announce)
            return
        registry = CallRegistry(agent, create_places(agent))
        # Here, since whoever takes no telephone calls need not load it.
        from signaling.sip.gateway.gateway import SipGateway

        async with SipGateway(agent, registry) as gateway:
            outgoing = OutgoingCalls(gateway, verifier=keys.verifier, registry=registry)
            app = create_app(agent, verifier=keys.verifier, registry=registry, outgoing=outgoing)
            await serve(agent, settings, app=app, on_listening=announce, on_draining=gateway.drain)


def announcement(listening: Listening, keys: TokenKeys, *, as_json: bool) -> str:
    """Where to call, and a token when the key was made for this process (no other program could mint one)."""
    token = keys.mint("developer", ttl_s=DEVELOPMENT_TTL_S) if keys.development else None
    if as_json:
        return json.dumps({"url": listening.url, "port": listening.port, "token": token}) + "\n"
    lines = [f"Rejoinder listens on {listening.url}"]
    if token is not None:
        lines += [
            f"Token (development key, valid until this server stops): {token}",
            f"Call page: {listening.url}/#token={token}",
        ]
    else:
        lines.append("Tokens: rejoinder token")
    return "\n".join(lines) + "\n"
