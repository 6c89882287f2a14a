"""From playout frames to RTP packets: encoding or packets encoded before, DTX, timestamps of real time, key presses.

Timestamps advance by one frame each tick, in speech and in silence (RFC 3550 section 5.1). After the last frame of a
talk spurt the encoder gets silence until it says DTX, so that the peer's decoder rings out and conceals nothing; then
one packet every 400 ms keeps the path open. The first packet of a spurt has the marker bit (RFC 3551 section 4.1).
Encodings without DTX send silence as any other frame.

Packets encoded beforehand and the call's own encoder take turns without the listener noticing by one rule: where one
takes over, both have encoded the same `JOINT_FRAMES` before (or there was silence), so the peer's decoder is in a state
that fits either. Into packets, their first frames are therefore encoded live where sound comes before them; out of
packets, the encoder first works through the last frames that were sent, for its state alone.
"""

from __future__ import annotations

import random
from collections import deque

import numpy as np

from agent.errors import MediaError
from agent.media.codec import Encoder
from agent.media.dtmf import DtmfSender
from agent.media.encoded import EncodedFrame
from agent.media.frames import FRAME_MS, Pcm
from agent.media.rtcp import SenderInfo, ntp_time
from agent.media.rtp import build_rtp

__all__ = ["AudioSender"]

KEEP_ALIVE_TICKS = 20
"""400 ms between packets in silence, as Opus senders do."""
MAX_DTX_BYTES = 2
MAX_HANGOVER_TICKS = 25
"""libopus decides for DTX after 200 ms of silence; after 500 ms we stop in any case."""
JOINT_FRAMES = 4
"""80 ms: longer than the longest pitch period, filter and lookahead that Opus and G.722 remember."""
QUIET_PEAK = 32
"""Of 32768: a frame without a sample above this (-60 dB) counts as silence at a joint."""


