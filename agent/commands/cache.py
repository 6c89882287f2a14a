"""`rejoinder cache`: what the voice cache holds, filling, moving and emptying it, and why it made what it made."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import ConfigError, EngineError, EnvironmentFault
from agent.observe.metrics import Metrics
from agent.speech.chunker import ClauseChunker
from agent.tts.factory import create_synthesizer
from agent.tts.protocol import Style, Voice
from agent.voicecache.cache import VoiceCache, cache_folder, open_tiers, speech_folder
from agent.voicecache.disk import DiskTier
from agent.voicecache.format import HEADER_BYTES, Unreadable, body_size, dump, load
from agent.voicecache.journal import Journal
from agent.voicecache.learned import read_learned, restore_learned
from agent.voicecache.learning import journal_folder, learned_file
from agent.voicecache.predictor import Predictor
from agent.voicecache.voices import VoicePredictor

__all__ = ["configure", "run"]

MAX_TEXT_BYTES = 10_000_000
ACTIONS = {
    "stats": "what is kept, and what was learned",
    "warm": "make the speech of a text file's lines, so that it is there from the first call on",
    "export": "write all speech on disk into one file",
    "import": "take speech from such a file",
    "clear": "remove all speech, and what was learned",
    "explain": "what was predicted in a call, why, and whether it was used",
}


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the actions and their options."""
    command.description = "The voice cache (docs/voice-cache.md)."
    actions = command.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    for name, summary in ACTIONS.items():
        action = actions.add_parser(name, help=summary, description=summary.capitalize() + ".")
        if name in ("warm", "export", "import"):
            action.add_argument("file", type=Path)
        if name == "warm":
            action.add_argument("--voice")
            action.add_argument("--language", metavar="TAG", help="BCP 47 tag, such as en-GB or zh")
        if name == "explain":
            action.add_argument("call", help="a call's id")
        action.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Do one action."""
    match args.action:
        case "stats":
            told = asyncio.run(_stats(settings))
        case "warm":
            told = asyncio.run(_warm(args, settings))
        case "export":
            told = _export(args.file, _disk(settings))
        case "import":
            told = _import(args.file, _disk(settings))
        case "clear":
            told = asyncio.run(_clear(settings))
        case _:
            return _explain(args, settings)
    if args.json:
        print(json.dumps(told, default=str))
    else:
        for name, value in told.items():
            print(f"{name.replace('_', ' ')}: {'unknown' if value is None else value}")
    return 0


def _disk(settings: Settings) -> DiskTier:
    if not settings.cache.disk_mb:
        raise ConfigError("cache.disk_mb: is 0, so nothing is kept on disk; expected more")
    return DiskTier(speech_folder(settings), settings.cache.disk_mb * 1_000_000)


async def _stats(settings: Settings) -> dict[str, Any]:
    folder = cache_folder(settings)
    predictor, voices = Predictor(), VoicePredictor()
    restore_learned(read_learned(learned_file(folder)), predictor, voices)
    async with open_tiers(settings, Metrics()) as tiers:
        told: dict[str, Any] = {"folder": folder}
        if tiers.disk is not None:
            told |= {"entries_on_disk": len(tiers.disk.keys()), "mb_on_disk": round(tiers.disk.size_bytes / 1e6, 1)}
        if tiers.redis is not None:
            told["entries_in_redis"] = await tiers.redis.count()
    return told | {
        "openings_known": predictor.openings,
        "contexts_known": len(predictor),
        "calls_in_journal": len(Journal(journal_folder(folder)).calls()),
    }


async def _warm(args: argparse.Namespace, settings: Settings) -> dict[str, Any]:
    _disk(settings)
    language = args.language or settings.tts.language
    voice, style = Voice(args.voice or settings.tts.voice, language), Style(settings.tts.rate)
    made = there = private = 0
    async with WorkerPool(1, name="warm") as pool:
        synthesizer = await create_synthesizer(settings, pool)
        try:
            async with VoiceCache.open(settings, synthesizer, pool=pool, metrics=Metrics()) as cache:
                for text in _clauses(args.file, language):
                    if not cache.keeps(text, voice):
                        private += 1
                    elif await cache.stored(text, voice, style):
                        there += 1
                    else:
                        async for _ in cache.speech(text, voice, style):
                            pass
                        if not cache.ready(text, voice, style):
                            raise EngineError(f"{synthesizer.info.name} could not speak one of the texts")
                        made += 1
                        if not made % 100:
                            # Writes are bounded: what does not fit would stay in memory only.
                            await cache.settled()
                            print(f"{made} made", file=sys.stderr)
        finally:
            await synthesizer.close()
    return {"made": made, "there_already": there, "left_out_as_private": private}


def _clauses(path: Path, language: str) -> Iterator[str]:
    """What is spoken of each line, as a call would cut it; empty lines and those that begin with # are passed over."""
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise EnvironmentFault(f"{path}: expected at most {MAX_TEXT_BYTES} bytes of text")
        lines = path.read_text(encoding="utf-8").splitlines()
    except OSError as exc:
        raise EnvironmentFault(f"cannot read {path}: {exc.strerror}") from exc
    except UnicodeDecodeError as exc:
        raise EnvironmentFault(f"{path}: expected UTF-8 text, byte {exc.start} is none") from exc
    for line in lines:
        if line.strip() and not line.startswith("#"):
            chunker = ClauseChunker(language)
            yield from (clause.spoken for clause in chunker.push(line) + chunker.flush() if clause.spoken)


