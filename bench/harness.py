"""What a bench returns and how it is found, run and printed.

A bench is a module `bench/NAME.py` with a docstring and `run(*, quick: bool) -> Report`. Modules whose name begins with
an underscore are shared helpers.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = [
    "APART",
    "Outcome",
    "Report",
    "available",
    "describe",
    "machine",
    "print_report",
    "restore",
    "run_all",
    "run_one",
    "to_markdown",
]

FOLDER = Path(__file__).parent
NOT_BENCHES = {"harness"}
APART = {"soak"}
"""Half an hour each: run by name, never as part of `all`."""

UNITS = (
    "ms", "s", "us", "pct", "ratio", "mb", "kb", "bytes", "count", "hz", "fps", "db", "calls", "streams", "per_s",
    "wer",
)  # fmt: skip
"""A key has one of these among its words, best the last, so that a number is never read in the wrong unit; `wer` is a
word error rate in percent."""

KEY = re.compile(rf"(?=.*(^|_)({'|'.join(UNITS)})(_|$))[a-z][a-z0-9]*(_[a-z0-9]+)+")

BENCH_DEADLINE_S = 1800.0
QUICK_DEADLINE_S = 180.0
"""A quick bench is to end within 50 s on two idle cores; this is for a busy machine."""

Value = float | int | str


@dataclass(frozen=True)
class Report:
    """A bench's result: a table for people, keys for machines.

    Raises:
        ValueError: a row does not fit the columns, or a key is not snake_case with a unit.
    """

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[object, ...]]
    keys: dict[str, Value]
    notes: tuple[str, ...] = ()
    charts: tuple[str, ...] = ()
    """Files in docs/ that this run has drawn."""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"{self.title}: a row has {len(row)} cells for {len(self.columns)} columns: {row}")
        for key in self.keys:
            if not KEY.fullmatch(key):
                units = ", ".join(UNITS)
                raise ValueError(f"{self.title}: key {key!r} must be snake_case with one of these as a word: {units}")


@dataclass(frozen=True)
class Outcome:
    """One bench of `run_all`: its report, or why there is none."""

    name: str
    report: Report | None = None
    error: str = ""


def available(folder: Path = FOLDER) -> dict[str, str]:
    """Names of all benches with the first line of their docstring. Imports none of them."""
    benches: dict[str, str] = {}
    for path in sorted(folder.glob("*.py")):
        if path.stem.startswith("_") or path.stem in NOT_BENCHES:
            continue
        docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        benches[path.stem] = docstring.partition("\n")[0]
    return benches


def run_one(name: str, *, quick: bool) -> Report:
    """Import the bench and run it here."""
    report = importlib.import_module(f"bench.{name}").run(quick=quick)
    if not isinstance(report, Report):
        raise TypeError(f"bench {name}: run() must return a Report, got {type(report).__name__}")
    return report


def run_all(names: list[str], *, quick: bool, console: Console) -> list[Outcome]:
    """Run each bench in a process of its own, one after the other; a failing one does not stop the rest."""
    outcomes: list[Outcome] = []
    for name in names:
        console.print(f"[bold]{name}[/bold] ...")
        outcome = _run_apart(name, quick=quick)
        outcomes.append(outcome)
        if outcome.report is None:
            console.print(f"[red]{name} failed:[/red] {outcome.error}", highlight=False)
        else:
            print_report(outcome.report, console)
    return outcomes


def print_report(report: Report, console: Console) -> None:
    """A table, then the notes."""
    table = Table(title=report.title, title_justify="left")
    for number, column in enumerate(report.columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in report.rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)
    for note in report.notes:
        console.print(f"  {note}", highlight=False, markup=False)


def describe(report: Report) -> dict[str, Any]:
    """The report as JSON values; `Report(**...)` after `restore` gives it back."""
    return {
        "title": report.title,
        "columns": list(report.columns),
        "rows": [[_cell(value) for value in row] for row in report.rows],
        "keys": report.keys,
        "notes": list(report.notes),
        "charts": list(report.charts),
    }


def restore(values: dict[str, Any]) -> Report:
    """The report that `describe` took apart; its cells are text."""
    return Report(
        title=values["title"],
        columns=tuple(values["columns"]),
        rows=[tuple(row) for row in values["rows"]],
        keys=values["keys"],
        notes=tuple(values["notes"]),
        charts=tuple(values["charts"]),
    )


def machine() -> dict[str, str]:
    """What the numbers were measured on."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "CPU": _cpu_model(),
        "Cores": str(cores),
        "Python": platform.python_version(),
        "Date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def to_markdown(outcomes: list[Outcome], *, quick: bool) -> str:
    """The benchmarks page."""
    lines = [
        "# Benchmarks",
        "",
        f"Written by `python -m bench all{' --quick' if quick else ''} --write`. Each bench ran alone in its process.",
        "",
        *(f"- {name}: {value}" for name, value in machine().items()),
        "",
    ]
    for outcome in outcomes:
        lines += [f"## {outcome.name}", ""]
        if outcome.report is None:
            lines += [f"Failed: {outcome.error}", ""]
            continue
        report = outcome.report
        lines += [report.title, "", _row(report.columns), _row(["---"] * len(report.columns))]
        lines += [_row([_cell(value) for value in row]) for row in report.rows]
        lines += ["", *(f"- {note}" for note in report.notes), *([""] if report.notes else [])]
        for chart in report.charts:
            lines += [f"![{report.title}]({chart})", ""]
        lines += ["| key | value |", "| --- | --- |"]
        lines += [_row([f"`{key}`", _cell(value)]) for key, value in report.keys.items()]
        lines.append("")
    return "\n".join(lines)


def _run_apart(name: str, *, quick: bool) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="rejoinder-bench-") as folder:
        target = Path(folder) / "report.json"
        command = [sys.executable, "-m", "bench", name, "--report", str(target), *(["--quick"] if quick else [])]
        deadline_s = QUICK_DEADLINE_S if quick else BENCH_DEADLINE_S
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=deadline_s, cwd=FOLDER.parent, check=False
            )
        except subprocess.TimeoutExpired:
            return Outcome(name, error=f"did not end within {deadline_s:g} s")
        if done.returncode or not target.exists():
            lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
            return Outcome(name, error=lines[-1])
        return Outcome(name, report=restore(json.loads(target.read_text(encoding="utf-8"))))


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.3f}" if abs(value) < 1 else f"{value:.2f}" if abs(value) < 100 else f"{value:.0f}"
    return str(value)


def _row(cells: list[str] | tuple[str, ...]) -> str:
    return "| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |"


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor() or platform.machine()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1].strip() if match else platform.machine()
