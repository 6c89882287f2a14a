"""A recorded caller as a port: its packets come when they came, its ticks when they ticked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from agent.config import MediaSettings
from agent.errors import MediaError, ProtocolError
from agent.media.codec import Codec, codec_named
from agent.media.codecs import make_receiver
from agent.media.pcm import RATES_HZ, PcmPort
from agent.media.playout import Playout
from agent.media.port import MediaPort, MediaSink
from agent.media.stats import PortStats
from agent.media.tap import MediaTap
from agent.media.ticker import Ticker

__all__ = ["Replayed", "open_port"]


class Replayed(MediaPort, Protocol):
    """A port that is driven from outside."""

    tap: MediaTap | None

    def packet(self, data: bytes, now: float) -> None:
        """A packet came."""

    def run_tick(self, tick: int, now: float) -> None:
        """One tick of the media clock."""


def open_port(head: Mapping[str, Any], settings: MediaSettings) -> Replayed:
    """A port for the stream that the head of a packet log describes. Raises MediaError."""
    try:
        rate_hz, payload_type = int(head["rate_hz"]), int(head["payload_type"])
        events = {int(number): int(clock) for number, clock in dict(head["events"]).items()}
        transport, encoding = head["transport"], str(head["encoding"])
    except (KeyError, TypeError, ValueError, OverflowError) as exc:
        raise MediaError(f"packet log: its head does not describe the stream: {exc}") from exc
    if transport == "pcm" and rate_hz in RATES_HZ:
        return _PcmReplay(rate_hz)
    codec = codec_named(encoding)
    if transport == "rtp" and codec is not None:
        return _RtpReplay(codec, payload_type, events, settings)
    raise MediaError(f"packet log: a stream of {transport} {encoding} at {rate_hz} Hz cannot be replayed")


class _RtpReplay:
    """What WebRtcPort does with a caller's packets, without a network."""

    def __init__(self, codec: Codec, payload_type: int, events: Mapping[int, int], settings: MediaSettings) -> None:
        self.tap: MediaTap | None = None
        self._playout = Playout(codec.sample_rate_hz)
        self._sink: MediaSink | None = None
        self._digits = ""
        self._closed = False
        self._receiver = make_receiver(codec, payload_type, events, settings)

    @property
    def sample_rate_hz(self) -> int:
        return self._playout.sample_rate_hz

    @property
    def playout(self) -> Playout:
        return self._playout

    def attach(self, sink: MediaSink) -> None:
        self._sink = sink

    def send_dtmf(self, digits: str) -> None:
        """Nobody to send them to; the call tells by DtmfSent."""

    def stats(self) -> PortStats:
        return PortStats(connected=not self._closed, inbound=self._receiver.counters, corrupt=self._receiver.corrupt)

    def packet(self, data: bytes, now: float) -> None:
        self._receiver.receive(data, now)

    def run_tick(self, tick: int, now: float) -> None:
        if self._closed:
            return
        speech = self._playout.read()
        frame, digits = self._receiver.tick(now)
        if self.tap is not None:
            self.tap.on_tick(tick, now, speech, (frame,))
        if self._sink is None:
            return
        self._sink.on_audio(frame)
        for digit in digits:
            self._sink.on_dtmf(digit)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._receiver.close()


class _HandTicker(Ticker):
    """A ticker that ticks when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.callback: Callable[[int], None] | None = None

    def add(self, callback: Callable[[int], None]) -> None:
        self.callback = callback

    def remove(self, callback: Callable[[int], None]) -> None:  # noqa: ARG002
        self.callback = None


class _PcmReplay(PcmPort):
    """The port of the WebSocket, fed from a log."""

    def __init__(self, rate_hz: int) -> None:
        self._hand = _HandTicker()
        super().__init__(rate_hz, ticker=self._hand, send=lambda _frame: None)

    def packet(self, data: bytes, now: float) -> None:  # noqa: ARG002
        try:
            self.feed(data)
        except ProtocolError as exc:
            raise MediaError(f"packet log: {exc}") from exc

    def run_tick(self, tick: int, now: float) -> None:  # noqa: ARG002
        if self._hand.callback is not None:
            self._hand.callback(tick)
