"""What an engine that reads whole segments must offer, so that `agent.asr.rereading` can make it stream."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

__all__ = ["Reader", "Reading", "ReadingStopped", "StopSignal"]


class ReadingStopped(Exception):
    """A reading was told to stop before its end."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What an engine made of a segment."""

    text: str = ""
    tokens: tuple[int, ...] = ()
    """The engine's own units of `text`; given back as a start for the next reading."""
    confidence: float = 1.0
    """0 to 1."""
    end_of_turn: float | None = None


class StopSignal:
    """Tells a reading in a worker thread that nobody waits for it. Set once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._set = False
        self._then: Callable[[], None] | None = None

    @property
    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        """Ask the reading to stop. Callable from any thread; returns at once."""
        with self._lock:
            self._set = True
            then, self._then = self._then, None
        if then is not None:
            then()

    def on_set(self, then: Callable[[], None]) -> None:
        """Call `then` when set, at once if it already is: how a native call is interrupted."""
        with self._lock:
            if not self._set:
                self._then = then
                return
        then()

    def check(self) -> None:
        """Raise ReadingStopped if set."""
        if self._set:
            raise ReadingStopped


class Reader(Protocol):
    """Reads a whole segment, in a worker thread."""

    def read(self, pcm: npt.NDArray[np.int16], known: Reading, stop: StopSignal) -> Reading:
        """Read int16 [n], 16 kHz mono, n at least 4,000.

        Args:
            known: the reading of a shorter version of the same audio, or an empty one.
            stop: looked at between steps.

        Raises:
            ReadingStopped: `stop` was set.
        """
        ...
