"""A browser's call as a port: one WebRTC peer with one encoding both ways, key presses and the event channel.

The port answers an offer, connects in a task of its own, and from the moment DTLS is up does one frame each way a tick.
It never blocks the loop: a tick is one decode, one encode and one datagram.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Self

from aiortc import RTCDataChannel

from agent.config import MediaSettings
from agent.errors import MediaError, NegotiationError
from agent.media.aiortc_seam import PeerTransport
from agent.media.channel import EventChannel
from agent.media.codecs import make_encoder, make_receiver
from agent.media.liveness import SilenceWatch
from agent.media.outbound import AudioSender
from agent.media.playout import Playout
from agent.media.port import MediaSink
from agent.media.reports import CNAME, Reports
from agent.media.sdp import Local, Offer, build_answer, parse_candidate, parse_offer
from agent.media.stats import PortStats
from agent.media.tap import MediaTap, StreamInfo
from agent.media.ticker import Ticker

__all__ = ["WebRtcPort"]

logger = logging.getLogger(__name__)

CONNECT_S = 20.0
"""A page that has our answer connects in under 2 s; what takes longer has no way through."""
CLOSE_S = 2.0
HOLD_INTERVALS = 2.5
"""The voice waits when nothing came of the peer for this many consent intervals: one lost answer is no absence."""


class WebRtcPort:
    """Implements MediaPort. Make one with `answer`."""

    def __init__(
        self, offer: Offer, *, settings: MediaSettings, ticker: Ticker, on_message: Callable[[str], None]
    ) -> None:
        self._offer = offer
        self._settings = settings
        self._ticker = ticker
        self._playout = Playout(offer.codec.sample_rate_hz, codec=offer.codec)
        self._sink: MediaSink | None = None
        self._gone: str | None = None
        self._connected = False
        self._silence = SilenceWatch(settings.rtp_silence_s)
        self._connected_at = 0.0
        self._heard_at = 0.0
        self._first_tick: int | None = None
        self._bytes_sent = 0
        self._failures = 0
        self._reports = Reports(settings.expected_loss_pct)
        self._running: asyncio.Task[None] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.tap: MediaTap | None = None
        self.answer_sdp = ""
        """The answer to give to the page; all candidates are in it."""
        self._channel = EventChannel(on_message, lambda: self.on_gone("peer closed"))
        encoder = make_encoder(offer.codec, settings)
        event = next(iter(offer.events.items()), None)
        # RFC 3550 section 8.1: an SSRC must be unpredictable; zero is avoided, some peers take it for "none".
        self._sender = AudioSender(encoder, offer.payload_type, event, ssrc=secrets.randbelow((1 << 32) - 1) + 1)
        self._receiver = make_receiver(offer.codec, offer.payload_type, offer.events, settings)
        self._transport = PeerTransport(settings, self, data=offer.data is not None)

    @classmethod
    async def answer(
        cls, sdp: str, *, settings: MediaSettings, ticker: Ticker, on_message: Callable[[str], None]
    ) -> Self:
        """Answer an offer; takes at most 1 s, and a few milliseconds without STUN and TURN servers.

        Args:
            sdp: the page's offer.
            on_message: called on the event loop with each text message of the data channel.

        Raises:
            NegotiationError: the offer cannot be answered; names the part.
            CallRefused: no address or UDP port is free for it (media.interfaces, media.udp_port_min and _max).
        """
        offer = parse_offer(sdp)
        port = cls(offer, settings=settings, ticker=ticker, on_message=on_message)
        try:
            await port._transport.meet(offer)
            await port._transport.gather()
        except BaseException:
            await port.close()
            raise
        local = Local(
            ufrag=port._transport.ufrag,
            password=port._transport.password,
            fingerprints=port._transport.fingerprints,
            candidates=port._transport.candidates,
            ssrc=port._sender.ssrc,
            cname=CNAME,
            session_id=secrets.randbelow(1 << 62) + 1,
        )
        port.answer_sdp = build_answer(offer, local)
        port._running = asyncio.create_task(port._connect(), name="webrtc-connect")
        return port

    @property
    def sample_rate_hz(self) -> int:
        return self._playout.sample_rate_hz

    @property
    def playout(self) -> Playout:
        return self._playout

    @property
    def stream_info(self) -> StreamInfo:
        offer = self._offer
        return StreamInfo("rtp", self.sample_rate_hz, offer.codec.encoding, offer.payload_type, offer.events)

    def attach(self, sink: MediaSink) -> None:
        """Deliver to `sink`: audio from the moment the connection is up, one frame a tick."""
        self._sink = sink
        if self._gone is not None:
            asyncio.get_running_loop().call_soon(sink.on_closed, self._gone)

    def adopt(self, playout: Playout) -> None:
        """Read from `playout`, the call's own, in place of a new one. Raises MediaError if its rate is another."""
        if playout.sample_rate_hz != self.sample_rate_hz:
            raise MediaError(f"the call speaks at {playout.sample_rate_hz} Hz, this codec at {self.sample_rate_hz} Hz")
        playout.codec = self._offer.codec
        self._playout = playout

    def send_message(self, text: str) -> None:
        """Send over the event channel; queued until it opens. What does not fit is dropped and counted in `stats`."""
        self._channel.send(text)

    def send_dtmf(self, digits: str) -> None:
        """Send key presses (RFC 4733). Raises MediaError if the page did not negotiate telephone-event."""
        self._sender.send_dtmf(digits)

    async def add_candidate(self, candidate: str | None, sdp_mid: str | None, sdp_mline_index: int | None) -> None:
        """One trickled candidate of the page; None or "" is the end of candidates, which needs nothing of us.

        Raises NegotiationError on a malformed one, or one for a section that the offer does not have.
        """
        if not candidate:
            return
        parsed = parse_candidate(candidate)
        offer = self._offer
        if sdp_mid is not None and sdp_mid not in offer.mids:
            raise NegotiationError("candidate: sdpMid is not in the offer")
        if sdp_mid is None and sdp_mline_index is not None and not 0 <= sdp_mline_index < len(offer.sections):
            raise NegotiationError("candidate: sdpMLineIndex is not in the offer")
        index = offer.mids.index(sdp_mid) if sdp_mid is not None else sdp_mline_index or 0
        if parsed is not None and (offer.bundled or index == offer.audio):
            await self._transport.add_candidate(parsed)

    def stats(self) -> PortStats:
        """A snapshot."""
        now = time.monotonic()
        silence = now - self._last_packet_at() if self._connected else 0.0
        return PortStats(
            connected=self._connected,
            inbound=replace(self._receiver.counters),
            corrupt=self._receiver.corrupt + self._transport.rejected,
            packets_sent=self._sender.packets,
            bytes_sent=self._sender.octets,
            send_failures=self._failures,
            remote_lost_fraction=self._reports.remote_lost_fraction,
            round_trip_s=self._reports.round_trip_s,
            jitter_s=self._receiver.reception.jitter_s,
            rtp_silence_s=silence,
            rtp_silent=silence > self._settings.rtp_silence_s,
            peer_silence_s=self._absence_s(now),
            messages_dropped=self._channel.dropped,
            messages_ignored=self._channel.ignored,
        )

    async def close(self) -> None:
        """Stop, tell the page, free everything. Idempotent; ends within 2 s even when the page is gone."""
        closing = self._begin_close()
        _, late = await asyncio.wait({closing}, timeout=CLOSE_S)
        if late:
            closing.cancel()
            logger.warning("a WebRTC transport did not close within %.0f s", CLOSE_S)

    # --- from the transport

    def on_rtp(self, data: bytes) -> None:
        self._heard_at = now = time.monotonic()
        if self.tap is not None:
            self.tap.on_packet(data, now)
        self._receiver.receive(data, now)

    def on_rtcp(self, data: bytes) -> None:
        self._heard_at = now = time.monotonic()
        if self._reports.take(data, self._sender, self._receiver, now) and self._closing is None:
            self._sender.expect_loss(self._reports.fec_percent)

    def on_channel(self, channel: RTCDataChannel) -> None:
        self._channel.adopt(channel)

    def on_gone(self, reason: str) -> None:
        if self._gone is not None or self._closing is not None:
            return
        self._gone = reason
        self._begin_close()
        if self._sink is not None:
            self._sink.on_closed(reason)

    # --- inside

    async def _connect(self) -> None:
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._transport.connect()
        except (TimeoutError, ConnectionError) as exc:
            logger.info("a WebRTC connection did not come up: %s", exc or "no answer in time")
            self.on_gone("not connected")
            return
        except Exception:
            # aiortc and OpenSSL raise what they like; without this the call would wait for its first tick for ever.
            logger.exception("connecting a WebRTC transport failed")
            self.on_gone("not connected")
            return
        if self._closing is not None:
            # Closed while the last step of connecting was being carried out: no tick may follow.
            return
        self._connected = True
        self._connected_at = time.monotonic()
        self._ticker.add(self._tick)

    def _tick(self, tick: int) -> None:
        try:
            self._exchange(tick)
        except Exception:
            # A call without ticks never ends by itself.
            logger.exception("a WebRTC port failed")
            self.on_gone("internal error")

    def _exchange(self, tick: int) -> None:
        now = time.monotonic()
        if self._first_tick is None:
            self._first_tick = tick
        elapsed = tick - self._first_tick
        # Read in any case: a reply to a peer that takes no audio must end, too. But not to one that may be gone, who
        # shall hear it when the path, or another, is there.
        away = self._absence_s(now) > HOLD_INTERVALS * self._settings.consent_interval_s
        speech = None if away else self._playout.read()
        if self._offer.direction in ("sendrecv", "sendonly"):
            for packet in self._sender.tick(speech, elapsed, self._playout.encoded):
                self._put(packet)
        if self._reports.due(elapsed):
            self._put(self._reports.build(self._sender, self._receiver, now, time.time()))
        frame, digits = self._receiver.tick(now)
        if self.tap is not None:
            self.tap.on_tick(tick, now, speech, (frame,))
        sink = self._sink
        if sink is None:
            return
        sink.on_audio(frame)
        for digit in digits:
            sink.on_dtmf(digit)
        self._watch_silence(sink, now)

    def _put(self, packet: bytes) -> None:
        size = self._transport.send(packet)
        self._bytes_sent += size
        self._failures += not size

    def _last_packet_at(self) -> float:
        return max(self._receiver.last_packet_at or 0.0, self._connected_at)

    def _absence_s(self, now: float) -> float:
        if not self._connected:
            return 0.0
        return now - max(self._heard_at, self._transport.consent_at, self._connected_at)

    def _watch_silence(self, sink: MediaSink, now: float) -> None:
        if self._offer.direction not in ("sendrecv", "recvonly"):
            return  # the page has said that it sends nothing
        match self._silence.check(self._last_packet_at(), now):
            case "stalled", silence_s:
                sink.on_stalled(silence_s)
            case "resumed", silence_s:
                sink.on_resumed(silence_s)

    def _begin_close(self) -> asyncio.Task[None]:
        if self._closing is None:
            self._ticker.remove(self._tick)
            self._closing = asyncio.create_task(self._shut_down(), name="webrtc-close")
        return self._closing

    async def _shut_down(self) -> None:
        try:
            running = self._running
            if running is not None:
                running.cancel()
                await asyncio.wait({running})
            if self._connected:
                self._put(self._reports.goodbye(self._sender))
            self._connected = False
            self._channel.close()
            await self._transport.close()
        finally:
            # Also when `close` lost patience and cancelled this: the codecs are native memory.
            self._receiver.close()
            self._sender.close()
