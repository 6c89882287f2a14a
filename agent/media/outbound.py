"""From playout frames to RTP packets: Opus with DTX, timestamps that follow real time, key presses.

Timestamps advance by one frame each tick, in speech and in silence (RFC 3550 section 5.1). After the last frame of a
talk spurt the encoder gets silence until it says DTX, so that the peer's decoder rings out and conceals nothing; then
one packet every 400 ms keeps the path open. The first packet of a spurt has the marker bit (RFC 3551 section 4.1).
"""

from __future__ import annotations

import random

import numpy as np

from agent.errors import MediaError
from agent.media.dtmf import DtmfSender
from agent.media.frames import FRAME_MS, Pcm
from agent.media.opus import OPUS_CLOCK_HZ, Encoder
from agent.media.rtcp import SenderInfo, ntp_time
from agent.media.rtp import build_rtp

__all__ = ["AudioSender"]

FRAME_TICKS = OPUS_CLOCK_HZ * FRAME_MS // 1000
KEEP_ALIVE_TICKS = 20
"""400 ms between packets in silence, as Opus senders do."""
MAX_DTX_BYTES = 2
MAX_HANGOVER_TICKS = 25
"""libopus decides for DTX after 200 ms of silence; after 500 ms we stop in any case."""


class AudioSender:
    """One outgoing Opus stream; makes packets, sends nothing.

    Args:
        encoder: mono, at the playout's rate.
        opus_payload_type: the negotiated one.
        event: payload type and clock of the negotiated telephone-event, or None.
    """

    def __init__(self, encoder: Encoder, opus_payload_type: int, event: tuple[int, int] | None, ssrc: int) -> None:
        self.ssrc = ssrc
        self.packets = 0
        self.octets = 0
        self._encoder = encoder
        self._opus = opus_payload_type
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

    @property
    def timestamp(self) -> int:
        """RTP timestamp of the current tick."""
        return (self._origin + self._tick * FRAME_TICKS) & 0xFFFF_FFFF

    def send_dtmf(self, digits: str) -> None:
        """Queue key presses. Raises MediaError if the peer did not negotiate telephone-event, or on a wrong digit."""
        if self._dtmf is None:
            raise MediaError("the peer did not negotiate telephone-event, so no key press can be sent to it")
        self._dtmf.send(digits)

    def tick(self, frame: Pcm | None, tick: int) -> list[bytes]:
        """RTP packets for one tick of the media clock.

        Args:
            frame: 20 ms of speech at the encoder's rate, or None for silence.
            tick: number of this tick since the stream began; skipped numbers are time in which nothing was sent.
        """
        self._tick = tick
        if self._dtmf is not None and self._dtmf.busy:
            events = self._send_events()
            if events:
                # A key press takes the place of audio (RFC 4733 section 2.2); speech goes on after it.
                self._talking = False
                return events
        if frame is not None:
            marker = not self._talking
            self._talking = True
            self._allow_dtx(False)
            self._quiet_ticks = 0
            return [self._packet(self._opus, marker, self.timestamp, self._encoder.encode(frame))]
        self._quiet_ticks += 1
        self._allow_dtx(True)
        if self._talking:
            payload = self._encoder.encode(self._silence)
            if len(payload) <= MAX_DTX_BYTES or self._quiet_ticks >= MAX_HANGOVER_TICKS:
                self._talking = False
                self._quiet_ticks = 0
            return [self._packet(self._opus, False, self.timestamp, payload)]
        if self._quiet_ticks < KEEP_ALIVE_TICKS:
            return []
        self._quiet_ticks = 0
        return [self._packet(self._opus, False, self.timestamp, self._encoder.encode(self._silence))]

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

    def _packet(self, payload_type: int, marker: bool, timestamp: int, payload: bytes) -> bytes:
        packet = build_rtp(payload_type, marker, self._sequence, timestamp, self.ssrc, payload)
        self._sequence = (self._sequence + 1) & 0xFFFF
        self.packets += 1
        self.octets += len(payload)
        return packet
