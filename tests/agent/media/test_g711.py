"""G.711 against the tables of ITU-T G.711, as printed: decision values, and values between them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import MediaError
from agent.media.g711 import G711Decoder, G711Encoder, Law, alaw_tables, mulaw_tables

# Table 1a: (segment end, steps in it, step) of the positive A-law, in units of 1/4096 of full scale.
ALAW_SEGMENTS = (
    (64, 32, 2),
    (128, 16, 4),
    (256, 16, 8),
    (512, 16, 16),
    (1024, 16, 32),
    (2048, 16, 64),
    (4096, 16, 128),
)
# Table 2a: the same of mu-law, in units of 1/8159; the first step is half as long.
MULAW_SEGMENTS = (
    (31, 15, 2), (95, 16, 4), (223, 16, 8), (479, 16, 16), (991, 16, 32), (2015, 16, 64), (4063, 16, 128),
    (8159, 16, 256),
)  # fmt: skip


def alaw_decisions() -> list[int]:
    values = [0]
    for end, steps, step in ALAW_SEGMENTS:
        values += [values[-1] + step * (n + 1) for n in range(steps)]
        assert values[-1] == end
    return values


def mulaw_decisions() -> list[int]:
    values = [0, 1]
    for end, steps, step in MULAW_SEGMENTS:
        values += [values[-1] + step * (n + 1) for n in range(steps)]
        assert values[-1] == end
    return values


@pytest.mark.parametrize("sign", [1, -1])
def test_alaw_is_the_table(sign: int) -> None:
    codes, values = alaw_tables()
    edges = alaw_decisions()
    assert len(edges) == 129
    for n, (low, high) in enumerate(itertools.pairwise(edges)):
        # Character signal: sign bit and number of the interval, even bits inverted (table 1a note 2).
        code = (n | (0x80 if sign > 0 else 0)) ^ 0x55
        assert values[code] == sign * (low + high) // 2 * 8
        for sample in (low * 8, high * 8 - 1):
            pcm = sample if sign > 0 else -sample - 1
            assert codes[pcm & 0xFFFF] == code


@pytest.mark.parametrize("sign", [1, -1])
def test_mulaw_is_the_table(sign: int) -> None:
    codes, values = mulaw_tables()
    edges = mulaw_decisions()
    assert len(edges) == 129
    for n, (low, high) in enumerate(itertools.pairwise(edges)):
        # All bits inverted (table 2a note 2).
        code = 0xFF ^ (n | (0 if sign > 0 else 0x80))
        assert values[code] == sign * (0 if n == 0 else (low + high) // 2) * 4
        for sample in (low * 4, high * 4 - 1):
            pcm = sample if sign > 0 else -sample - 1
            assert codes[pcm & 0xFFFF] == code


@pytest.mark.parametrize(("tables", "loudest"), [(alaw_tables, 32_256), (mulaw_tables, 32_124)])
def test_overload_is_clipped_to_the_loudest_step(tables: object, loudest: int) -> None:
    codes, values = tables()  # type: ignore[operator]
    assert values[codes[32_767]] == loudest
    assert values[codes[0x8000]] == -loudest


@pytest.mark.parametrize("law", ["PCMA", "PCMU"])
def test_silence_and_speech_survive_a_round_trip(law: Law) -> None:
    encoder, decoder = G711Encoder(law), G711Decoder(law)
    t = np.arange(8_000) / 8_000
    pcm = (8_000 * np.sin(2 * np.pi * 440 * t) * np.sin(2 * np.pi * 2 * t)).astype(np.int16)
    out = np.concatenate([decoder.decode(encoder.encode(pcm[at : at + 160])) for at in range(0, 8_000, 160)])
    assert out.dtype == np.int16
    assert len(out) == 16_000
    wide = 8_000 * np.sin(2 * np.pi * 440 * (np.arange(16_000) - 50) / 16_000)
    wide *= np.sin(2 * np.pi * 2 * (np.arange(16_000) - 50) / 16_000)
    lags = range(80)
    noise = min(float(np.square(out[1_000:15_000] - np.roll(wide, lag - 40)[1_000:15_000]).mean()) for lag in lags)
    assert 10 * np.log10(np.square(wide).mean() / noise) > 30
    quiet = G711Decoder(law).decode(encoder.encode(np.zeros(160, np.int16)))
    assert np.abs(quiet).max() <= 16


@given(st.binary(min_size=1, max_size=960))
def test_every_byte_string_is_audio_of_its_length(data: bytes) -> None:
    decoder = G711Decoder("PCMU")
    assert decoder.inspect(data) == (len(data), False, False)
    assert len(decoder.decode(data)) == 2 * len(data)


def test_what_does_not_fit_is_refused() -> None:
    decoder = G711Decoder("PCMA")
    assert decoder.inspect(b"").samples == decoder.inspect(bytes(961)).samples == 0
    for bad in (b"", bytes(961)):
        with pytest.raises(MediaError, match="960"):
            decoder.decode(bad)
    encoder = G711Encoder("PCMA")
    with pytest.raises(MediaError, match="160 expected"):
        encoder.encode(np.zeros(100, np.int16))
    encoder.close()
    with pytest.raises(MediaError, match="closed"):
        encoder.encode(np.zeros(160, np.int16))
