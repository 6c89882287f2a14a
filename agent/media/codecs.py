"""Which class codes which encoding."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from agent.config import MediaSettings
from agent.errors import MediaError
from agent.media import opus
from agent.media.codec import G722, OPUS, PCMA, PCMU, Codec, Decoder, Encoder
from agent.media.g711 import G711Decoder, G711Encoder
from agent.media.g722 import G722Decoder, G722Encoder
from agent.media.inbound import AudioReceiver
from agent.media.jitter import JitterBuffer

__all__ = ["make_decoder", "make_encoder", "make_receiver"]


def make_encoder(codec: Codec, settings: MediaSettings) -> Encoder:
    """An encoder that takes `codec.sample_rate_hz`, with the settings' bit rate and complexity where it has any.

    Raises MediaError for an encoding there is no class for.
    """
    if codec == OPUS:
        return opus.Encoder(
            codec.sample_rate_hz,
            bitrate=settings.opus_bitrate,
            complexity=settings.opus_complexity,
            expected_loss_pct=settings.expected_loss_pct,
        )
    if codec == G722:
        return G722Encoder()
    if codec == PCMA:
        return G711Encoder("PCMA")
    if codec == PCMU:
        return G711Encoder("PCMU")
    raise MediaError(f"no encoder for {codec.encoding}")


def make_decoder(codec: Codec) -> Decoder:
    """A decoder to 16 kHz. Raises MediaError for an encoding there is no class for."""
    if codec == OPUS:
        return opus.Decoder()
    if codec == G722:
        return G722Decoder()
    if codec == PCMA:
        return G711Decoder("PCMA")
    if codec == PCMU:
        return G711Decoder("PCMU")
    raise MediaError(f"no decoder for {codec.encoding}")


def make_receiver(
    codec: Codec,
    payload_type: int,
    events: Mapping[int, int],
    settings: MediaSettings,
    noise_payload_types: Collection[int] = (),
) -> AudioReceiver:
    """A receiver of this encoding with the settings' jitter buffer. Arguments as AudioReceiver's. Raises MediaError."""
    jitter: JitterBuffer[bytes] = JitterBuffer(
        clock_hz=codec.clock_hz,
        min_ms=settings.jitter_min_ms,
        start_ms=settings.jitter_start_ms,
        max_ms=settings.jitter_max_ms,
    )
    return AudioReceiver(payload_type, events, jitter, make_decoder(codec), noise_payload_types)
