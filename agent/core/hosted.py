"""The composition root of `rejoinder core`: engines for the shards, links, probes, drain. Knows every part of it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import platform
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from aiohttp import web

from agent import models
from agent.asr.factory import create_recognizer
from agent.asr.protocol import Recognizer
from agent.config import CoreSettings, Settings
from agent.core.address import CoreAddress, parse_core_address
from agent.core.capacity import probe_recognizer, probe_synthesizer, recognition_streams, synthesis_streams
from agent.core.client import CoreClient
from agent.core.coremetrics import CoreMetrics
from agent.core.link import Link
from agent.core.linking import LinkOptions, listening
from agent.core.pool import WorkerPool
from agent.core.server import CoreServer, Shard
from agent.core.shm import RingPlace
from agent.core.tls import TlsFiles
from agent.errors import ConfigError, EnvironmentFault, UnsupportedLanguage
from agent.language import primary_language
from agent.listening.silero import MODEL_FILE, VadEngine
from agent.listening.sound import TurnSound, load_turn_model
from agent.media.frames import Pcm
from agent.media.priority import favour_engine_thread
from agent.observe.metrics import CONTENT_TYPE
from agent.tts.factory import create_synthesizer
from agent.tts.protocol import Synthesizer, Voice

__all__ = ["check_listening", "link_options", "open_core", "open_core_client", "serve_core"]

log = logging.getLogger(__name__)


def link_options(core: CoreSettings) -> LinkOptions:
    """What `[core]` says of links."""
    tls = TlsFiles(core.tls_ca, core.tls_certificate, core.tls_key, core.tls_server_name)
    return LinkOptions(tls, RingPlace(core.ring_slots, core.ring_dir), core.silence_s)


@asynccontextmanager
async def open_core_client(settings: Settings) -> AsyncIterator[CoreClient]:
    """An edge's line to the core that `core.url` names. Raises EnvironmentFault and ConfigError."""
    address = parse_core_address(settings.core.url)
    async with CoreClient(address, link_options(settings.core), name=_name("edge")) as client:
        yield client


@asynccontextmanager
async def open_core(settings: Settings, metrics: CoreMetrics) -> AsyncIterator[CoreServer]:
    """Load the engines of `core.shards`, measure what they carry, and be ready for links.

    Raises ConfigError and EnvironmentFault, each with what to do.
    """
    core = settings.core
    if not core.shards:
        raise ConfigError("core.shards: expected at least one, such as --shard asr:en --shard tts:heart")
    threads = settings.asr.threads or os.cpu_count() or 1
    prepare = favour_engine_thread if settings.media.priority == "auto" else None
    async with AsyncExitStack() as stack:
        pool = await stack.enter_async_context(WorkerPool(threads, name="engine", prepare=prepare))
        shards: dict[str, Shard] = {}
        speech: Pcm | None = None
        # Voices first: what one says is what the recognisers are measured with.
        for name in sorted(dict.fromkeys(core.shards), key=lambda name: not name.startswith("tts:")):
            kind, _, key = name.partition(":")
            if kind == "tts":
                synthesizer = await _voice(settings, pool, name, key)
                stack.push_async_callback(synthesizer.close)
                told, speech = await probe_synthesizer(synthesizer, Voice(key, settings.tts.language))
                carried = synthesis_streams(told, threads=threads)
                shards[name] = Shard(name, synthesizer, core.max_streams or carried)
            else:
                recognizer = await _recogniser(settings, pool, name, key)
                stack.push_async_callback(recognizer.close)
                told = await probe_recognizer(recognizer, key, speech if primary_language(key) == "en" else None)
                every_ms = settings.asr.partial_every_ms
                carried = recognition_streams(told, threads=threads, partial_every_ms=every_ms)
                shards[name] = Shard(name, recognizer, core.max_streams or carried)
            metrics.real_time_factor(name, told.real_time_factor)
            log.info(
                "shard ready",
                extra={"shard": name, "factor": round(told.real_time_factor, 3), "streams": shards[name].capacity},
            )
        vad = VadEngine(models.require("silero-vad", settings.models) / MODEL_FILE, prepare=prepare)
        await stack.enter_async_context(vad)
        turn_model = await load_turn_model(settings, pool)
        # In the order they were asked for.
        ordered = {name: shards[name] for name in core.shards}
        yield await stack.enter_async_context(
            CoreServer(_name("core"), ordered, metrics, vad=vad, turn_sound=lambda: TurnSound(turn_model, pool))
        )


