"""Structured logs: JSON lines for machines, readable text for a terminal. Numbers and names, never words or audio.

A message is a fixed phrase; what varies goes into `extra` as short values. An exception is logged as its type and where
it was raised. Its text is kept only when it is one of ours (written to be read by operators), since a foreign
exception's text may quote what a caller said.
"""

from __future__ import annotations

import datetime
import json as jsonlib
import logging
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from types import TracebackType
from typing import Any, TextIO

from agent.errors import RejoinderError

__all__ = ["CallLogger", "JsonFormatter", "TextFormatter", "call_logger", "configure"]

MAX_VALUE_CHARS = 200
"""A longer value is data, not a fact about a call; it is cut."""

MAX_FRAMES = 12

MAX_ALIKE_PER_S = 50
"""Warnings and errors of one wording. An event loop that is out of descriptors says so 128 times a second, and a full
disk helps nobody."""

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName", "color_message"}

CallLogger = logging.LoggerAdapter[logging.Logger]


class _CallAdapter(CallLogger):
    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


def call_logger(call_id: str, name: str = "agent.call") -> CallLogger:
    """A logger whose every line carries the call's id."""
    return _CallAdapter(logging.getLogger(name), {"call_id": call_id})


def _plain(value: object) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    text = str(value)
    return text if len(text) <= MAX_VALUE_CHARS else text[:MAX_VALUE_CHARS] + "..."


def _extras(record: logging.LogRecord) -> dict[str, bool | int | float | str | None]:
    return {key: _plain(value) for key, value in vars(record).items() if key not in _STANDARD}


def _failure(error: BaseException, trace: TracebackType | None) -> dict[str, Any]:
    frames = traceback.extract_tb(trace)[-MAX_FRAMES:]
    out: dict[str, Any] = {
        "type": type(error).__name__,
        "at": [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames],
    }
    if isinstance(error, RejoinderError | OSError):
        out["text"] = _plain(error)
    if error.__cause__ is not None:
        out["cause"] = type(error.__cause__).__name__
    return out


class _Formatter(logging.Formatter):
    def facts(self, record: logging.LogRecord) -> tuple[Mapping[str, Any], dict[str, Any] | None]:
        failure = None
        if record.exc_info and record.exc_info[1] is not None:
            failure = _failure(record.exc_info[1], record.exc_info[2])
        return _extras(record), failure


class JsonFormatter(_Formatter):
    """One JSON object a line: ts (RFC 3339, UTC), level, logger, message, then the extras, then `exception`."""

    def format(self, record: logging.LogRecord) -> str:
        extras, failure = self.facts(record)
        when = datetime.datetime.fromtimestamp(record.created, datetime.UTC)
        line: dict[str, Any] = {
            "ts": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in extras.items():
            line.setdefault(key, value)
        if failure is not None:
            line["exception"] = failure
        return jsonlib.dumps(line, ensure_ascii=False, default=str)


class TextFormatter(_Formatter):
    """`12:00:01.123 info  agent.call  message  key=value`; control characters are escaped, so a line stays a line."""

    def format(self, record: logging.LogRecord) -> str:
        extras, failure = self.facts(record)
        when = datetime.datetime.fromtimestamp(record.created).astimezone()
        parts = [
            when.strftime("%H:%M:%S.") + f"{when.microsecond // 1000:03d}",
            f"{record.levelname.lower():7}",
            record.name,
            _one_line(record.getMessage()),
            *(f"{key}={_one_line(str(value))}" for key, value in extras.items()),
        ]
        text = "  ".join(parts)
        if failure is not None:
            detail = f": {_one_line(str(failure['text']))}" if failure.get("text") else ""
            text += f"\n    {failure['type']}{detail}"
            text += "".join(f"\n      {place}" for place in failure["at"])
        return text


class _Flood(logging.Filter):
    """Lets `MAX_ALIKE_PER_S` warnings or errors of one wording through; the next one says how many were left out."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self._second = clock()
        self._seen: Counter[tuple[str, str]] = Counter()
        self._left_out: Counter[tuple[str, str]] = Counter()

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.WARNING:
            return True
        now = self._clock()
        if now - self._second >= 1.0:
            self._second = now
            self._left_out = Counter(
                {alike: number - MAX_ALIKE_PER_S for alike, number in self._seen.items() if number > MAX_ALIKE_PER_S}
            )
            self._seen.clear()
        alike = (record.name, str(record.msg))
        self._seen[alike] += 1
        if left_out := self._left_out.pop(alike, 0):
            record.left_out = left_out
        return self._seen[alike] <= MAX_ALIKE_PER_S


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def configure(
    json: bool | None = None,
    level: str = "info",
    *,
    stream: TextIO | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Send all logs to `stream` (stderr by default) in one form; replaces what was configured before.

    Args:
        json: JSON lines (True), text (False), or text on a terminal and JSON elsewhere (None).
        level: debug, info, warning, error or critical.
        clock: seconds, monotonic; by it a message that floods is thinned out.

    Raises:
        ValueError: the level is unknown.
    """
    number = logging.getLevelNamesMapping().get(level.upper())
    if number is None:
        raise ValueError(f"log level: expected debug, info, warning, error or critical, got {level!r}")
    out = stream if stream is not None else sys.stderr
    as_json = json if json is not None else not out.isatty()
    handler = logging.StreamHandler(out)
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    handler.addFilter(_Flood(clock))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(number)
    # These libraries log whole SDP bodies and packets at debug and info.
    for noisy in ("aiortc", "aioice", "aiohttp.access", "asyncio"):
        logging.getLogger(noisy).setLevel(max(number, logging.WARNING))
