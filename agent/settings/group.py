"""What all groups of settings share."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict

__all__ = ["Group", "default_cache_dir", "redis_address"]


def default_cache_dir() -> Path:
    """Where models and cached speech live: `$XDG_CACHE_HOME/rejoinder`, else `~/.cache/rejoinder`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rejoinder"


class Group(BaseModel):
    """A table of the settings: unknown names are refused, defaults are checked too."""

    model_config = ConfigDict(extra="forbid", validate_default=True)


def redis_address(value: str, secret: str) -> str:
    """An address of Redis without its password, or nothing."""
    if not value:
        return value
    parts = urlsplit(value)
    if parts.scheme not in ("redis", "rediss", "unix"):
        raise ValueError("expected redis://host:port/db, rediss:// or unix://")
    if parts.password:
        raise ValueError(f"holds a password; set {secret} instead")
    return value
