"""The events of a call as JSON Lines, each with where in the recording it lies. Pure.

The first line is the head (`"format": "rejoinder.events"`), the last one says how the recording ended
(`"event": "RecordingEnded"`). Between them is one line an event of `agent.events`: `t_ms` (place in the recording, on
the pacer's clock), `at_ms` (since the call began), `event`, and the event's fields.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping
from typing import Any

from agent.errors import MediaError
from agent.events import CallEvent

__all__ = ["ENDED", "FORMAT", "event_line", "line", "read_timeline"]

FORMAT = "rejoinder.events"
VERSION = 1
ENDED = "RecordingEnded"


def line(values: Mapping[str, Any]) -> bytes:
    """One line."""
    return json.dumps(values, ensure_ascii=False, default=str).encode() + b"\n"


def event_line(event: CallEvent, *, t_ms: int, at_ms: float) -> bytes:
    """The line of one event."""
    return line({"t_ms": t_ms, "at_ms": round(at_ms, 1), "event": type(event).__name__, **dataclasses.asdict(event)})


def read_timeline(data: bytes) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The head and the events; a last line that was cut off is left out.

    Raises MediaError on what is no such file.
    """
    rows = list(_rows(data.split(b"\n")))
    if not rows or rows[0].get("format") != FORMAT:
        raise MediaError("not the events of a recorded call")
    if rows[0].get("version") != VERSION:
        raise MediaError(f"events of version {rows[0].get('version')}, {VERSION} expected")
    return rows[0], rows[1:]


def _rows(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    *whole, last = lines
    for number, text in enumerate(whole, 1):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise MediaError(f"events: line {number} is no JSON object")
        yield row
    if last:
        try:
            row = json.loads(last)
        except (ValueError, RecursionError):
            return
        if isinstance(row, dict):
            yield row
