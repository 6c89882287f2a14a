"""The call page and its modules from the `web` folder; nothing outside it, nothing hidden, no listings."""

from __future__ import annotations

import importlib.resources
from pathlib import Path

from aiohttp import hdrs, web

from agent.errors import EnvironmentFault
from signaling.problems import HttpFault

__all__ = ["StaticFiles", "find_web_root"]

MEDIA_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".ico": "image/x-icon",
    ".js": "text/javascript",
    ".json": "application/json",
    ".mjs": "text/javascript",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".wav": "audio/wav",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
"""Only these are served: a stray source or key file in the folder stays private."""

_TEXT = frozenset({".css", ".html", ".js", ".mjs", ".svg"})

CACHE_CONTROL = "no-cache"
"""Names carry no fingerprint, so a browser may keep a file but must ask whether it is still the newest (ETag)."""


def find_web_root() -> Path:
    """The folder of the call page: beside this package (checkout and wheel alike), else the installed `web` package.

    Raises EnvironmentFault when there is none.
    """
    beside = Path(__file__).resolve().parent.parent / "web"
    if beside.is_dir():
        return beside
    try:
        packaged = Path(str(importlib.resources.files("web")))
    except ModuleNotFoundError as exc:
        raise EnvironmentFault("the call page is missing: reinstall rejoinder (its web folder is not there)") from exc
    return packaged


class StaticFiles:
    """Handlers for / and /web/{path}."""

    def __init__(self, root: Path) -> None:
        self._root = root.resolve()

    async def index(self, _request: web.Request) -> web.StreamResponse:
        """GET /: the call page."""
        return self._serve("index.html")

    async def file(self, request: web.Request) -> web.StreamResponse:
        """GET /web/{path}."""
        return self._serve(request.match_info["path"])

    def _serve(self, name: str) -> web.StreamResponse:
        path = self._resolve(name)
        if path is None:
            raise HttpFault(404, "not_found", "there is no such file")
        kind = MEDIA_TYPES[path.suffix]
        charset = "; charset=utf-8" if path.suffix in _TEXT else ""
        return web.FileResponse(path, headers={hdrs.CACHE_CONTROL: CACHE_CONTROL, hdrs.CONTENT_TYPE: kind + charset})

    def _resolve(self, name: str) -> Path | None:
        if "\0" in name or "\\" in name or any(part.startswith(".") for part in name.split("/")):
            return None
        try:
            path = (self._root / name).resolve()
            # After resolving, so that a symbolic link does not lead out either.
            inside = path.is_relative_to(self._root) and path.is_file()
        except (OSError, ValueError):
            return None
        return path if inside and path.suffix in MEDIA_TYPES else None
