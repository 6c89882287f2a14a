"""The tables of `data/`, one a language: how its text is read, and where its sentences end."""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["known_languages", "table"]

_FOLDER = Path(__file__).parent / "data"


@cache
def known_languages() -> frozenset[str]:
    """Primary language subtags that have a table."""
    return frozenset(path.stem for path in _FOLDER.glob("??.toml"))


@cache
def table(language: str) -> dict[str, Any]:
    """The table of a primary language subtag; the one for all others if it has none."""
    name = language if language in known_languages() else "other"
    data: dict[str, Any] = tomllib.loads((_FOLDER / f"{name}.toml").read_text(encoding="utf-8"))
    return data
