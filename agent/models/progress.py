"""How a fetch tells a person what it is doing: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Protocol, Self, TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeElapsedColumn, TransferSpeedColumn
from rich.progress import Progress as RichBars

__all__ = ["BarProgress", "LineProgress", "NoProgress", "Progress", "console_progress"]


class Progress(Protocol):
    """What a fetch reports. All calls come from the thread that fetches."""

    def step(self, text: str, total_bytes: int | None = None) -> None:
        """A new step begins, and the one before is over; `total_bytes` is None when it cannot be measured."""

    def at(self, done_bytes: int) -> None:
        """So many bytes of the current step are done."""

    def note(self, text: str) -> None:
        """A line worth keeping; the current step is over."""


class NoProgress:
    """Says nothing."""

    def step(self, text: str, total_bytes: int | None = None) -> None:
        """Ignored."""

    def at(self, done_bytes: int) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""


class LineProgress:
    """One line a step and at each quarter of it; for logs, pipes and `--json` (the lines go to stderr)."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._text = ""
        self._total: int | None = None
        self._quarter = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stream.flush()

    def step(self, text: str, total_bytes: int | None = None) -> None:
        """Print the step."""
        self._text, self._total, self._quarter = text, total_bytes, 0
        size = "" if total_bytes is None else f" ({total_bytes / 1e6:.1f} MB)"
        self._print(f"{text}{size}")

    def at(self, done_bytes: int) -> None:
        """Print when another quarter is done."""
        if not self._total:
            return
        quarter = min(3, 4 * done_bytes // self._total)
        if quarter > self._quarter:
            self._quarter = quarter
            self._print(f"{self._text}: {25 * quarter} %")

    def note(self, text: str) -> None:
        """Print the line."""
        self._print(text)

    def _print(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()


class BarProgress:
    """A bar for the current step; finished notes scroll above it."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._bars = RichBars(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeElapsedColumn(),
            console=Console(file=stream or sys.stderr),
            transient=True,
        )
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None) -> None:
        self._bars.stop()

    def step(self, text: str, total_bytes: int | None = None) -> None:
        """Show a fresh bar; one without an end when the size is unknown."""
        self._clear()
        self._task = self._bars.add_task(text, total=total_bytes)

    def at(self, done_bytes: int) -> None:
        """Move the bar."""
        if self._task is not None:
            self._bars.update(self._task, completed=done_bytes)

    def note(self, text: str) -> None:
        """Leave the line above the bar."""
        self._clear()
        self._bars.console.print(text, markup=False, highlight=False)

    def _clear(self) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None


def console_progress(*, plain: bool = False, stream: TextIO | None = None) -> BarProgress | LineProgress:
    """The progress fit for this console, as a context manager.

    Args:
        plain: lines even on a terminal (`--json`).
        stream: where to write; stderr by default, so that stdout stays for results.
    """
    out = stream or sys.stderr
    return LineProgress(out) if plain or not out.isatty() else BarProgress(out)
