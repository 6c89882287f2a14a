"""From RTP packets to 16 kHz frames: jitter buffer, decoder and key presses, one frame each tick whatever arrived."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

import numpy as np

from agent.errors import MediaError, ProtocolError
from agent.media import opus
from agent.media.codec import Decoder
from agent.media.dtmf import DtmfReceiver
from agent.media.frames import HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.jitter import Conceal, Decision, Decode, Fec, JitterBuffer, JitterCounters
from agent.media.rtcp import ReceptionStats
from agent.media.rtp import parse_rtp

__all__ = ["AudioReceiver"]

CONCEAL_STEP = HEARING_HZ // 400
"""libopus makes multiples of 2.5 ms."""
QUIET_MEAN = 200.0
"""Mean magnitude (of 32768) under which two frames may be merged unheard: about -44 dB, below any speech."""
MAX_WAITING_DIGITS = 64
"""Key presses between two ticks, and before the first one; nobody types faster, the oldest are dropped."""
MAX_SAMPLES = HEARING_HZ * 240 // 1000
FADE_OUT = np.linspace(1.0, 0.0, HEARING_SAMPLES, dtype=np.float32)
FADE_IN = 1.0 - FADE_OUT


class AudioReceiver:
    """One caller's incoming stream.

    Args:
        payload_type: the negotiated one of the audio.
        event_payload_types: payload type to clock rate of each negotiated telephone-event.
        jitter: the buffer to use, at the decoder's RTP clock.
        decoder: of the negotiated encoding, closed with the receiver; None for Opus.
        noise_payload_types: of comfort noise (RFC 3389): a packet of it is a pause of the sender, and silence here.
    """

    def __init__(
        self,
        payload_type: int,
        event_payload_types: Mapping[int, int],
        jitter: JitterBuffer[bytes],
        decoder: Decoder | None = None,
        noise_payload_types: Collection[int] = (),
    ) -> None:
        self._noise = frozenset(noise_payload_types)
        self._decoder = decoder or opus.Decoder()
        self._clock_hz = self._decoder.clock_hz
        self.reception = ReceptionStats(self._clock_hz)
        self.corrupt = 0
        self.last_packet_at: float | None = None
        self._payload_type = payload_type
        self._events = dict(event_payload_types)
        self._jitter = jitter
        self._dtmf = DtmfReceiver()
        self._digits: deque[str] = deque(maxlen=MAX_WAITING_DIGITS)
        self._samples = np.zeros(MAX_SAMPLES, np.int16)
        self._held = 0

    @property
    def counters(self) -> JitterCounters:
        return self._jitter.counters

    def receive(self, data: bytes, now: float) -> None:
        """One decrypted RTP packet. Never raises: what is malformed is counted."""
        try:
            packet = parse_rtp(data)
        except ProtocolError:
            self.corrupt += 1
            return
        if packet.payload_type == self._payload_type:
            payload = packet.payload
            samples, fec, dtx = self._decoder.inspect(payload)
            if not samples:
                self.corrupt += 1
                return
            self._jitter.push(
                packet.ssrc, packet.sequence, packet.timestamp, payload, now, samples=samples, fec=fec, dtx=dtx
            )
        elif packet.payload_type in self._events:
            self._jitter.push_event(packet.ssrc, packet.sequence)
            self._digits += self._dtmf.receive(packet.timestamp, packet.payload, now)
        elif packet.payload_type in self._noise:
            self._jitter.push_event(packet.ssrc, packet.sequence)
        else:
            self.corrupt += 1
            return
        self.last_packet_at = now
        self.reception.received_packet(packet.ssrc, packet.sequence, packet.timestamp, now)

    def tick(self, now: float) -> tuple[Pcm, list[str]]:
        """The next 20 ms, int16 [320], and the key presses that ended since the last tick."""
        frame = self._frame(now)
        if self._jitter.may_shorten(now, quiet=lambda: _is_quiet(frame)):
            following = self._frame(now)
            merged: Pcm = (frame * FADE_OUT + following * FADE_IN).astype(np.int16)
            frame = merged
        self._digits += self._dtmf.tick(now)
        digits = list(self._digits)
        self._digits.clear()
        return frame, digits

    def close(self) -> None:
        """Free the decoder; `tick` must not be called after it."""
        self._decoder.close()

    def _frame(self, now: float) -> Pcm:
        decisions = self._jitter.tick(now)
        if not self._held and len(decisions) == 1:
            # Nearly every tick: a packet is a frame, and needs no putting together.
            only = self._render(decisions[0])
            if len(only) == HEARING_SAMPLES:
                return only
            decisions = []
            self._held = min(len(only), MAX_SAMPLES)
            self._samples[: self._held] = only[: self._held]
        for decision in decisions:
            pcm = self._render(decision)
            room = min(len(pcm), MAX_SAMPLES - self._held)
            self._samples[self._held : self._held + room] = pcm[:room]
            self._held += room
        frame = self._samples[:HEARING_SAMPLES].copy()
        rest = max(0, self._held - HEARING_SAMPLES)
        self._samples[:rest] = self._samples[HEARING_SAMPLES : self._held]
        self._samples[rest : self._held] = 0
        self._held = rest
        return frame

    def _render(self, decision: Decision[bytes]) -> Pcm:
        samples = decision.samples * HEARING_HZ // self._clock_hz
        try:
            if isinstance(decision, Decode):
                return _exactly(self._decoder.decode(decision.payload), samples)
            if isinstance(decision, Fec):
                return _exactly(self._decoder.decode_fec(decision.payload, samples), samples)
            if isinstance(decision, Conceal):
                pcm = self._conceal(samples)
                if decision.gain_to < 1.0:
                    gain = np.linspace(decision.gain_from, decision.gain_to, samples, dtype=np.float32)
                    return (pcm * gain).astype(np.int16)
                return pcm
        except MediaError:
            # A packet that authenticates and yet does not decode: its sender is at fault, the call goes on.
            self.corrupt += 1
            return self._conceal(samples)
        return np.zeros(samples, np.int16)

    def _conceal(self, samples: int) -> Pcm:
        whole = -(-samples // CONCEAL_STEP) * CONCEAL_STEP
        try:
            return _exactly(self._decoder.conceal(whole), samples)
        except MediaError:
            return np.zeros(samples, np.int16)


def _is_quiet(frame: Pcm) -> bool:
    return float(np.abs(frame.astype(np.int32)).mean()) < QUIET_MEAN


def _exactly(pcm: Pcm, samples: int) -> Pcm:
    """Hold a corrupted packet to the length it announced, so that the frame clock stays right."""
    if len(pcm) == samples:
        return pcm
    out = np.zeros(samples, np.int16)
    out[: min(samples, len(pcm))] = pcm[:samples]
    return out
