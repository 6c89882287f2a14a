"""What a caller can tell from the packets it got: were they on time, and when did the answer begin. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent.media.frames import Pcm

__all__ = [
    "AUDIBLE_DBFS",
    "Frame",
    "first_audible",
    "lateness_ms",
    "longest_pause_ms",
    "speech_end",
    "spurts_by_gap",
    "spurts_by_marker",
]

AUDIBLE_DBFS = -50.0
"""Fainter than this is not heard on a telephone: below the noise of a quiet line."""

WINDOW_MS = 10
"""Levels are those of 10 ms, about the shortest sound that is a sound."""

MAX_DTX_BYTES = 2
"""An Opus packet this short has no audio in it (RFC 7587 section 3.1.3)."""

GAP_S = 0.1
"""Without timestamps a gap this long cannot be told from silence: it begins a new talk spurt."""


@dataclass(frozen=True, slots=True)
class Frame:
    """20 ms of the agent's voice as it came: when it was due by its own timestamp, when it arrived, both in seconds."""

    due_s: float
    arrived_s: float
    payload_bytes: int
    marker: bool = False


def spurts_by_marker(frames: Sequence[Frame]) -> list[list[Frame]]:
    """RTP: from each marker (RFC 3551 section 4.1) to the first packet without audio; keep-alives belong to none."""
    spurts: list[list[Frame]] = []
    talking = False
    for frame in frames:
        if frame.marker:
            spurts.append([])
            talking = True
        elif frame.payload_bytes <= MAX_DTX_BYTES:
            talking = False
        if talking:
            spurts[-1].append(frame)
    return spurts


def spurts_by_gap(arrivals_s: Sequence[float], frame_s: float = 0.02) -> list[list[Frame]]:
    """A stream that tells no media time: each frame is due 20 ms after the one before, until a gap of 100 ms."""
    spurts: list[list[Frame]] = []
    last = float("-inf")
    for at in arrivals_s:
        if at - last > GAP_S:
            spurts.append([])
        spurts[-1].append(Frame(len(spurts[-1]) * frame_s, at, 0, marker=not spurts[-1]))
        last = at
    return spurts


def lateness_ms(spurts: Sequence[Sequence[Frame]]) -> list[float]:
    """How far behind schedule each frame came. The schedule of a spurt is set by its earliest frame."""
    late: list[float] = []
    for spurt in spurts:
        transits = [frame.arrived_s - frame.due_s for frame in spurt]
        floor = min(transits, default=0.0)
        late += [(transit - floor) * 1000 for transit in transits]
    return late


def first_audible(pcms: Sequence[Pcm], rate_hz: int) -> int | None:
    """Index of the first piece (int16 [n]) that holds an audible 10 ms, or None."""
    for index, pcm in enumerate(pcms):
        if _loud(pcm, rate_hz).any():
            return index
    return None


def speech_end(pcm: Pcm, rate_hz: int) -> int:
    """Where the last audible 10 ms of int16 [n] ends, in samples; 0 when there is none."""
    loud = np.flatnonzero(_loud(pcm, rate_hz))
    return (int(loud[-1]) + 1) * (rate_hz * WINDOW_MS // 1000) if len(loud) else 0


def longest_pause_ms(pcm: Pcm, rate_hz: int, below_peak_db: float = 30.0) -> int:
    """The longest stretch inside the speech of int16 [n] that is fainter than its loudest 10 ms by this much."""
    power = _power_db(pcm, rate_hz)
    if not len(power):
        return 0
    loud = np.flatnonzero(power > power.max() - below_peak_db)
    return int(np.diff(loud).max(initial=1) - 1) * WINDOW_MS


def _loud(pcm: Pcm, rate_hz: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.asarray(_power_db(pcm, rate_hz) > AUDIBLE_DBFS)


def _power_db(pcm: Pcm, rate_hz: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    window = rate_hz * WINDOW_MS // 1000
    whole = pcm[: len(pcm) // window * window].astype(np.float64).reshape(-1, window) / 32768.0
    return np.asarray(10.0 * np.log10(np.square(whole).mean(axis=1) + 1e-12))
