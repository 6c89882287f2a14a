"""`rejoinder check`: run scenario files against a hook, in virtual time, and say what is not as expected."""

from __future__ import annotations

import argparse
import dataclasses
import json
from pathlib import Path
from typing import Any

from agent.config import Settings
from agent.observe import logs
from agent.testing.check import Report, run_scenario
from agent.testing.scenario import find_scenarios, read_scenario

__all__ = ["configure", "run"]


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = (
        "Run scenario files against a hook, through the whole stack with scripted engines, in virtual time. "
        "Exit code 1: an expectation was not met."
    )
    command.add_argument("paths", type=Path, nargs="+", metavar="PATH", help="scenario files, or folders of them")
    command.add_argument("--hook", metavar="TARGET", help="dialogue logic: package.module:object or ./file.py:object")
    command.add_argument("--json", action="store_true", help="print one JSON object a scenario")
    command.add_argument("-v", "--verbose", action="store_true", help="print every expectation and the transcript")
    command.set_defaults(run=run, overrides=overrides)


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Flags as settings."""
    return {} if args.hook is None else {"nlu": {"kind": "function", "target": args.hook}}


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Run all; 0 when every expectation of every scenario was met, else 1."""
    logs.configure(json=False, level="error")
    # All are read before the first is run: a mistake in the last file is told at once.
    scenarios = [read_scenario(file) for file in find_scenarios(args.paths)]
    failed = 0
    for scenario in scenarios:
        report = run_scenario(scenario, settings)
        failed += not report.passed
        if args.json:
            print(json.dumps(_plain(report), ensure_ascii=False), flush=True)
        else:
            _print(report, verbose=args.verbose)
    if not args.json:
        print(f"-- {len(scenarios) - failed} of {len(scenarios)} scenarios passed")
    return 1 if failed else 0


def _print(report: Report, *, verbose: bool) -> None:
    print(f"{'pass' if report.passed else 'FAIL'}  {report.name} ({report.file})")
    for check in report.checks:
        if verbose or not check.passed:
            mark = "ok  " if check.passed else "FAIL"
            print(f"      {mark} step {check.step:<3} {check.at_s:7.2f} s  {check.wanted}: {check.found}")
    if verbose or not report.passed:
        for line in report.transcript.splitlines():
            print(f"      | {line}")


def _plain(report: Report) -> dict[str, Any]:
    return {
        "name": report.name,
        "file": str(report.file),
        "passed": report.passed,
        "checks": [dataclasses.asdict(check) for check in report.checks],
        "transcript": report.transcript.splitlines(),
    }
