"""`rejoinder listen`: transcribe a recording as a call would hear it."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path

from agent.asr.factory import create_recognizer
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import ConfigError
from agent.media.frames import HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.resample import resample
from agent.speech.clips import read_wav

__all__ = ["configure", "run"]

FINAL_DEADLINE_S = 120.0


def configure(command: argparse.ArgumentParser) -> None:
    """Declare the options."""
    command.description = "Transcribe a 16-bit WAV file."
    command.add_argument("file", type=Path)
    command.add_argument("--language")
    command.add_argument("--json", action="store_true")
    command.set_defaults(run=run)


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Transcribe and print."""
    try:
        pcm, rate_hz = read_wav(args.file)
    except OSError as exc:
        raise ConfigError(f"cannot read {args.file}: {exc.strerror}") from exc
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc
    return asyncio.run(_listen(args, settings, resample(pcm, rate_hz, HEARING_HZ)))


async def _listen(args: argparse.Namespace, settings: Settings, pcm: Pcm) -> int:
    live = sys.stdout.isatty() and not args.json
    async with WorkerPool(1, name="listen") as pool:
        recognizer = await create_recognizer(settings, pool)
        stream = recognizer.stream(language=args.language or settings.asr.language)
        try:
            shown = ""
            for start in range(0, len(pcm), HEARING_SAMPLES):
                stream.push(pcm[start : start + HEARING_SAMPLES])
                await asyncio.sleep(0)
                stable = stream.partial().stable
                if live and stable != shown:
                    shown = stable
                    print(f"\r{shown[-100:]}", end="", flush=True)
            started = time.perf_counter()
            async with asyncio.timeout(FINAL_DEADLINE_S):
                final = await stream.final()
            final_ms = (time.perf_counter() - started) * 1000
        finally:
            stream.close()
            await recognizer.close()
    if live:
        print("\r\033[K", end="")
    if args.json:
        report = {
            "text": final.text,
            "confidence": round(final.confidence, 3),
            "seconds": round(len(pcm) / HEARING_HZ, 2),
            "final_ms": round(final_ms, 1),
        }
        print(json.dumps(report, ensure_ascii=False))
    else:
        print(final.text)
    return 0
