"""What was learned, as one JSON file: the predictor, the voices, and how far the shared stream was read. Blocking."""

from __future__ import annotations

import contextlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agent.voicecache.predictor import Predictor
from agent.voicecache.voices import VoicePredictor

__all__ = ["read_learned", "restore_learned", "write_learned"]

MAX_FILE_BYTES = 64 * 1024 * 1024

log = logging.getLogger(__name__)


def write_learned(path: Path, values: Mapping[str, Any]) -> None:
    """Write whole or not at all. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        part.write_text(json.dumps(values, ensure_ascii=False), encoding="utf-8", errors="replace")
        part.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def read_learned(path: Path) -> dict[str, Any]:
    """What is there; empty if there is nothing, or nothing that can be read."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES} bytes")
        values = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(values, dict):
            raise ValueError("not an object")
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as exc:
        log.warning("%s cannot be read (%s): learning begins anew", path, type(exc).__name__)
        return {}
    return values


def restore_learned(values: Mapping[str, Any], predictor: Predictor, voices: VoicePredictor) -> str:
    """Take over what can be; returns how far the shared stream was read."""
    try:
        if "predictor" in values:
            predictor.restore(values["predictor"])
        if "voices" in values:
            voices.restore(values["voices"])
    except (ValueError, AttributeError, TypeError) as exc:
        log.warning("what was learned before cannot be used: %s", exc)
        return "0-0"
    until = values.get("learned_until", "0-0")
    return until if isinstance(until, str) and until.replace("-", "").isdigit() else "0-0"
