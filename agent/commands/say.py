"""`rejoinder say`: text to speech from the command line."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from pathlib import Path

import numpy as np

from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import ConfigError, EngineError, EnvironmentFault
from agent.speech.chunker import Clause, ClauseChunker
from agent.speech.clips import write_wav
from agent.tts.factory import create_synthesizer
from agent.tts.protocol import Style, Voice

__all__ = ["configure", "run"]

DEADLINE_S = 600.0

MAX_TEXT_CHARS = 1_000_000
"""More on standard input is no text to be spoken at a stretch."""


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Speak a text into a WAV file, or show how it would be read."
    command.add_argument("text", nargs="?", default="-", help="the text; - or nothing reads standard input")
    command.add_argument("-o", "--out", type=Path, default=Path("out.wav"), help="WAV file (default out.wav)")
    command.add_argument("--voice")
    command.add_argument("--language", metavar="TAG", help="BCP 47 tag, such as en-GB or zh")
    command.add_argument("--rate", type=float, default=None, help="1.0 is the voice's own pace")
    command.add_argument("--dry-run", action="store_true", help="print what would be spoken and where it is cut")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Speak, or show the clauses."""
    language = args.language or settings.tts.language
    chunker = ClauseChunker(language)
    clauses = chunker.push(_text(args.text)) + chunker.flush()
    if args.dry_run:
        for clause in clauses:
            print(json.dumps(_entry(clause), ensure_ascii=False) if args.json else _line(clause))
        return 0
    rate = settings.tts.rate if args.rate is None else args.rate
    if not 0.5 <= rate <= 2.0:
        raise ConfigError(f"--rate: expected 0.5 to 2.0, got {rate:g}")
    if not args.out.parent.is_dir() or not os.access(args.out.parent, os.W_OK):
        raise EnvironmentFault(f"cannot write {args.out}: {args.out.parent} is not a folder one can write to")
    return asyncio.run(_say(args, settings, clauses, Voice(args.voice or settings.tts.voice, language), Style(rate)))


def _text(argument: str) -> str:
    """The argument itself, or standard input for `-`. Raises EnvironmentFault."""
    if argument != "-":
        return argument
    try:
        text = sys.stdin.read(MAX_TEXT_CHARS + 1)
    except UnicodeDecodeError as exc:
        raise EnvironmentFault(f"standard input: expected {exc.encoding} text, byte {exc.start} is none") from exc
    if len(text) > MAX_TEXT_CHARS:
        raise EnvironmentFault(f"standard input: expected at most {MAX_TEXT_CHARS} characters")
    return text


def _entry(clause: Clause) -> dict[str, object]:
    words = [{"text": word.text, "start": word.start, "end": word.end} for word in clause.words]
    told = {"text": clause.text, "spoken": clause.spoken, "start": clause.start, "end": clause.end}
    return {**told, "language": clause.language, "words": words}


def _line(clause: Clause) -> str:
    return f"[{clause.start}:{clause.end}] {clause.spoken or '(silent)'}"


async def _say(args: argparse.Namespace, settings: Settings, clauses: list[Clause], voice: Voice, style: Style) -> int:
    async with WorkerPool(1, name="say") as pool:
        synthesizer = await create_synthesizer(settings, pool)
        try:
            started = time.perf_counter()
            first_ms = None
            pieces = []
            async with asyncio.timeout(DEADLINE_S):
                for clause in clauses:
                    if not clause.spoken:
                        continue
                    async for speech in synthesizer.stream(clause.spoken, voice, style):
                        first_ms = first_ms or (time.perf_counter() - started) * 1000
                        pieces.append(speech.pcm)
            took_ms = (time.perf_counter() - started) * 1000
        finally:
            await synthesizer.close()
    if not pieces:
        raise EngineError("nothing in this text can be spoken")
    rate_hz = synthesizer.info.sample_rate_hz
    pcm = np.concatenate(pieces)
    try:
        write_wav(args.out, pcm, rate_hz)
    except OSError as exc:
        raise EnvironmentFault(f"cannot write {args.out}: {exc.strerror}") from exc
    report = {
        "file": str(args.out),
        "seconds": round(len(pcm) / rate_hz, 2),
        "sample_rate_hz": rate_hz,
        "first_ms": round(first_ms or 0.0, 1),
        "total_ms": round(took_ms, 1),
    }
    if args.json:
        print(json.dumps(report))
    else:
        print(f"{report['file']}: {report['seconds']} s, first sound after {report['first_ms']} ms")
    return 0
