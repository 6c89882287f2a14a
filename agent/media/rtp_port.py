"""A telephone's call as a port: plain RTP or SDES-SRTP, one encoding both ways, key presses, hold (RFC 3550, 3551).

Signaling owns the negotiation and tells its outcome by `agree`, at the start and after each re-INVITE. While the peer
holds the call nothing is read from the playout and the sink gets no frames: the call stands still.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from agent.config import MediaSettings
from agent.errors import MediaError
from agent.media.codecs import make_encoder, make_receiver
from agent.media.frames import FRAME_MS, Pcm
from agent.media.inbound import AudioReceiver
from agent.media.keymerge import KeyMerge
from agent.media.liveness import SilenceWatch
from agent.media.outbound import AudioSender
from agent.media.playout import Playout
from agent.media.port import MediaSink
from agent.media.reports import Reports
from agent.media.resample import StreamResampler
from agent.media.rtp import is_rtcp
from agent.media.rtp_latch import Latch
from agent.media.rtp_session import Address, RtpSession
from agent.media.rtp_sockets import RtpSockets
from agent.media.rtp_watch import Expected, RtpLimits, RtpWatch
from agent.media.srtp import Cipher
from agent.media.stats import PortStats
from agent.media.tap import MediaTap, StreamInfo
from agent.media.ticker import Ticker

__all__ = ["RtpPort"]

log = logging.getLogger(__name__)

RTP_HEADER_BYTES = 12
COMFORT_NOISE = 13
"""RFC 3551 table 4; senders use it whether or not it was negotiated."""
MAX_WAITING_KEYS = 64
"""As AudioReceiver's."""
VANISHED = "peer vanished"


