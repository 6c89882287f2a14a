"""`rejoinder`: the command line.

Exit codes: 0 done, 1 it was tried and failed, 2 the request or the environment is wrong (one line says what to do).
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path

# numpy's BLAS would start a thread a core for matrices far too small to gain from it.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

from agent import __version__
from agent.config import load_settings
from agent.errors import ConfigError, EnvironmentFault, RejoinderError

__all__ = ["main"]

COMMANDS = {
    "serve": "take calls",
    "core": "hold speech engines for other processes",
    "token": "mint a token for a client",
    "models": "list or fetch speech models",
    "say": "speak a text into a file",
    "listen": "transcribe a WAV file",
    "console": "talk with the agent by typing",
    "replay": "run a recorded call again",
    "cache": "look into the voice cache, fill it, empty it",
    "check": "run scenario files against your hook",
    "turn": "run a relay for callers behind firewalls",
    "doctor": "check this machine",
}


def main(argv: Sequence[str] | None = None) -> None:
    """Run one command and exit with its code."""
    sys.exit(run(argv))


def run(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code. Every expected failure is one line on standard error."""
    argv = sys.argv[1:] if argv is None else argv
    args = parser(argv).parse_args(argv)
    try:
        settings = load_settings(args.config, args.overrides(args) if hasattr(args, "overrides") else None)
        code: int = args.run(args, settings)
        return code
    except (ConfigError, EnvironmentFault) as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 2
    except RejoinderError as exc:
        print(f"error: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader of our output went away (`rejoinder models | head`): nothing is left to tell it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    """The command line, with the options of the one command that `argv` names."""
    top = argparse.ArgumentParser(prog="rejoinder", description="A real-time voice agent you can call.")
    top.add_argument("--version", action="version", version=f"rejoinder {__version__}")
    top.add_argument("--config", type=Path, metavar="FILE", help="settings file (default: ./rejoinder.toml)")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, summary in COMMANDS.items():
        command = commands.add_parser(name, help=summary)
        if name in argv:
            importlib.import_module(f"agent.commands.{name}").configure(command)
    return top
