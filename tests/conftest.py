"""Commands configure the logging of their process: here that is the tests', which get theirs back."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

LEVELLED = ("aiortc", "aioice", "aiohttp.access", "asyncio")


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    root = logging.getLogger()
    handlers = list(root.handlers)
    levels = {name: logging.getLogger(name).level for name in ("", *LEVELLED)}
    yield
    root.handlers[:] = handlers
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
