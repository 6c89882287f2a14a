"""`rejoinder core`: hold engines for the processes that hold calls."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
from collections.abc import Sequence
from typing import Any

from prometheus_client.process_collector import ProcessCollector

from agent.config import Settings
from agent.core.address import CoreAddress
from agent.core.coremetrics import CoreMetrics
from agent.core.hosted import check_listening, open_core, serve_core
from agent.media.priority import favour_media_thread
from agent.observe import logs

__all__ = ["configure", "overrides", "run"]

log = logging.getLogger(__name__)


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Hold speech engines for processes that run `rejoinder serve` with core.url."
    command.add_argument(
        "--shard", action="append", metavar="SHARD", help="what to serve: asr:LANGUAGE or tts:VOICE (repeatable)"
    )
    command.add_argument(
        "--listen", action="append", metavar="ADDRESS", help="shm:/PATH, unix:/PATH or tcp://HOST:PORT (repeatable)"
    )
    command.add_argument("--metrics", metavar="HOST:PORT", help="where /metrics is served; empty for nowhere")
    command.add_argument("--log-json", action="store_true", help="log JSON lines")
    command.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    command.add_argument("--json", action="store_true", help="print the addresses as one JSON object")
    command.set_defaults(run=run, overrides=overrides)


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Flags as settings."""
    values: dict[str, Any] = {}
    if args.shard:
        values["shards"] = args.shard
    if args.listen:
        values["listen"] = args.listen
    if args.metrics is not None:
        values["metrics"] = args.metrics
    return {"core": values}


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until a signal ends it."""
    logs.configure(json=args.log_json, level=args.log_level)
    asyncio.run(_run(settings, as_json=args.json))
    return 0


async def _run(settings: Settings, *, as_json: bool) -> None:
    # Imported here: signaling stands above agent.
    from signaling.server import stop_signals

    def announce(addresses: Sequence[CoreAddress], metrics: str) -> None:
        told = [str(address) for address in addresses]
        if as_json:
            print(json.dumps({"listen": told, "metrics": metrics}), flush=True)
            return
        for address in told:
            print(f"Rejoinder core listens on {address}", flush=True)
        if metrics:
            print(f"Metrics: http://{metrics}/metrics", flush=True)

    stop, hurry = asyncio.Event(), asyncio.Event()
    with stop_signals(stop, hurry):
        await check_listening(settings.core)
        metrics = CoreMetrics()
        ProcessCollector(registry=metrics.registry)
        async with open_core(settings, metrics) as core:
            gc.collect()
            gc.freeze()
            if settings.media.priority == "auto":
                # Frames wait for this thread as they do for the media thread of an edge.
                log.info("link thread", extra={"priority": favour_media_thread()})
            await serve_core(core, settings.core, stop=stop, hurry=hurry, on_listening=announce)
