"""G.722: speech comes back, garbage is audio or an error, time counts at 8 kHz."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import MediaError
from agent.media.g722 import G722Decoder, G722Encoder


def tones() -> np.ndarray:
    t = np.arange(16_000) / 16_000
    return (4_000 * np.sin(2 * np.pi * 500 * t) + 3_000 * np.sin(2 * np.pi * 5_500 * t)).astype(np.int16)


def test_a_frame_is_160_bytes_and_both_bands_survive() -> None:
    encoder, decoder, pcm = G722Encoder(), G722Decoder(), tones()
    packets = [encoder.encode(pcm[at : at + 320]) for at in range(0, 16_000, 320)]
    assert {len(packet) for packet in packets} == {160}
    assert {decoder.inspect(packet).samples for packet in packets} == {160}
    out = np.concatenate([decoder.decode(packet) for packet in packets])
    assert len(out) == 16_000
    spectrum = np.abs(np.fft.rfft(out[4_000:12_000].astype(float)))
    wanted = np.abs(np.fft.rfft(pcm[4_000:12_000].astype(float)))
    for hz in (500, 5_500):
        assert 0.85 < spectrum[hz // 2] / wanted[hz // 2] < 1.15
    lags = [
        float(np.square(out[4_000:12_000].astype(float) - np.roll(pcm, lag)[4_000:12_000]).mean()) for lag in range(60)
    ]
    assert 10 * np.log10(np.square(pcm.astype(float)).mean() / min(lags)) > 20


def test_a_reset_encoder_is_a_new_one() -> None:
    encoder, pcm = G722Encoder(), tones()
    first = [encoder.encode(pcm[at : at + 320]) for at in range(0, 3_200, 320)]
    again = [encoder.encode(pcm[at : at + 320]) for at in range(0, 3_200, 320)]
    encoder.reset()
    assert again != first == [encoder.encode(pcm[at : at + 320]) for at in range(0, 3_200, 320)]


@settings(max_examples=50, deadline=None)
@given(st.binary(max_size=1_000))
def test_garbage_is_audio_of_its_length_or_a_media_error(data: bytes) -> None:
    decoder = G722Decoder()
    if 0 < len(data) <= 960:
        assert len(decoder.decode(data)) == 2 * len(data)
    else:
        assert decoder.inspect(data).samples == 0
        with pytest.raises(MediaError, match="bytes"):
            decoder.decode(data)


def test_wrong_lengths_and_closed_codecs_are_errors() -> None:
    encoder, decoder = G722Encoder(), G722Decoder()
    with pytest.raises(MediaError, match="320 expected"):
        encoder.encode(np.zeros(160, np.int16))
    for codec in (encoder, decoder):
        codec.close()
        codec.close()
    with pytest.raises(MediaError, match="closed"):
        encoder.encode(np.zeros(320, np.int16))
    with pytest.raises(MediaError, match="closed"):
        decoder.decode(bytes(160))
