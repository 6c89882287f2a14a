"""`rejoinder serve`: take calls."""

from __future__ import annotations

import argparse
import asyncio
from typing import Any

from agent.config import Settings
from agent.observe import logs

__all__ = ["configure", "overrides", "run"]


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Start the agent and take calls."
    command.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    command.add_argument("--port", type=int, help="port to listen on (default 8080; 0 takes a free one)")
    command.add_argument("--hook", metavar="TARGET", help="dialogue logic: package.module:object or ./file.py:object")
    command.add_argument("--workers", type=int, help="media processes (default 1: one process does all)")
    command.add_argument("--log-json", action="store_true", help="log JSON lines")
    command.add_argument("--log-level", default="info", choices=("debug", "info", "warning", "error"))
    command.add_argument("--json", action="store_true", help="print address and token as one JSON object")
    command.set_defaults(run=run, overrides=overrides)


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Flags as settings."""
    values: dict[str, Any] = {"server": {}}
    if args.host is not None:
        values["server"]["host"] = args.host
    if args.port is not None:
        values["server"]["port"] = args.port
    if args.workers is not None:
        values["server"]["workers"] = args.workers
    if args.hook is not None:
        values["nlu"] = {"kind": "function", "target": args.hook}
    return values


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Serve until a signal ends it."""
    # Imported here: signaling stands above agent, and other commands do not need it.
    logs.configure(json=args.log_json, level=args.log_level)
    if settings.server.workers > 1:
        from signaling.workers.supervisor import run_workers

        asyncio.run(run_workers(settings, announce_json=args.json, log_json=args.log_json, log_level=args.log_level))
        return 0

    from signaling.server import run_server

    asyncio.run(run_server(settings, announce_json=args.json))
    return 0
