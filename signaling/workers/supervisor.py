"""What `rejoinder serve --workers N` does: start the workers, open the door, serve, drain, stop."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from pathlib import Path

from agent.config import Settings
from agent.errors import EnvironmentFault
from signaling.server import Listening, announcement, serve_app, try_bind
from signaling.tokens import load_keys
from signaling.workers.fleet import Fleet
from signaling.workers.front import create_front
from signaling.workers.process import Start

__all__ = ["run_workers", "worker_settings"]

logger = logging.getLogger(__name__)


async def run_workers(settings: Settings, *, announce_json: bool, log_json: bool, log_level: str) -> None:
    """Serve with `server.workers` media processes until a signal ends it.

    Raises ConfigError and EnvironmentFault, each with what to do, and WorkerFailed when workers end as they start.
    """
    if sys.platform != "linux":
        raise EnvironmentFault("server.workers: more than one worker needs Linux; set it to 1 here")
    # Before the engines: a wrong key and a taken port are told at once.
    keys = load_keys(settings)
    await try_bind(settings.server.host, settings.server.port)

    def announce(listening: Listening) -> None:
        sys.stdout.write(announcement(listening, keys, as_json=announce_json))
        sys.stdout.flush()

    # mkdtemp makes it for this user alone, which is what guards the workers' sockets.
    with tempfile.TemporaryDirectory(prefix="rejoinder-", ignore_cleanup_errors=True) as folder:
        start = Start(worker_settings(settings), Path(folder), log_json, log_level)
        async with Fleet(start, settings.server.workers) as fleet:
            app = create_front(fleet, settings, verifier=keys.verifier)
            await serve_app(app, fleet, settings, on_listening=announce)


def worker_settings(settings: Settings) -> Settings:
    """What each worker gets: its share of the cores, and no key, since tokens are checked before it."""
    cores = len(os.sched_getaffinity(0))
    threads = settings.asr.threads or max(1, cores // settings.server.workers)
    return settings.model_copy(
        update={
            "asr": settings.asr.model_copy(update={"threads": threads}),
            "auth": settings.auth.model_copy(
                update={"secret": None, "public_key_file": None, "private_key_file": None}
            ),
            "server": settings.server.model_copy(update={"workers": 1}),
        }
    )
