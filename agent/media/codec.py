"""The audio encodings a call can be carried in, and what the media path needs of each. Pure but for the codecs' state.

RFC 3551 table 4 gives the static payload types and clock rates. G.722 samples at 16 kHz and yet counts RTP time at
8 kHz, an error of RFC 1890 that was kept for compatibility (RFC 3551 section 4.5.2).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from agent.media.frames import SPEAKING_HZ, Pcm

__all__ = ["CODECS", "G722", "OPUS", "PCMA", "PCMU", "Codec", "Contents", "Decoder", "Encoder", "codec_named"]

MAX_PACKET_MS = 120
"""Longest packet taken of any encoding, as Opus has it (RFC 6716 section 3.2.5)."""


@dataclass(frozen=True, slots=True)
class Codec:
    """One encoding as SDP names it (RFC 8866 section 6.6)."""

    name: str
    clock_hz: int
    """Of RTP timestamps."""
    sample_rate_hz: int
    """Of the speech that is encoded: the rate of the call's playout."""
    payload_type: int | None
    """The static one (RFC 3551 section 6), valid without a=rtpmap; None: always dynamic."""
    channels: int = 1
    """As a=rtpmap has it; Opus says 2 whatever it carries (RFC 7587 section 7)."""

    @property
    def encoding(self) -> str:
        """The value of a=rtpmap, as `opus/48000/2`."""
        return f"{self.name}/{self.clock_hz}" + (f"/{self.channels}" if self.channels > 1 else "")


OPUS = Codec("opus", 48_000, SPEAKING_HZ, None, 2)
G722 = Codec("G722", 8_000, 16_000, 9)
PCMU = Codec("PCMU", 8_000, 8_000, 0)
PCMA = Codec("PCMA", 8_000, 8_000, 8)
CODECS = (OPUS, G722, PCMU, PCMA)
"""Best sound first."""


def codec_named(encoding: str) -> Codec | None:
    """The one an a=rtpmap value means; names are not case-sensitive, a channel count of 1 may be left out."""
    wanted = encoding.strip().lower().removesuffix("/1")
    return next((codec for codec in CODECS if codec.encoding.lower() == wanted), None)


class Contents(NamedTuple):
    """What can be told of a packet without decoding it."""

    samples: int
    """Duration in the RTP clock; 0: not a valid packet."""
    fec: bool = False
    """It carries a copy of the packet before it."""
    dtx: bool = False
    """It says that the sender stops until there is speech."""


class Encoder(Protocol):
    """Mono PCM to RTP payloads, one call's state."""

    @property
    def clock_hz(self) -> int:
        """Of RTP timestamps."""
        ...

    @property
    def sample_rate_hz(self) -> int:
        """Of the frames it takes."""
        ...

    @property
    def key(self) -> str:
        """What speech encoded beforehand must have in common with it to be sent in its place (EncodedSpeech.key)."""
        ...

    @property
    def discontinuous(self) -> bool:
        """Whether silence may go unsent (Opus DTX). Where not, a packet goes out every tick: telephone gateways take
        missing packets for loss and a silent stream for a dead one."""
        ...

    @property
    def stateful(self) -> bool:
        """Whether a frame's payload depends on the frames before it."""
        ...

    def encode(self, pcm: Pcm) -> bytes:
        """One 20 ms frame, int16 [sample_rate_hz / 50]. Raises MediaError on another length or after `close`."""
        ...

    def allow_dtx(self, allowed: bool) -> None:
        """Let silence become DTX, where there is such a thing."""

    def expect_loss(self, percent: int) -> None:
        """Prepare for this loss, where there is in-band FEC."""

    def reset(self) -> None:
        """Forget the past: for a new stream of speech."""

    def close(self) -> None:
        """Free the state. Idempotent."""


class Decoder(Protocol):
    """RTP payloads to 16 kHz mono, one call's state."""

    @property
    def clock_hz(self) -> int:
        """Of RTP timestamps."""
        ...

    def inspect(self, payload: bytes) -> Contents:
        """What a payload holds. Never raises."""
        ...

    def decode(self, payload: bytes) -> Pcm:
        """One packet to int16 [n], n its duration at 16 kHz. Raises MediaError on a corrupted packet."""
        ...

    def decode_fec(self, payload: bytes, samples: int) -> Pcm:
        """The lost packet of `samples` (at 16 kHz) before `payload`, from its copy in it."""
        ...

    def conceal(self, samples: int) -> Pcm:
        """`samples` (at 16 kHz, a multiple of 40) of extrapolation. Fading it is the caller's part."""
        ...

    def close(self) -> None:
        """Free the state. Idempotent."""
