"""What was predicted in recent calls, why, and whether it was used: for `rejoinder cache explain CALL`.

Holds the agent's own phrases only, as templates; private ones as hashes. Blocking: for the disk's thread.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from agent.errors import EnvironmentFault

__all__ = ["Foreseen", "Journal", "TurnRecord", "veiled"]

MAX_CALLS = 200
"""Calls kept; about 300 bytes a turn."""

MAX_CALL_BYTES = 256 * 1024
_SECRET = secrets.token_bytes(32)
_SAFE = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Foreseen:
    """One prediction."""

    opening: str
    probability: float
    why: str
    ready: bool
    """It was in memory when the agent began to speak."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """One reply of a call."""

    number: int
    state: str
    last_clause: str
    opening: str
    """What the agent really began with."""
    predicted: Sequence[Foreseen] = field(default=())
    used: bool = False
    """The opening was among the predictions, and ready."""
    ready: bool = False
    """The opening was in memory, predicted or not."""
    partials: int = 0
    """How many partial transcripts moved the predictions."""


class Journal:
    """A folder with one file a call, a line a turn. Raises OSError from its methods but for `read`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, call: str, record: TurnRecord) -> None:
        """Write one turn down."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = self._path(call)
        new = not path.exists()
        line = json.dumps(asdict(record), ensure_ascii=False) + "\n"
        if not new and path.stat().st_size + len(line) > MAX_CALL_BYTES:
            return
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # One write, so that a process killed here leaves whole lines.
            os.write(file, line.encode(errors="replace"))
        finally:
            os.close(file)
        if new:
            self._trim()

    def read(self, call: str) -> list[TurnRecord]:
        """The turns of a call. Raises EnvironmentFault if nothing is known of it."""
        try:
            lines = self._path(call).read_text(encoding="utf-8").splitlines()
        except OSError as exc:
            known = ", ".join(self.calls()[:5]) or "none"
            raise EnvironmentFault(f"nothing is known of call {call!r}; the latest calls: {known}") from exc
        records = []
        for line in lines:
            with contextlib.suppress(ValueError, TypeError):
                values = json.loads(line)
                values["predicted"] = [Foreseen(**each) for each in values["predicted"]]
                records.append(TurnRecord(**values))
        return records

    def calls(self) -> list[str]:
        """Calls that are known, the latest first."""
        with contextlib.suppress(OSError):
            paths = sorted(self._folder.glob("*.jsonl"), key=lambda path: path.stat().st_mtime, reverse=True)
            return [path.stem for path in paths]
        return []

    def clear(self) -> None:
        """Forget all calls."""
        for path in self._folder.glob("*.jsonl"):
            path.unlink(missing_ok=True)

    def _trim(self) -> None:
        for call in self.calls()[MAX_CALLS:]:
            self._path(call).unlink(missing_ok=True)

    def _path(self, call: str) -> Path:
        name = call if _SAFE.fullmatch(call) else hashlib.blake2b(call.encode(), digest_size=16).hexdigest()
        return self._folder / f"{name}.jsonl"


def veiled(text: str, private: bool) -> str:
    """The text, or a short hash of it that tells two texts of a call apart, and with this process's secret no more."""
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=6, key=_SECRET)
    return f"#{digest.hexdigest()}" if private else text
