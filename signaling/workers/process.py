"""One life of one worker: spawn, settings, ready, until it has ended. What its messages mean is `fleet`'s."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from agent.config import Settings
from signaling.workers.channel import Channel, ChannelBroken, channel_pair

__all__ = ["Incarnation", "Start", "resident_bytes"]

KILLED_WAIT_S = 5.0
"""From SIGKILL to the kernel's word that the process is gone."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Start:
    """What every worker is told first; the same for all but the number."""

    settings: Settings
    folder: Path
    """Where workers' sockets lie; only this user can enter it."""
    log_json: bool
    log_level: str

    def message(self, number: int) -> dict[str, Any]:
        """As JSON values. Secrets are in the clear: they go through a socket that nobody else holds."""
        return {
            "settings": json.loads(json.dumps(self.settings.model_dump(), default=_plain)),
            "socket": str(self.socket_path(number)),
            "log_json": self.log_json,
            "log_level": self.log_level,
        }

    def socket_path(self, number: int) -> Path:
        """Where that worker takes HTTP requests."""
        return self.folder / f"{number}.sock"


def _plain(value: object) -> object:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, Path):
        return str(value)
    raise TypeError(f"a setting of type {type(value).__name__} has no JSON form")


class Incarnation:
    """A running worker process. `channel` is open until it ends; make one with `spawn`."""

    def __init__(self, process: asyncio.subprocess.Process, channel: Channel) -> None:
        self.channel = channel
        self._process = process

    @classmethod
    async def spawn(
        cls, number: int, start: Start, on_message: Callable[[dict[str, Any], int | None], None]
    ) -> Incarnation:
        """Start the process and tell it its settings. Raises OSError when the system has no more processes."""
        ours, theirs = channel_pair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "signaling.workers.worker", str(number), str(theirs.fileno())),
                    stdin=asyncio.subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    env=_environment(os.environ),
                    # A group of its own: Ctrl-C is for the supervisor, which ends its workers after their calls.
                    process_group=0,
                )
        except BaseException:
            ours.close()
            raise
        channel = Channel(ours, on_message, lambda: None)
        channel.start()
        with contextlib.suppress(ChannelBroken):
            # It may have ended at once; then its exit code says more.
            channel.send(start.message(number))
        return cls(process, channel)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> int:
        """Wait for its end; returns the exit code, negative for a signal."""
        return await self._process.wait()

    def kill(self) -> None:
        """SIGKILL; its calls go with it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close(self) -> None:
        """End it if it still runs, and let go of the line."""
        self.channel.close()
        if self._process.returncode is None:
            self.kill()
            try:
                async with asyncio.timeout(KILLED_WAIT_S):
                    await self._process.wait()
            except TimeoutError:
                logger.exception("a killed worker is still there", extra={"pid": self.pid})


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    # The same modules as here, whichever way this program was started.
    return {**environment, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def resident_bytes(pid: int) -> int:
    """Resident memory of a process (proc(5), statm), shared pages and all; 0 when it is gone."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0
