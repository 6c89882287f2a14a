"""Plain PCM as a port: for the WebSocket and the console, where the transport itself is reliable and in order."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from agent.errors import MediaError, ProtocolError
from agent.media.dtmf import DIGITS
from agent.media.frames import HEARING_HZ, HEARING_SAMPLES, Pcm
from agent.media.liveness import SilenceWatch
from agent.media.playout import Playout
from agent.media.port import MediaSink
from agent.media.resample import StreamResampler
from agent.media.stats import PortStats
from agent.media.tap import MediaTap, StreamInfo
from agent.media.ticker import Ticker

__all__ = ["PcmPort"]

logger = logging.getLogger(__name__)

RATES_HZ = (8_000, 16_000, 24_000, 48_000)
MAX_MESSAGE_MS = 200
HIGH_WATER_SAMPLES = HEARING_HZ
"""`ready` waits while this much is queued: 1 s."""
MAX_QUEUED_SAMPLES = HIGH_WATER_SAMPLES + HEARING_HZ * MAX_MESSAGE_MS // 1000
"""Hard bound, for a feeder that does not wait: the oldest audio goes."""
CATCH_UP_SAMPLES = HEARING_HZ // 10
"""Above 100 ms two frames a tick are taken, so that a burst does not stay as delay."""


class PcmPort:
    """Mono little-endian int16 both ways at one rate, paced by the shared ticker. Implements MediaPort.

    Inbound audio is resampled to 16 kHz by `StreamResampler`: passband 0.87 of the lower Nyquist, delay at most 3.1 ms.

    Args:
        rate_hz: 8000, 16000, 24000 or 48000, for both directions.
        ticker: the process's clock.
        send: called on the event loop with one 20 ms frame a tick while there is speech.
        silence_s: tell the sink when nothing was fed for this long; None for a peer that need not send all the time.
    """

    def __init__(
        self, rate_hz: int, *, ticker: Ticker, send: Callable[[bytes], None], silence_s: float | None = None
    ) -> None:
        if rate_hz not in RATES_HZ:
            raise MediaError(f"rate must be one of {RATES_HZ} Hz, got {rate_hz}")
        self._rate_hz = rate_hz
        self._playout = Playout(rate_hz)
        self._ticker = ticker
        self._send = send
        self._sink: MediaSink | None = None
        self._resampler = StreamResampler(rate_hz, HEARING_HZ)
        self._pieces: deque[Pcm] = deque()
        self._queued = 0
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False
        self._gone: str | None = None
        self._sent = 0
        self._sent_bytes = 0
        self._last_fed = time.monotonic()
        self._silence = None if silence_s is None else SilenceWatch(silence_s)
        self.tap: MediaTap | None = None
        self.dropped_samples = 0
        """Inbound 16 kHz samples lost because the feeder did not wait for `ready`."""
        ticker.add(self._tick)

    @property
    def sample_rate_hz(self) -> int:
        return self._rate_hz

    @property
    def playout(self) -> Playout:
        return self._playout

    @property
    def stream_info(self) -> StreamInfo:
        return StreamInfo("pcm", self._rate_hz)

    def attach(self, sink: MediaSink) -> None:
        """Start delivering: one frame a tick, silence when nothing came; two while more than 100 ms wait."""
        self._sink = sink
        if self._gone is not None:
            asyncio.get_running_loop().call_soon(sink.on_closed, self._gone)

    def feed(self, data: bytes) -> None:
        """Audio from the peer: little-endian int16 of any length up to 200 ms.

        Raises ProtocolError on an odd number of bytes or more than 200 ms.
        """
        if len(data) % 2:
            raise ProtocolError(
                f"audio must be 16-bit samples: {len(data)} bytes is an odd number", field="audio", code="odd_length"
            )
        limit = self._rate_hz * MAX_MESSAGE_MS // 1000
        if len(data) // 2 > limit:
            raise ProtocolError(
                f"audio messages hold at most {MAX_MESSAGE_MS} ms ({limit} samples), got {len(data) // 2}",
                field="audio",
                code="too_long",
            )
        if self._closed or not data:
            return
        self._last_fed = time.monotonic()
        if self.tap is not None:
            self.tap.on_packet(data, self._last_fed)
        pcm = self._resampler.push(np.frombuffer(data, "<i2").astype(np.int16, copy=False))
        if len(pcm):
            self._pieces.append(pcm)
            self._queued += len(pcm)
        while self._queued > MAX_QUEUED_SAMPLES:
            oldest = self._pieces.popleft()
            self._queued -= len(oldest)
            self.dropped_samples += len(oldest)
        if self._queued >= HIGH_WATER_SAMPLES:
            self._room.clear()

    async def ready(self) -> None:
        """Return once less than 1 s is queued, or the port is closed."""
        await self._room.wait()

    def press(self, digit: str) -> None:
        """A key press from the peer. Raises ProtocolError on what is not a key."""
        if len(digit) != 1 or digit not in DIGITS:
            raise ProtocolError("digit must be one of 0-9 * # A-D", field="digit")
        if self._sink is not None and not self._closed:
            self._sink.on_dtmf(digit)

    def send_dtmf(self, digits: str) -> None:
        """Nothing to do: plain PCM has no events of its own, the client is told by message (agent.events.DtmfSent)."""

    def peer_closed(self, reason: str = "peer closed") -> None:
        """The transport is gone: tells the sink, once, and stops."""
        if self._gone is None and not self._closed:
            self._gone = reason
            self._stop()
            if self._sink is not None:
                self._sink.on_closed(reason)

    def stats(self) -> PortStats:
        return PortStats(
            connected=not self._closed,
            packets_sent=self._sent,
            bytes_sent=self._sent_bytes,
            rtp_silence_s=time.monotonic() - self._last_fed,
        )

    async def close(self) -> None:
        """Stop ticking and let waiters go. Idempotent."""
        self._stop()

    def _stop(self) -> None:
        self._closed = True
        self._ticker.remove(self._tick)
        self._pieces.clear()
        self._queued = 0
        self._room.set()

    def _tick(self, tick: int) -> None:
        try:
            self._exchange(tick)
        except Exception:
            # A call without ticks never ends by itself.
            logger.exception("a PCM port failed")
            self.peer_closed("internal error")

    def _exchange(self, tick: int) -> None:
        frame = self._playout.read()
        if frame is not None:
            data = frame.astype("<i2", copy=False).tobytes()
            self._sent += 1
            self._sent_bytes += len(data)
            try:
                self._send(data)
            except ConnectionError:
                self.peer_closed()
        if self._sink is None or self._closed:
            return
        frames = [self._take() for _ in range(2 if self._queued > CATCH_UP_SAMPLES else 1)]
        if self.tap is not None:
            self.tap.on_tick(tick, time.monotonic(), frame, frames)
        for heard in frames:
            if not self._closed:
                self._sink.on_audio(heard)
        if self._silence is None or self._closed:
            return
        match self._silence.check(self._last_fed, time.monotonic()):
            case "stalled", silence_s:
                self._sink.on_stalled(silence_s)
            case "resumed", silence_s:
                self._sink.on_resumed(silence_s)

    def _take(self) -> Pcm:
        frame = np.zeros(HEARING_SAMPLES, np.int16)
        filled = 0
        while filled < HEARING_SAMPLES and self._pieces:
            piece = self._pieces[0]
            take = min(len(piece), HEARING_SAMPLES - filled)
            frame[filled : filled + take] = piece[:take]
            if take == len(piece):
                self._pieces.popleft()
            else:
                self._pieces[0] = piece[take:]
            filled += take
        self._queued -= filled
        if self._queued < HIGH_WATER_SAMPLES:
            self._room.set()
        return frame
