"""A core's life around its shards: where it listens, what it tells, how it ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import grpc.aio
import numpy as np
import pytest

from agent.config import CoreSettings
from agent.core.address import CoreAddress
from agent.core.client import CoreClient
from agent.core.coremetrics import CoreMetrics
from agent.core.health import Serving, decode_response
from agent.core.hosted import check_listening, link_options, serve_core
from agent.core.remote_asr import RemoteRecognizer
from agent.core.server import CoreServer, Shard
from agent.errors import EnvironmentFault
from agent.media.frames import HEARING_SAMPLES
from agent.testing.recognizer import ScriptedRecognizer

DEADLINE_S = 20.0
FRAME = np.zeros(HEARING_SAMPLES, np.int16)


class Running:
    """A served core, and the events that end it."""

    def __init__(self, core: CoreServer) -> None:
        self.core = core
        self.stop, self.hurry = asyncio.Event(), asyncio.Event()
        self.addresses: list[CoreAddress] = []
        self.door = ""
        self.listening = asyncio.Event()
        self.task: asyncio.Task[None]

    def told(self, addresses: Sequence[CoreAddress], door: str) -> None:
        self.addresses, self.door = list(addresses), door
        self.listening.set()


@asynccontextmanager
async def served(folder: Path, **settings: object) -> AsyncIterator[Running]:
    given = {"listen": (f"shm:{folder}/s", f"unix:{folder}/u", "tcp://127.0.0.1:0"), "metrics": "127.0.0.1:0"}
    core_settings = CoreSettings(**{**given, **settings})  # type: ignore[arg-type]
    shard = Shard("asr:en", ScriptedRecognizer(["hello there"]), 2)
    async with CoreServer("core", {"asr:en": shard}, CoreMetrics()) as core:
        running = Running(core)
        running.task = asyncio.create_task(
            serve_core(core, core_settings, stop=running.stop, hurry=running.hurry, on_listening=running.told)
        )
        await asyncio.wait_for(running.listening.wait(), DEADLINE_S)
        yield running
        running.stop.set()
        running.hurry.set()
        await asyncio.wait_for(running.task, DEADLINE_S)


async def test_a_core_is_reached_by_each_address_it_told(tmp_path: Path) -> None:
    async with served(tmp_path) as running:
        assert [str(address).partition(":")[0] for address in running.addresses] == ["shm", "unix", "tcp"]
        assert running.addresses[2].port > 0
        for address in running.addresses:
            async with CoreClient(address, link_options(CoreSettings()), name="edge") as client:
                stream = RemoteRecognizer(client).stream(language="en")
                stream.push(FRAME)
                await stream.final()
                assert client.models["asr:en"].streams == 2


async def test_numbers_and_readiness_are_told_by_http_and_health_by_grpc(tmp_path: Path) -> None:
    async with served(tmp_path) as running, aiohttp.ClientSession(f"http://{running.door}") as http:
        async with http.get("/metrics") as answer:
            text = await answer.text()
            assert 'voice_core_capacity_streams{shard="asr:en"} 2.0' in text
        async with http.get("/readyz") as answer:
            assert answer.status == 200
            assert json.loads(await answer.text())["shards"] == {"asr:en": {"capacity": 2}}
        async with http.get("/healthz") as answer:
            assert answer.status == 200
        async with grpc.aio.insecure_channel(running.addresses[2].target) as channel:
            check = channel.unary_unary("/grpc.health.v1.Health/Check")
            assert decode_response(await check(b"\x0a\x06asr:en", timeout=DEADLINE_S)) is Serving.SERVING
            async with CoreClient(running.addresses[0], link_options(CoreSettings()), name="edge") as client:
                stream = RemoteRecognizer(client).stream(language="en")
                stream.push(FRAME)
                await stream.final()
                running.stop.set()
                await draining(running.core)
                assert decode_response(await check(b"", timeout=DEADLINE_S)) is Serving.NOT_SERVING
                async with http.get("/readyz") as answer:
                    assert answer.status == 503
                # The turn under way goes on until it is over, and with it the core.
                assert (await stream.final()).text == "hello there"
                assert not running.task.done()
                stream.close()
                await asyncio.wait_for(running.task, DEADLINE_S)
    assert not (tmp_path / "s").exists()
    assert not (tmp_path / "u").exists()


async def draining(core: CoreServer) -> None:
    for _ in range(1000):
        if core.draining:
            return
        await asyncio.sleep(DEADLINE_S / 1000)
    pytest.fail("it does not drain")


async def test_a_drain_has_an_end(tmp_path: Path) -> None:
    async with (
        served(tmp_path, drain_s=0.05) as running,
        CoreClient(running.addresses[0], link_options(CoreSettings()), name="edge") as client,
    ):
        stream = RemoteRecognizer(client).stream(language="en")
        stream.push(FRAME)
        await stream.final()
        running.stop.set()
        await asyncio.wait_for(running.task, DEADLINE_S)
        assert running.core.streams == 1


async def test_what_cannot_be_listened_on_is_told_before_engines_load(tmp_path: Path) -> None:
    async with served(tmp_path) as running:
        for text in map(str, running.addresses):
            with pytest.raises(EnvironmentFault, match="taken"):
                await check_listening(CoreSettings(listen=(text,), metrics=""))
        with pytest.raises(EnvironmentFault, match=r"core.metrics: .* is taken by another program"):
            await check_listening(CoreSettings(listen=(f"unix:{tmp_path}/other",), metrics=running.door))
    # Nothing is left of the check itself.
    await check_listening(CoreSettings(listen=(f"unix:{tmp_path}/other",), metrics=""))
    assert not (tmp_path / "other").exists()