class AudioSender:
    """One outgoing stream; makes packets, sends nothing.

    Args:
        encoder: mono, at the playout's rate; closed with the sender.
        payload_type: the negotiated one of the audio.
        event: payload type and clock of the negotiated telephone-event, or None.
    """

    def __init__(self, encoder: Encoder, payload_type: int, event: tuple[int, int] | None, ssrc: int) -> None:
        self.ssrc = ssrc
        self.packets = 0
        self.octets = 0
        self._encoder = encoder
        self._payload_type = payload_type
        self._step = encoder.clock_hz * FRAME_MS // 1000
        self._event = event
        self._dtmf = DtmfSender(event[1]) if event else None
        # Below 2**15, so that a receiver that joins late cannot mistake the roll-over count of SRTP (RFC 3711 3.3.1).
        self._sequence = random.randrange(1 << 15)
        self._origin = random.randrange(1 << 32)
        self._tick = 0
        self._talking = False
        self._dtx = False
        self._quiet_ticks = MAX_HANGOVER_TICKS
        self._silence = np.zeros(encoder.sample_rate_hz * FRAME_MS // 1000, np.int16)
        self._past: deque[Pcm] = deque(maxlen=JOINT_FRAMES)
        """Frames of speech just sent; empty after silence."""
        self._last: EncodedFrame | None = None
        """The packet that the last frame was, or could have been."""
        self._shared = 0
        """Frames up to `_last` that the live encoder has encoded and the packets' own encoder, too."""
        self._stale = False
        """The live encoder has not seen what was sent last."""

    @property
    def timestamp(self) -> int:
        """RTP timestamp of the current tick."""
        return (self._origin + self._tick * self._step) & 0xFFFF_FFFF

    def send_dtmf(self, digits: str) -> None:
        """Queue key presses. Raises MediaError if the peer did not negotiate telephone-event, or on a wrong digit."""
        if self._dtmf is None:
            raise MediaError("the peer did not negotiate telephone-event, so no key press can be sent to it")
        self._dtmf.send(digits)

    def tick(self, frame: Pcm | None, tick: int, encoded: EncodedFrame | None = None) -> list[bytes]:
        """RTP packets for one tick of the media clock.

        Args:
            frame: 20 ms of speech at the encoder's rate, or None for silence.
            tick: number of this tick since the stream began; skipped numbers are time in which nothing was sent.
            encoded: the packet that is this same frame, if there is one (Playout.encoded).
        """
        self._tick = tick
        if self._dtmf is not None and self._dtmf.busy:
            events = self._send_events()
            if events:
                # A key press takes the place of audio (RFC 4733 section 2.2); speech goes on after it.
                self._talking = False
                return events
        if frame is not None:
            self._quiet_ticks = 0
            return [self._audio(not self._talking, self._speech(frame, encoded))]
        self._quiet_ticks += 1
        if not self._encoder.discontinuous:
            return [self._audio(not self._talking, self._quiet())]
        if self._talking:
            payload = self._quiet()
            if len(payload) <= MAX_DTX_BYTES or self._quiet_ticks >= MAX_HANGOVER_TICKS:
                self._talking = False
                self._quiet_ticks = 0
            return [self._packet(self._payload_type, False, self.timestamp, payload)]
        if self._quiet_ticks < KEEP_ALIVE_TICKS:
            return []
        self._quiet_ticks = 0
        return [self._packet(self._payload_type, False, self.timestamp, self._quiet())]

    def expect_loss(self, percent: int) -> None:
        """Let in-band FEC prepare for this loss."""
        self._encoder.expect_loss(percent)

    def sender_info(self, unix_s: float) -> SenderInfo | None:
        """For the next sender report; None while nothing was sent."""
        if not self.packets:
            return None
        return SenderInfo(self.ssrc, ntp_time(unix_s), self.timestamp, self.packets, self.octets)

    def close(self) -> None:
        """Free the encoder."""
        self._encoder.close()

    def _speech(self, frame: Pcm, encoded: EncodedFrame | None) -> bytes:
        if encoded is not None and encoded.speech.key == self._encoder.key:
            last = self._last
            follows = last is not None and last.speech is encoded.speech and last.index + 1 == encoded.index
            if not follows:
                self._shared = 0
            joins = self._stale or self._shared >= JOINT_FRAMES if follows else not encoded.index and self._was_quiet()
            self._last = encoded
            if joins or not self._encoder.stateful:
                self._stale = True
                self._past.append(frame)
                return encoded.payload
            self._shared += 1
        else:
            self._last = None
        self._catch_up()
        self._allow_dtx(False)
        self._past.append(frame)
        return self._encoder.encode(frame)

    def _quiet(self) -> bytes:
        """A frame of silence, in which what the encoder still holds of the speech rings out."""
        self._catch_up()
        self._allow_dtx(True)
        self._past.clear()
        self._last = None
        return self._encoder.encode(self._silence)

    def _was_quiet(self) -> bool:
        return not self._past or int(np.abs(self._past[-1].astype(np.int32)).max()) <= QUIET_PEAK

    def _catch_up(self) -> None:
        if self._stale:
            self._stale = False
            for frame in self._past:
                self._encoder.encode(frame)

    def _allow_dtx(self, allowed: bool) -> None:
        if allowed != self._dtx:
            self._dtx = allowed
            self._encoder.allow_dtx(allowed)

    def _send_events(self) -> list[bytes]:
        assert self._dtmf is not None
        assert self._event is not None
        return [
            self._packet(self._event[0], event.marker, event.timestamp, event.payload)
            for event in self._dtmf.tick(self.timestamp)
        ]

    def _audio(self, marker: bool, payload: bytes) -> bytes:
        self._talking = True
        return self._packet(self._payload_type, marker, self.timestamp, payload)

    def _packet(self, payload_type: int, marker: bool, timestamp: int, payload: bytes) -> bytes:
        packet = build_rtp(payload_type, marker, self._sequence, timestamp, self.ssrc, payload)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self.packets += 1
        self.octets += len(payload)
        return packet
