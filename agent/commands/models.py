"""`rejoinder models`: what is installed, what can be added, and fetching it."""

from __future__ import annotations

import argparse
import dataclasses
import json

from rich.console import Console
from rich.table import Table

from agent import models
from agent.config import Settings

__all__ = ["configure", "run"]


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Speech models."
    command.add_argument("action", nargs="?", default="list", choices=("list", "fetch", "verify"))
    command.add_argument("sets", nargs="*", help="sets to fetch (default: en); see `rejoinder models`")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """List, fetch or verify; 1 when an installed model turns out to be damaged."""
    if args.action == "fetch":
        with models.console_progress(plain=args.json) as progress:
            models.fetch(args.sets or ["en"], settings.models, progress=progress)
    verified = args.action == "verify"
    statuses = models.verify(settings.models) if verified else models.status(settings.models)
    if args.json:
        print(json.dumps([dataclasses.asdict(status) for status in statuses], default=str))
    elif args.action != "fetch":
        _show(statuses)
    return 1 if verified and any(status.installed and status.problem for status in statuses) else 0


def _show(statuses: list[models.ModelStatus]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("model", "set", "purpose", "licence", "MB", "state"):
        table.add_column(column, overflow="fold")
    for status in statuses:
        size_mb = f"{(status.size_bytes or status.download_bytes) / 1e6:.0f}"
        table.add_row(status.name, status.set, status.purpose, status.licence, size_mb, _state(status))
    Console().print(table)


def _state(status: models.ModelStatus) -> str:
    if status.installed:
        return "in package" if status.in_package else "installed"
    return status.problem or f"rejoinder models fetch {status.set}"
