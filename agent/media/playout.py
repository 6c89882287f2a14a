"""What the agent is about to say: a bounded queue of samples, read one 20 ms frame a tick.

Pure: no clock, no I/O. Positions count samples of speech from the start of the call; silence is not counted, so a
position says exactly how much of what was written has left.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from agent.errors import MediaError
from agent.media.frames import FRAME_MS, Pcm

__all__ = ["Playout"]

MAX_QUEUED_S = 30.0
"""A reply this far ahead of the caller's ear is never needed; a writer that ignores `room_samples` gets an error."""

FADE_MS = 5
"""Length of the fade when speech is cut; shorter clicks, longer is heard as a slur."""


class Playout:
    """Samples waiting to be played, at one rate.

    Args:
        sample_rate_hz: rate of everything written and read.
        max_queued_s: bound of the queue in seconds.
    """

    def __init__(self, sample_rate_hz: int, *, max_queued_s: float = MAX_QUEUED_S) -> None:
        self.sample_rate_hz = sample_rate_hz
        self.frame_samples = sample_rate_hz * FRAME_MS // 1000
        self.max_queued_samples = int(max_queued_s * sample_rate_hz)
        self.position = 0
        """Samples of speech read so far: what the caller has been sent."""
        self._pieces: deque[Pcm] = deque()
        self._queued = 0
        self._ended = True

    @property
    def queued_samples(self) -> int:
        """Samples written and not yet read."""
        return self._queued

    @property
    def room_samples(self) -> int:
        """How much `write` still takes."""
        return self.max_queued_samples - self._queued

    @property
    def drained(self) -> bool:
        """True when all that was written has been read and `end()` was called after it."""
        return self._queued == 0 and self._ended

    def write(self, pcm: Pcm) -> int:
        """Queue int16 [n] mono samples; returns the position at which they will have been heard.

        Raises MediaError if the queue's bound would be passed; nothing is queued then.
        """
        if pcm.ndim != 1 or pcm.dtype != np.int16:
            raise MediaError(f"playout takes int16 [n] mono, got {pcm.dtype} {list(pcm.shape)}")
        if len(pcm) > self.room_samples:
            raise MediaError(f"playout queue is full: {len(pcm)} samples offered, room for {self.room_samples}")
        if len(pcm):
            self._pieces.append(pcm)
            self._queued += len(pcm)
            self._ended = False
        return self.position + self._queued

    def end(self) -> None:
        """No more belongs to this utterance: a last part shorter than a frame may go out padded with silence."""
        self._ended = True

    def read(self) -> Pcm | None:
        """The next 20 ms frame, int16 [frame_samples], or None for silence.

        While an utterance is being written, less than a frame waits for the rest of it.
        """
        if self._queued == 0 or (self._queued < self.frame_samples and not self._ended):
            return None
        frame = np.zeros(self.frame_samples, np.int16)
        filled = 0
        while filled < self.frame_samples and self._pieces:
            piece = self._pieces[0]
            take = min(len(piece), self.frame_samples - filled)
            frame[filled : filled + take] = piece[:take]
            if take == len(piece):
                self._pieces.popleft()
            else:
                self._pieces[0] = piece[take:]
            filled += take
        self._queued -= filled
        self.position += filled
        return frame

    def clear(self) -> int:
        """Drop all that is unread but a short fade-out; returns the position reached when that fade has been read."""
        keep = min(self._queued, self.sample_rate_hz * FADE_MS // 1000)
        if keep:
            tail = np.concatenate(list(self._pieces))[:keep] if len(self._pieces) > 1 else self._pieces[0][:keep]
            ramp = np.linspace(1.0, 0.0, keep, dtype=np.float32)
            self._pieces = deque([(tail * ramp).astype(np.int16)])
        else:
            self._pieces.clear()
        self._queued = keep
        self._ended = True
        return self.position + keep