def _export(path: Path, disk: DiskTier) -> dict[str, Any]:
    stored = disk.keys()
    part = path.with_name(f"{path.name}.part")
    written = 0
    try:
        with part.open("wb") as file:
            for key in stored:
                if (speech := disk.get(key)) is not None:
                    file.write(dump(speech))
                    written += 1
        size = part.stat().st_size
        part.replace(path)
    except OSError as exc:
        raise EnvironmentFault(f"cannot write {path}: {exc.strerror}") from exc
    finally:
        part.unlink(missing_ok=True)
    return {"file": path, "entries": written, "mb": round(size / 1e6, 1)}


def _import(path: Path, disk: DiskTier) -> dict[str, Any]:
    taken = 0
    try:
        with path.open("rb") as file:
            for data in _entries(file):
                disk.put(load(data))
                taken += 1
    except Unreadable as exc:
        raise EnvironmentFault(f"{path}: entry {taken + 1} cannot be used ({exc}); those before it were taken") from exc
    except OSError as exc:
        raise EnvironmentFault(f"cannot import {path}: {exc.strerror}") from exc
    return {"entries": taken, "entries_on_disk": len(disk.keys())}


def _entries(file: BinaryIO) -> Iterator[bytes]:
    while header := file.read(HEADER_BYTES):
        yield header + file.read(body_size(header))


async def _clear(settings: Settings) -> dict[str, Any]:
    folder = cache_folder(settings)
    async with open_tiers(settings, Metrics()) as tiers:
        told: dict[str, Any] = {}
        if tiers.disk is not None:
            told["removed_from_disk"] = tiers.disk.clear()
        if tiers.redis is not None:
            told["removed_from_redis"] = await tiers.redis.clear()
    learned_file(folder).unlink(missing_ok=True)
    Journal(journal_folder(folder)).clear()
    return told


def _explain(args: argparse.Namespace, settings: Settings) -> int:
    records = Journal(journal_folder(cache_folder(settings))).read(args.call)
    for record in records:
        if args.json:
            print(json.dumps(dataclasses.asdict(record), ensure_ascii=False))
            continue
        outcome = "predicted, and ready" if record.used else "ready" if record.ready else "not ready"
        where = record.state or record.last_clause or "the beginning"
        print(f"{record.number}. after {where!r} the agent began {record.opening!r}: {outcome}")
        for each in record.predicted:
            print(f"   {each.probability:5.1%} {'*' if each.ready else ' '} {each.opening!r}: {each.why}")
    return 0
