"""`python -m bench NAME [--json] [--quick]`, `python -m bench all [--write FILE]`, `python -m bench --list`.

Exit codes: 0 done, 1 a bench failed, 2 no such bench or wrong arguments.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from agent.errors import RejoinderError
from bench.harness import APART, available, describe, print_report, run_all, run_one, to_markdown


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure Rejoinder.")
    parser.add_argument("name", nargs="?", help="a bench, or `all`")
    parser.add_argument("--list", action="store_true", help="name the benches and stop")
    parser.add_argument("--json", action="store_true", help="print the keys as one flat JSON object on the last line")
    parser.add_argument("--quick", action="store_true", help="less data; ends within 50 s on two cores")
    parser.add_argument("--write", type=Path, metavar="FILE", help="with `all`: write the results as Markdown")
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else 120)
    benches = available()
    if options.list:
        for name, purpose in benches.items():
            console.print(f"{name:16} {purpose}", highlight=False)
        return 0
    if options.write is not None and options.name != "all":
        return _usage("--write goes with `all`")
    if options.name == "all":
        return _all([name for name in benches if name not in APART], options, console)
    if options.name not in benches:
        what = f"no bench {options.name!r}" if options.name else "which bench?"
        return _usage(f"{what}; there are: {', '.join([*benches, 'all'])}")
    try:
        report = run_one(options.name, quick=options.quick)
    except RejoinderError as exc:
        print(f"bench {options.name}: {exc}", file=sys.stderr)
        return 1
    if options.report is not None:
        options.report.write_text(json.dumps(describe(report)), encoding="utf-8")
    print_report(report, console)
    if options.json:
        print(json.dumps(report.keys))
    return 0


def _all(names: list[str], options: argparse.Namespace, console: Console) -> int:
    outcomes = run_all(names, quick=options.quick, console=console)
    if options.write is not None:
        options.write.parent.mkdir(parents=True, exist_ok=True)
        options.write.write_text(to_markdown(outcomes, quick=options.quick), encoding="utf-8")
        console.print(f"wrote {options.write}", highlight=False)
    failed = [outcome for outcome in outcomes if outcome.report is None]
    for outcome in failed:
        print(f"bench {outcome.name} failed: {outcome.error}", file=sys.stderr)
    if options.json:
        keys = {
            f"{outcome.name}_{key}": value
            for outcome in outcomes
            if outcome.report is not None
            for key, value in outcome.report.keys.items()
        }
        print(json.dumps(keys))
    return 1 if failed else 0


def _usage(message: str) -> int:
    print(f"python -m bench: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
