"""Two lanes of one clock: caller left, agent right, the same sample of both at the same offset. Pure.

The clock is the pacer's: slot n is the n-th tick, 320 samples at 16 kHz, the rate at which the caller was heard (so the
left lane is to the bit what the recogniser got). The agent's frames come at the port's rate; what the resampler holds
back is taken out again, so a sound lies where its frame left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agent.media.frames import FRAME_MS, HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.resample import StreamResampler

__all__ = ["Lanes", "Slot"]

MAX_WAITING = 60
"""Frames of the caller that may wait for a slot (1.2 s, the bound of the port that hands over two a tick)."""
QUIET_MEAN = 200.0
"""Mean magnitude (of 32768) under which a frame may be left out to catch up: about -44 dB, below any speech."""
SILENCE = np.zeros(HEARING_SAMPLES, np.int16)


@dataclass(frozen=True, slots=True)
class Slot:
    """One tick. `gap` slots before it never ran: both lanes are silent there."""

    agent: Pcm | None
    caller: tuple[Pcm, ...]
    gap: int = 0


class Lanes:
    """Slots in, stereo out.

    Args:
        agent_hz: rate of the agent's frames.
    """

    def __init__(self, agent_hz: int) -> None:
        self._silence = np.zeros(agent_hz * FRAME_MS // 1000, np.int16)
        self._resampler = StreamResampler(agent_hz, HEARING_HZ)
        self._skip = round(self._resampler.delay_s * HEARING_HZ)
        """Samples of the resampler's output that lie before the first one that counts."""
        self._delay = self._skip
        self._waiting: deque[Pcm] = deque()
        self._left: list[Pcm] = []
        self._right: list[Pcm] = []
        self.dropped = 0
        """Frames of the caller that found no slot."""

    def push(self, slots: Sequence[Slot]) -> Pcm:
        """int16 [n, 2] at 16 kHz: what is ready; up to 3 ms are held back until the next push."""
        agent: list[Pcm] = []
        for slot in slots:
            agent += [self._silence] * slot.gap + [self._silence if slot.agent is None else slot.agent]
            self._left += [self._place(()) for _ in range(slot.gap)] + [self._place(slot.caller)]
        if agent:
            self._add_right(self._resampler.push(np.concatenate(agent)))
        return self._ready()

    def finish(self) -> Pcm:
        """What was held back."""
        # As long as the delay at the agent's rate, and one sample of rounding.
        rest = -(-self._delay * len(self._silence) // HEARING_SAMPLES) + 1
        if self._delay:
            self._add_right(self._resampler.push(np.zeros(rest, np.int16)))
        return self._ready()

    def _place(self, frames: Sequence[Pcm]) -> Pcm:
        """The caller's frame of this slot; a second one waits until a quiet one can be left out for it."""
        self._waiting.extend(frames)
        if not self._waiting:
            return SILENCE
        while len(self._waiting) > 1 and _quiet(self._waiting[0]):
            self._waiting.popleft()
        if len(self._waiting) > MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        return self._waiting.popleft()

    def _add_right(self, pcm: Pcm) -> None:
        skipped = min(self._skip, len(pcm))
        self._skip -= skipped
        self._right.append(pcm[skipped:])

    def _ready(self) -> Pcm:
        if not self._left:
            return np.zeros((0, 2), np.int16)
        left, right = np.concatenate(self._left), np.concatenate(self._right)
        count = min(len(left), len(right))
        self._left, self._right = [left[count:]], [right[count:]]
        return np.stack((left[:count], right[:count]), axis=1)


def _quiet(frame: Pcm) -> bool:
    return float(np.abs(frame.astype(np.int32)).mean()) < QUIET_MEAN
