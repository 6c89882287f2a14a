"""`rejoinder replay`: run a recorded call again and say what would have happened."""

from __future__ import annotations

import argparse
import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agent.config import Settings
from agent.errors import ConfigError, MediaError, ProtocolError
from agent.observe import logs
from agent.replay.engines import ComputeModel
from agent.replay.run import replay
from agent.replay.source import export, load
from agent.replay.story import Difference, Entry, differences, tell

__all__ = ["configure", "run"]

MAX_COMPUTE_MS = 60_000.0


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = (
        "Feed a recorded call's packets through the whole stack again, offline, with the settings and the hook of now, "
        "and print what would have happened and where that differs from what did."
    )
    command.add_argument("file", type=Path, help="a recorded call: any of its files, or their name without ending")
    command.add_argument("--hook", metavar="TARGET", help="dialogue logic: package.module:object or ./file.py:object")
    command.add_argument("--json", action="store_true", help="print one JSON object")
    command.add_argument(
        "--partial", action="store_true", help="replay a recording that was cut short, as far as it is"
    )
    command.add_argument("--export", type=Path, metavar="FOLDER", help="only decrypt the files into a folder")
    for flag, what in (("asr", "a final reading"), ("hook", "the hook's first piece"), ("voice", "a clause's voice")):
        command.add_argument(f"--{flag}-ms", type=_ms, default=0.0, metavar="MS", help=f"let {what} take this long")
    command.set_defaults(run=run, overrides=overrides)


def overrides(args: argparse.Namespace) -> dict[str, Any]:
    """Flags as settings."""
    return {} if args.hook is None else {"nlu": {"kind": "function", "target": args.hook}}


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Replay or export."""
    logs.configure(json=False, level="error")
    if args.export is not None:
        for path in export(args.file, settings.recording, args.export):
            print(path)
        return 0
    recorded = load(args.file, settings.recording, partial=args.partial)
    model = ComputeModel(args.asr_ms / 1000, args.hook_ms / 1000, args.voice_ms / 1000)
    try:
        replayed = tell(replay(recorded.log, settings, model=model))
    except MediaError as exc:
        raise ConfigError(f"{args.file}: {exc}") from exc
    except ProtocolError as exc:
        # A language that this server's recogniser does not know, for one.
        raise ConfigError(f"{args.file}: {exc.field}: {exc}") from exc
    happened = None if recorded.events is None else tell(recorded.events)
    found = [] if happened is None else differences(happened, replayed)
    if args.json:
        report = {
            "call": recorded.log.head.get("call"),
            "replayed": [dataclasses.asdict(entry) for entry in replayed],
            "recorded": None if happened is None else [dataclasses.asdict(entry) for entry in happened],
            "differences": [dataclasses.asdict(difference) for difference in found],
        }
        # A lone surrogate, which a hook may write, becomes the escape that JSON has for it.
        print(json.dumps(report, ensure_ascii=False).encode("utf-8", "backslashreplace").decode())
    else:
        for entry in replayed:
            print(_line(entry))
        _compare(found, known=happened is not None)
    return 0


def _compare(found: Sequence[Difference], *, known: bool) -> None:
    if not known:
        print("-- nothing to compare with: the file of events is not there")
    elif not found:
        print("-- as it happened")
    for difference in found:
        print(f"-- {difference.what}")
        for name, entry in (("was", difference.recorded), ("is ", difference.replayed)):
            if entry is not None:
                print(f"   {name} {_line(entry)}")


def _line(entry: Entry) -> str:
    text = f"{entry.t_ms / 1000:8.2f} s  {entry.who:<8} {' '.join(entry.text.split())}"
    if entry.unheard:
        text += f" [not heard: {' '.join(entry.unheard.split())}]"
    if entry.status and entry.status != "completed":
        text += f" ({entry.status})"
    if entry.response_ms is not None:
        text += f" (after {entry.response_ms:.0f} ms)"
    # What a caller typed or a hook wrote: a terminal would obey control characters, and cannot show lone surrogates.
    return "".join(char if char.isprintable() else "\ufffd" for char in text)


def _ms(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= MAX_COMPUTE_MS:
        raise argparse.ArgumentTypeError(f"expected 0 to {MAX_COMPUTE_MS:.0f} milliseconds, got {text!r}")
    return value
