"""The events of a call as JSON Lines, each with where in the recording it lies. Pure.

The first line is the head (`"format": "rejoinder.events"`), the last one says how the recording ended
(`"event": "RecordingEnded"`). Between them is one line an event of `agent.events`: `t_ms` (place in the recording, on
the pacer's clock), `at_ms` (since the call began), `event`, and the event's fields.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from typing import Any

from agent.errors import MediaError
from agent.events import CallEvent

__all__ = ["ENDED", "FORMAT", "event_line", "line", "read_timeline"]

FORMAT = "rejoinder.events"
VERSION = 1
ENDED = "RecordingEnded"
MAX_MS = 1e15


def line(values: Mapping[str, Any]) -> bytes:
    """One line."""
    # A lone surrogate, which a hook may write, becomes the escape that JSON has for it.
    return json.dumps(values, ensure_ascii=False, default=_plain).encode("utf-8", "backslashreplace") + b"\n"


def event_line(event: CallEvent, *, t_ms: int, at_ms: float) -> bytes:
    """The line of one event."""
    fields = {field.name: getattr(event, field.name) for field in dataclasses.fields(event)}
    return line({"t_ms": t_ms, "at_ms": round(at_ms, 1), "event": type(event).__name__, **fields})


def _plain(value: object) -> object:
    return dict(value) if isinstance(value, Mapping) else str(value)


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


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and abs(value) < MAX_MS


def _rows(lines: Iterable[bytes]) -> Iterable[dict[str, Any]]:
    *whole, last = lines
    for number, text in enumerate(whole, 1):
        try:
            row = json.loads(text)
        except (ValueError, RecursionError):
            row = None
        if not isinstance(row, dict):
            raise MediaError(f"events: line {number} is no JSON object")
        for name, value in row.items():
            if name.endswith("_ms") and value is not None and not _is_number(value):
                raise MediaError(f"events: line {number}: {name} is no number")
        yield row
    if last:
        try:
            row = json.loads(last)
        except (ValueError, RecursionError):
            return
        if isinstance(row, dict):
            yield row
