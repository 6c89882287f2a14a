"""Where a call meets its transport: the port (WebRTC, WebSocket, RTP) and the sink (the call)."""

from __future__ import annotations

from typing import Protocol

from agent.media.frames import Pcm
from agent.media.playout import Playout
from agent.media.stats import PortStats

__all__ = ["MediaPort", "MediaSink", "ResumablePort"]


class MediaSink(Protocol):
    """The call's side of a port. All are called on the event loop and must return at once."""

    def on_audio(self, pcm: Pcm) -> None:
        """One 20 ms frame from the caller: int16 [320], 16 kHz mono; exactly one a tick, whatever arrived."""

    def on_dtmf(self, digit: str) -> None:
        """One finished key press: 0-9 * # A-D."""

    def on_stalled(self, silence_s: float) -> None:
        """No packet from the caller for media.rtp_silence_s; the peer may still live. Called once a silence."""

    def on_resumed(self, silence_s: float) -> None:
        """Packets are back after `silence_s` in all."""

    def on_closed(self, reason: str) -> None:
        """The peer is gone. Called once."""


class MediaPort(Protocol):
    """One caller's audio, whatever carries it (WebRTC, RTP, WebSocket)."""

    @property
    def sample_rate_hz(self) -> int:
        """The rate at which `playout` is read."""
        ...

    @property
    def playout(self) -> Playout:
        """What the agent says next; the port reads one frame of it each tick."""
        ...

    def attach(self, sink: MediaSink) -> None:
        """Start delivering to `sink`."""

    def send_dtmf(self, digits: str) -> None:
        """Send key presses to the peer; raises MediaError where the transport has none."""

    def stats(self) -> PortStats:
        """Counts since the start of the call."""
        ...

    async def close(self) -> None:
        """Stop, tell the peer, free everything. Idempotent; ends within 2 s."""


class ResumablePort(MediaPort, Protocol):
    """A port that can take a call over from another one."""

    def adopt(self, playout: Playout) -> None:
        """Read from `playout` from here on, in place of its own; before `attach`. Raises MediaError at another rate."""
