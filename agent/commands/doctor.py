"""`rejoinder doctor`: is this machine fit to run the agent?"""

from __future__ import annotations

import argparse
import ctypes.util
import json
import os
import platform
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Literal

from agent import models
from agent.config import Settings
from agent.errors import RejoinderError
from agent.media.opus import Decoder

__all__ = ["configure", "run"]

MIN_FREE_MB = 500


@dataclass(frozen=True, slots=True)
class Check:
    """One finding. `fix` says what to do about anything but `ok`."""

    name: str
    state: Literal["ok", "note", "fail"]
    found: str
    fix: str = ""


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Check what the agent needs."
    command.add_argument("--testing", action="store_true", help="check what the tests need too")
    command.add_argument("--turn", action="store_true", help="only prove that calls can go through the relay")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Print all findings; 0 when nothing has failed, else 2."""
    checks = list(_relay(settings) if args.turn else _checks(settings, testing=args.testing))
    if args.json:
        print(json.dumps([asdict(check) for check in checks]))
    else:
        for check in checks:
            mark = {"ok": "ok  ", "note": "note", "fail": "FAIL"}[check.state]
            print(f"{mark}  {check.name}: {check.found}" + (f"  ->  {check.fix}" if check.fix else ""))
    return 2 if any(check.state == "fail" for check in checks) else 0


def _checks(settings: Settings, *, testing: bool) -> Iterator[Check]:
    version = platform.python_version()
    if sys.version_info >= (3, 11):
        yield Check("Python", "ok", version)
    else:
        yield Check("Python", "fail", version, "install Python 3.11 or newer")
    cores = os.cpu_count() or 1
    yield Check("CPU", "ok" if cores >= 2 else "note", f"{cores} cores", "" if cores >= 2 else "two are advised")
    yield _port(settings)
    yield _opus()
    yield _cache(settings)
    for status in models.status(settings.models):
        if status.installed:
            yield Check(f"model {status.name}", "ok", status.purpose)
        else:
            state: Literal["note", "fail"] = "fail" if status.set == "en" else "note"
            yield Check(
                f"model {status.name}", state, status.problem or "absent", f"rejoinder models fetch {status.set}"
            )
    fallback = next((name for name in ("espeak-ng", "flite") if shutil.which(name)), None)
    if fallback:
        yield Check("last-resort voice", "ok", fallback)
    else:
        yield Check("last-resort voice", "note", "none", "apt-get install espeak-ng")
    if settings.auth.secret is None and settings.auth.public_key_file is None:
        yield Check("token key", "note", "a development key is made at start", "set REJOINDER_AUTH__SECRET")
    else:
        yield Check("token key", "ok", settings.auth.algorithm)
    if testing:
        for program in ("chromium", "espeak-ng", "flite", "turnserver"):
            found = shutil.which(program)
            yield Check(program, "ok" if found else "fail", found or "absent", "" if found else "make peers")


def _relay(settings: Settings) -> Iterator[Check]:
    # Imported here: turn stands above agent, and the other checks do not need it.
    from turn.doctor import check_relays

    urls = list(check_relays(settings))
    if not urls:
        fix = 'set turn.urls, for example ["turn:relay.example.org:3478?transport=udp"], and REJOINDER_TURN__SECRET'
        yield Check("relay", "fail", "callers are told of none", fix)
    for url, finding in urls:
        state: Literal["ok", "fail"] = "ok" if finding.works else "fail"
        yield Check(f"{finding.transport} {url}", state, finding.found, finding.fix)


def _port(settings: Settings) -> Check:
    where = f"{settings.server.host}:{settings.server.port}"
    try:
        info = socket.getaddrinfo(settings.server.host, settings.server.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(info[0], info[1]) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(info[4])
    except OSError as exc:
        return Check("port", "fail", f"{where}: {exc.strerror or exc}", "choose another: rejoinder serve --port 8081")
    return Check("port", "ok", f"{where} is free")


def _opus() -> Check:
    try:
        Decoder().close()
        return Check("Opus", "ok", "libopus loads")
    except (RejoinderError, OSError) as exc:
        system = ctypes.util.find_library("opus")
        return Check("Opus", "fail", str(exc), "" if system else "apt-get install libopus0")


def _cache(settings: Settings) -> Check:
    folder = settings.models.cache_dir
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        fix = "choose another: REJOINDER_MODELS__CACHE_DIR"
        return Check("cache folder", "fail", f"{folder}: cannot write", fix)
    free_mb = shutil.disk_usage(existing).free // 1_000_000
    if free_mb < MIN_FREE_MB:
        return Check("cache folder", "note", f"{folder}: {free_mb} MB free", f"models need {MIN_FREE_MB} MB")
    return Check("cache folder", "ok", f"{folder}, {free_mb} MB free")
