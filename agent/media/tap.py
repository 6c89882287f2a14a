"""What a recorder sees of a port: each packet as it came, and each tick of the pacer with both sides' frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, runtime_checkable

from agent.media.frames import Pcm

__all__ = ["MediaTap", "StreamInfo", "Tappable"]


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """What must be known of a caller's stream to decode it again."""

    transport: Literal["rtp", "pcm"]
    rate_hz: int
    """Rate at which the playout is read; for PCM also that of the caller's audio."""
    encoding: str = ""
    """As a=rtpmap has it, `opus/48000/2` (RTP)."""
    payload_type: int = 0
    """Its number (RTP)."""
    events: Mapping[int, int] = field(default_factory=dict)
    """Payload type to clock of each telephone-event (RTP)."""


class MediaTap(Protocol):
    """Both are called on the event loop, must return at once and must not raise."""

    def on_packet(self, data: bytes, now: float) -> None:
        """What came from the caller at `now`: a decrypted RTP packet, or a PCM message."""

    def on_tick(self, tick: int, now: float, agent: Pcm | None, caller: Sequence[Pcm]) -> None:
        """One tick of the media clock, before the call hears it.

        Args:
            tick: its number; skipped numbers are time in which nothing was played or heard.
            now: the monotonic time that the port used.
            agent: the frame that leaves, at the port's rate; None for silence.
            caller: int16 [320] at 16 kHz each; mostly one, two while a backlog is worked off.
        """


@runtime_checkable
class Tappable(Protocol):
    """A port that can be recorded."""

    tap: MediaTap | None

    @property
    def stream_info(self) -> StreamInfo: ...