class RtpPort:
    """Implements MediaPort.

    Args:
        session: the first agreement; its encoding sets the playout's rate for the whole call.
        sockets: the port's from here on.
        limits: how long RTP may be missing.
        send_key: sends one key press where telephone-event was not agreed on (SIP INFO); None: there is no such way.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        session: RtpSession,
        sockets: RtpSockets,
        *,
        settings: MediaSettings,
        ticker: Ticker,
        limits: RtpLimits,
        send_key: Callable[[str], None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = now
        self._sockets = sockets
        self._settings = settings
        self._ticker = ticker
        self._send_key = send_key
        self._playout = Playout(session.codec.sample_rate_hz)
        self._sink: MediaSink | None = None
        self._gone: str | None = None
        self._closed = False
        self._latch = Latch()
        self._watch = RtpWatch(limits, now())
        self._silence = SilenceWatch(settings.rtp_silence_s)
        self._began_at = self._last_at = now()
        self._heard_at: float | None = None
        self._first_tick: int | None = None
        self._undecipherable = 0
        self._reports = Reports(settings.expected_loss_pct)
        self._keys = KeyMerge()
        self._pressed: deque[str] = deque(maxlen=MAX_WAITING_KEYS)
        self.tap: MediaTap | None = None
        self._session = session
        self._cipher = Cipher(session.send_key, session.receive_key)
        self._sender, self._resampler = self._make_sender(session)
        self._receiver = self._make_receiver(session)
        self._latch.describe(session.remote, known=session.known)
        sockets.listen(self._on_rtp, self._on_rtcp)
        ticker.add(self._tick)

    @property
    def sample_rate_hz(self) -> int:
        return self._playout.sample_rate_hz

    @property
    def playout(self) -> Playout:
        return self._playout

    @property
    def on_hold(self) -> bool:
        """The peer does not hear us."""
        return not self._session.sends

    @property
    def stream_info(self) -> StreamInfo:
        session = self._session
        events = {session.event[0]: session.event[1]} if session.event else {}
        return StreamInfo("rtp", self.sample_rate_hz, session.codec.encoding, session.payload_type, events)

    def attach(self, sink: MediaSink) -> None:
        """Deliver to `sink` from the next tick on."""
        self._sink = sink
        # An outgoing call may have rung for a minute.
        self._watch.restart(self._now())
        if self._gone is not None:
            asyncio.get_running_loop().call_soon(sink.on_closed, self._gone)

    def agree(self, session: RtpSession) -> None:
        """The peers have agreed anew: hold, resume, another address, encoding or key."""
        before, self._session = self._session, session
        self._latch.describe(session.remote, known=session.known)
        if self._cipher.keys != (session.send_key, session.receive_key):
            self._cipher = Cipher(session.send_key, session.receive_key)
        coding = (session.codec, session.payload_type, session.event)
        if coding != (before.codec, before.payload_type, before.event):
            self._sender.close()
            self._receiver.close()
            self._sender, self._resampler = self._make_sender(session)
            self._receiver = self._make_receiver(session)
        speech = session.sends and session.hears
        self._watch.expect(Expected.SPEECH if speech else Expected.NOTHING, self._now())

    def press(self, digit: str) -> None:
        """A key press of the peer that came by signalling."""
        if self._keys.take(digit, "info", self._now()):
            self._pressed.append(digit)

    def send_dtmf(self, digits: str) -> None:
        """Send key presses: RFC 4733 where it was agreed on, by signalling elsewhere. Raises MediaError."""
        if self._session.event is not None or self._send_key is None:
            self._sender.send_dtmf(digits)
            return
        for digit in digits:
            self._send_key(digit)

    def stats(self) -> PortStats:
        """A snapshot."""
        now = self._now()
        silence = now - self._last_at
        return PortStats(
            connected=self._heard_at is not None,
            inbound=replace(self._receiver.counters),
            corrupt=self._receiver.corrupt + self._undecipherable + self._latch.refused,
            packets_sent=self._sender.packets,
            bytes_sent=self._sender.octets,
            send_failures=self._sockets.failures,
            remote_lost_fraction=self._reports.remote_lost_fraction,
            round_trip_s=self._reports.round_trip_s,
            jitter_s=self._receiver.reception.jitter_s,
            rtp_silence_s=silence,
            rtp_silent=silence > self._settings.rtp_silence_s,
            peer_silence_s=now - (self._heard_at or self._began_at),
        )

    async def close(self) -> None:
        """Stop, say RTCP BYE, free everything. Idempotent."""
        if self._closed:
            return
        self._closed = True
        self._ticker.remove(self._tick)
        self._put_rtcp(self._reports.goodbye(self._sender))
        self._sockets.close()
        self._sender.close()
        self._receiver.close()

    # --- from the sockets

    def _on_rtp(self, data: bytes, source: Address) -> None:
        if is_rtcp(data):
            # Some send it here without having agreed on rtcp-mux.
            self._on_rtcp(data, source)
            return
        plain = self._cipher.unprotect(data)
        if plain is None:
            self._undecipherable += 1
            return
        if len(plain) < RTP_HEADER_BYTES or plain[0] >> 6 != 2:
            self._receiver.corrupt += 1
            return
        # The receiver parses it; here the source is enough, a hundred times each tick.
        if not self._latch.take(source, int.from_bytes(plain[8:12], "big")):
            return
        self._heard_at = self._last_at = now = self._now()
        if self.tap is not None:
            self.tap.on_packet(plain, now)
        self._receiver.receive(plain, now)

    def _on_rtcp(self, data: bytes, source: Address) -> None:
        plain = self._cipher.unprotect_rtcp(data) if self._latch.is_peer(source[0]) else None
        if plain is None:
            self._undecipherable += 1
            return
        self._heard_at = now = self._now()
        if self._reports.take(plain, self._sender, self._receiver, now):
            self._sender.expect_loss(self._reports.fec_percent)

    # --- inside

    def _make_sender(self, session: RtpSession) -> tuple[AudioSender, StreamResampler | None]:
        encoder = make_encoder(session.codec, self._settings)
        ssrc = secrets.randbelow((1 << 32) - 1) + 1
        sender = AudioSender(encoder, session.payload_type, session.event, ssrc=ssrc)
        # A new agreement is over the same path.
        sender.expect_loss(self._reports.fec_percent)
        if encoder.sample_rate_hz == self._playout.sample_rate_hz:
            self._playout.codec = session.codec
            return sender, None
        # What is resampled is encoded anew, so packets made before are of no use.
        self._playout.codec = None
        return sender, StreamResampler(self._playout.sample_rate_hz, encoder.sample_rate_hz)

    def _make_receiver(self, session: RtpSession) -> AudioReceiver:
        events = {session.event[0]: session.event[1]} if session.event else {}
        noise = () if COMFORT_NOISE in events or session.payload_type == COMFORT_NOISE else (COMFORT_NOISE,)
        return make_receiver(session.codec, session.payload_type, events, self._settings, noise)

    def _tick(self, tick: int) -> None:
        try:
            self._exchange(tick)
        except Exception:
            # A call without ticks never ends by itself.
            log.exception("an RTP port failed")
            self._on_gone("internal error")

    def _exchange(self, tick: int) -> None:
        now = self._now()
        if self._first_tick is None:
            self._first_tick = tick
        elapsed = tick - self._first_tick
        if self._reports.due(elapsed):
            self._put_rtcp(self._reports.build(self._sender, self._receiver, now, time.time()))
        frame, digits = self._receiver.tick(now)
        if self._session.sends and self._sink is not None:
            self._converse(tick, elapsed, frame, digits, now)
        fault = self._watch.fault(self._receiver.last_packet_at, now) if self._sink is not None else None
        if fault is not None:
            log.warning("a call is given up: %s", fault)
            self._on_gone(VANISHED)

    def _converse(self, tick: int, elapsed: int, frame: Pcm, digits: list[str], now: float) -> None:
        sink = self._sink
        assert sink is not None
        speech = self._playout.read()
        out, encoded = speech, self._playout.encoded
        if self._resampler is not None and speech is not None:
            out, encoded = _exactly(self._resampler.push(speech), self._resampler.to_hz), None
        for packet in self._sender.tick(out, elapsed, encoded):
            self._put_rtp(packet)
        if self.tap is not None:
            self.tap.on_tick(tick, now, speech, (frame,))
        sink.on_audio(frame)
        pressed = [digit for digit in digits if self._keys.take(digit, "rtp", now)]
        for digit in [*pressed, *self._pressed]:
            sink.on_dtmf(digit)
        self._pressed.clear()
        if self._session.hears:
            match self._silence.check(self._last_at, now):
                case "stalled", silence_s:
                    sink.on_stalled(silence_s)
                case "resumed", silence_s:
                    sink.on_resumed(silence_s)

    def _put_rtp(self, packet: bytes) -> None:
        if self._latch.may_send() and self._latch.target is not None:
            self._sockets.send_rtp(self._cipher.protect(packet), self._latch.target)

    def _put_rtcp(self, packet: bytes) -> None:
        if not self._latch.may_send() or self._latch.target is None:
            return
        host, port = self._latch.target
        protected = self._cipher.protect_rtcp(packet)
        if self._session.rtcp_mux:
            self._sockets.send_rtp(protected, (host, port))
        elif port < 65535:
            self._sockets.send_rtcp(protected, (host, port + 1))

    def _on_gone(self, reason: str) -> None:
        if self._gone is not None or self._closed:
            return
        self._gone = reason
        self._ticker.remove(self._tick)
        if self._sink is not None:
            self._sink.on_closed(reason)


def _exactly(pcm: Pcm, rate_hz: int) -> Pcm:
    """A whole frame, whatever the filter's start held back."""
    samples = rate_hz * FRAME_MS // 1000
    if len(pcm) < samples:
        raise MediaError(f"a frame of {samples} samples was expected, {len(pcm)} came")
    return pcm[:samples]
