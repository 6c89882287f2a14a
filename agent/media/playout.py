"""What the agent is about to say: a bounded queue of samples, read one 20 ms frame a tick.

Pure: no clock, no I/O. Positions count samples of speech from the start of the call; silence is not counted, so a
position says exactly how much of what was written has left. Speech that is encoded already keeps its packets: `encoded`
says which one belongs to the frame just read, so that a port with that encoding can send it as it is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from agent.errors import MediaError
from agent.media.codec import Codec
from agent.media.encoded import EncodedFrame, EncodedSpeech
from agent.media.frames import FRAME_MS, Pcm

__all__ = ["Playout"]

MAX_QUEUED_S = 30.0
"""A reply this far ahead of the caller's ear is never needed; a writer that ignores `room_samples` gets an error."""

KEPT_S = 10.0
"""How much of what was read can be read again: a connection that dies is noticed within 7 s."""

FADE_MS = 5
"""Length of the fade when speech is cut; shorter clicks, longer is heard as a slur."""


@dataclass(slots=True)
class _Piece:
    pcm: Pcm
    """What is left of it."""
    speech: EncodedSpeech | None = None
    index: int = 0
    """Next packet of `speech`."""


class Playout:
    """Samples waiting to be played, at one rate.

    Args:
        sample_rate_hz: rate of everything written and read.
        max_queued_s: bound of the queue in seconds.
        codec: in what it is sent, where packets that were encoded before can be; speech is offered with them then.
    """

    def __init__(self, sample_rate_hz: int, *, max_queued_s: float = MAX_QUEUED_S, codec: Codec | None = None) -> None:
        self.sample_rate_hz = sample_rate_hz
        self.codec = codec
        self.frame_samples = sample_rate_hz * FRAME_MS // 1000
        self.max_queued_samples = int(max_queued_s * sample_rate_hz)
        self.position = 0
        """Samples of speech read so far: what the caller has been sent."""
        self.encoded: EncodedFrame | None = None
        """The packet that is exactly the frame last read; None if that was not encoded, or was faded."""
        self._pieces: deque[_Piece] = deque()
        self._queued = 0
        self._read: deque[Pcm] = deque()
        self._kept = 0
        self._ended = True
        self._sounding = False
        """Whether the frame last read was speech: only what sounds is faded."""
        self._paused = False
        self._fade_out = False
        self._faded = False
        self._fade_in = False

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
        """Queue int16 [n] mono samples, not to be changed afterwards.

        Returns the position at which they will have been heard.
        Raises MediaError if the queue's bound would be passed; nothing is queued then.
        """
        if pcm.ndim != 1 or pcm.dtype != np.int16:
            raise MediaError(f"playout takes int16 [n] mono, got {pcm.dtype} {list(pcm.shape)}")
        return self._append(_Piece(pcm))

    def write_encoded(self, speech: EncodedSpeech) -> int:
        """Queue speech with its packets; returns the position at which it will have been heard.

        It begins and ends on a frame: a part of a frame before it goes out padded with silence, as its own last one.
        Raises MediaError if the rate is another or the queue's bound would be passed; nothing is queued then.
        """
        if speech.sample_rate_hz != self.sample_rate_hz:
            raise MediaError(f"playout is at {self.sample_rate_hz} Hz, encoded speech at {speech.sample_rate_hz} Hz")
        return self._append(_Piece(speech.pcm, speech))

    def _append(self, piece: _Piece) -> int:
        count = len(piece.pcm)
        if count > self.room_samples:
            raise MediaError(f"playout queue is full: {count} samples offered, room for {self.room_samples}")
        if count:
            self._pieces.append(piece)
            self._queued += count
            self._ended = False
        return self.position + self._queued

    def end(self) -> None:
        """No more belongs to this utterance: a last part shorter than a frame may go out padded with silence."""
        self._ended = True

    @property
    def paused(self) -> bool:
        """True between `pause()` and `resume()` or `clear()`."""
        return self._paused

    @property
    def silent(self) -> bool:
        """True once a pause has faded out: the listener heard the speech break off."""
        return self._faded

    def pause(self) -> None:
        """Fade out over the next frame and then read as silence; nothing is lost, the position stays."""
        if not self._paused:
            self._paused = True
            self._fade_out = self._sounding

    def resume(self) -> None:
        """Go on with the frame that `pause()` faded out."""
        if self._paused:
            self._fade_in = self._fade_in or self._faded
            self._paused = self._fade_out = self._faded = False

    def read(self) -> Pcm | None:
        """The next 20 ms frame, int16 [frame_samples], not to be changed; or None for silence.

        While an utterance is being written, less than a frame waits for the rest of it.
        """
        frame = self._next_frame()
        self._sounding = frame is not None
        return frame

    def _next_frame(self) -> Pcm | None:
        self.encoded = None
        span, complete = self._span()
        if span == 0 or not (complete or self._ended):
            return None
        if self._paused:
            if not self._fade_out:
                return None
            self._fade_out = False
            self._faded = True
            return _faded(self._head(span, self.frame_samples), 1.0, 0.0)
        frame = self._head(span, self.frame_samples)
        first = self._pieces[0]
        speech, index = first.speech, first.index
        self._drop(span)
        if self._fade_in:
            self._fade_in = False
            return _faded(frame, 0.0, 1.0)
        if speech is not None:
            self.encoded = EncodedFrame(speech, index)
        return frame

    def rewind(self, samples: int) -> int:
        """Read the last `samples` once more, at most what is kept (`KEPT_S`); returns how many that will be.

        The position goes back with it: what is to be read again was not heard.
        """
        left = wanted = min(max(0, samples), self._kept)
        while left:
            pcm = self._read.pop()
            if len(pcm) > left:
                self._read.append(pcm[:-left])
                pcm = pcm[-left:]
            # Without its packet, if it had one: it need not begin on a frame now.
            self._pieces.appendleft(_Piece(pcm))
            left -= len(pcm)
        self._kept -= wanted
        self._queued += wanted
        self.position -= wanted
        self._fade_in = wanted > 0
        return wanted

    def withdraw(self, samples: int) -> int:
        """Take the last `samples` back that were written, as far as they are unread; returns how many that were."""
        left = taken = min(max(0, samples), self._queued)
        while left:
            piece = self._pieces[-1]
            if len(piece.pcm) > left:
                # Its packets would say more than its samples.
                piece.pcm, piece.speech = piece.pcm[:-left], None
                break
            left -= len(piece.pcm)
            self._pieces.pop()
        self._queued -= taken
        return taken

    def take_over(self, other: Playout) -> None:
        """Queue all that `other` holds unread; it is empty afterwards.

        Raises MediaError if the rates differ or the queue's bound would be passed; nothing is moved then.
        """
        if other.sample_rate_hz != self.sample_rate_hz:
            raise MediaError(f"playout is at {self.sample_rate_hz} Hz, the other at {other.sample_rate_hz} Hz")
        if other._queued > self.room_samples:
            raise MediaError(f"playout queue is full: {other._queued} samples, room for {self.room_samples}")
        if other._queued:
            self._ended = other._ended
        self._pieces += other._pieces
        self._queued += other._queued
        other._pieces.clear()
        other._queued = 0

    def clear(self) -> int:
        """Drop all that is unread but a short fade-out; returns the position reached when that fade has been read.

        Where nothing sounds (before the first frame, after a pause) nothing at all is kept.
        """
        keep = 0 if not self._sounding else min(self._queued, self.sample_rate_hz * FADE_MS // 1000)
        tail = _faded(self._head(keep, keep), 1.0, 0.0)
        self._pieces = deque([_Piece(tail)] if keep else [])
        self._queued = keep
        self._read.clear()
        self._kept = 0
        self._ended = True
        self._paused = self._fade_out = self._faded = self._fade_in = False
        return self.position + keep

    def _span(self) -> tuple[int, bool]:
        """(samples of the next frame that are there, whether no more belong to it)."""
        span = 0
        for piece in self._pieces:
            if piece.speech is not None:
                return (span or min(len(piece.pcm), self.frame_samples)), True
            span += len(piece.pcm)
            if span >= self.frame_samples:
                return self.frame_samples, True
        return span, False

    def _head(self, samples: int, size: int) -> Pcm:
        """The first samples of the queue, padded with zeros to `size`, without taking them; not to be changed."""
        first = self._pieces[0].pcm if self._pieces else np.zeros(0, np.int16)
        if len(first) >= size == samples:
            return first[:size]
        out = np.zeros(size, np.int16)
        filled = 0
        for piece in self._pieces:
            take = min(len(piece.pcm), samples - filled)
            out[filled : filled + take] = piece.pcm[:take]
            filled += take
            if filled == samples:
                break
        return out

    def _drop(self, samples: int) -> None:
        self._queued -= samples
        self.position += samples
        while samples:
            piece = self._pieces[0]
            taken = piece.pcm[:samples]
            if len(taken) == len(piece.pcm):
                self._pieces.popleft()
            else:
                piece.pcm = piece.pcm[samples:]
                piece.index += 1
            samples -= len(taken)
            self._keep(taken)

    def _keep(self, pcm: Pcm) -> None:
        self._read.append(pcm)
        self._kept += len(pcm)
        while self._kept - len(self._read[0]) >= KEPT_S * self.sample_rate_hz:
            self._kept -= len(self._read.popleft())


def _faded(pcm: Pcm, first: float, last: float) -> Pcm:
    return (pcm * np.linspace(first, last, len(pcm), dtype=np.float32)).astype(np.int16)