async def serve_core(
    core: CoreServer,
    settings: CoreSettings,
    *,
    stop: asyncio.Event,
    hurry: asyncio.Event,
    on_listening: Callable[[Sequence[CoreAddress], str], None],
) -> None:
    """Listen until `stop`, then drain: no new links or streams, those there are may finish.

    Args:
        core: with its shards.
        settings: where to listen, and how long a drain may take.
        stop, hurry: end it; end the drain too.
        on_listening: told the real addresses, and that of /metrics (empty for none).

    Raises ConfigError and EnvironmentFault, each with what to do.
    """
    options = link_options(settings)
    async with AsyncExitStack() as stack:
        door = await stack.enter_async_context(_door(core, settings.metrics))
        listeners = await stack.enter_async_context(AsyncExitStack())
        real = [
            await listeners.enter_async_context(listening(parse_core_address(text), options, core.accept, core.serving))
            for text in settings.listen
        ]
        on_listening(real, door)
        await stop.wait()
        log.info("draining", extra={"streams": core.streams})
        await core.drain(settings.drain_s, hurry)


async def check_listening(settings: CoreSettings) -> None:
    """Listen everywhere for a moment, so that what is wrong is told before engines load, which takes seconds.

    Raises ConfigError and EnvironmentFault, each with what to do.
    """
    if not settings.listen:
        raise ConfigError("core.listen: expected at least one address, such as --listen unix:/run/rejoinder.sock")
    early: list[Link] = []
    options = link_options(settings)
    async with AsyncExitStack() as stack:
        for text in settings.listen:
            address = parse_core_address(text)
            await stack.enter_async_context(listening(address, options, early.append, lambda _: False))
        host, _, port = settings.metrics.rpartition(":")
        if settings.metrics:
            runner = web.AppRunner(web.Application())
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await _open_door(runner, host, int(port), settings.metrics)
        for link in early:
            await link.close()


@asynccontextmanager
async def _door(core: CoreServer, address: str) -> AsyncIterator[str]:
    """/metrics for Prometheus; /healthz and /readyz for those who probe by HTTP."""
    if not address:
        yield ""
        return

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(body=core.metrics.render(), headers={"Content-Type": CONTENT_TYPE})

    async def alive(_request: web.Request) -> web.Response:
        return web.json_response({"status": "alive"})

    async def ready(_request: web.Request) -> web.Response:
        shards = {name: {"capacity": shard.capacity} for name, shard in core.shards.items()}
        status = "draining" if core.draining else "ready"
        return web.json_response(
            {"status": status, "streams": core.streams, "shards": shards}, status=503 if core.draining else 200
        )

    app = web.Application()
    app.router.add_get("/metrics", metrics)
    app.router.add_get("/healthz", alive)
    app.router.add_get("/readyz", ready)
    host, _, port = address.rpartition(":")
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        try:
            await web.TCPSite(runner, host.strip("[]"), int(port)).start()
        except OSError as exc:
            why = "is taken by another program" if exc.errno == errno.EADDRINUSE else exc.strerror or "is no address"
            raise EnvironmentFault(
                f"core.metrics: {address} {why}: set it to another HOST:PORT, or to nothing"
            ) from exc
        yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def _open_door(runner: web.AppRunner, host: str, port: int, address: str) -> None:
    try:
        await web.TCPSite(runner, host.strip("[]"), port).start()
    except OSError as exc:
        why = "is taken by another program" if exc.errno == errno.EADDRINUSE else exc.strerror or "is no address"
        raise EnvironmentFault(f"core.metrics: {address} {why}: set it to another HOST:PORT, or to nothing") from exc


async def _voice(settings: Settings, pool: WorkerPool, shard: str, voice: str) -> Synthesizer:
    # The edge has the last-resort voice: it must speak when this process is gone.
    tts = settings.tts.model_copy(update={"voice": voice, "fallback": "none"})
    try:
        return await create_synthesizer(settings.model_copy(update={"tts": tts}), pool)
    except ConfigError as exc:
        raise ConfigError(f"core.shards: {shard}: {exc}") from exc


async def _recogniser(settings: Settings, pool: WorkerPool, shard: str, language: str) -> Recognizer:
    asr = settings.asr.model_copy(update={"language": language})
    try:
        return await create_recognizer(settings.model_copy(update={"asr": asr}), pool)
    except UnsupportedLanguage as exc:
        raise ConfigError(f"core.shards: {shard}: {exc}; set asr.engine to one that reads it") from exc


def _name(role: str) -> str:
    return f"{role} {platform.node()} {os.getpid()}"
