"""Opus through libopus: what goes in comes out, FEC repairs, garbage is an error and never a crash."""

from __future__ import annotations

import ctypes.util
import importlib.util

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.errors import EnvironmentFault, MediaError
from agent.media import opus
from agent.media.frames import Pcm
from agent.media.opus import Decoder, Encoder, has_fec, packet_samples


def voice(seconds: float, rate_hz: int, seed: int = 0) -> Pcm:
    """Something speech-like: gliding harmonics with a syllable rhythm."""
    t = np.arange(int(seconds * rate_hz)) / rate_hz
    pitch = 130 + 40 * np.sin(2 * np.pi * 0.7 * t + seed)
    phase = 2 * np.pi * np.cumsum(pitch) / rate_hz
    tone = sum(np.sin(k * phase) / k for k in range(1, 12))
    return (5000 * tone * (0.4 + 0.6 * np.abs(np.sin(2 * np.pi * 2 * t)))).astype(np.int16)


def packets(pcm: Pcm, encoder: Encoder, frame: int) -> list[bytes]:
    return [encoder.encode(pcm[i : i + frame]) for i in range(0, len(pcm) - frame + 1, frame)]


@pytest.mark.parametrize("rate_hz", [8_000, 12_000, 16_000, 24_000, 48_000])
@pytest.mark.parametrize("out_hz", [16_000, 48_000])
def test_a_round_trip_keeps_length_and_energy(rate_hz: int, out_hz: int) -> None:
    pcm = voice(1.0, rate_hz)
    decoder = Decoder(out_hz)
    out = np.concatenate([decoder.decode(p) for p in packets(pcm, Encoder(rate_hz), rate_hz // 50)])
    assert len(out) == out_hz
    assert 0.7 < np.std(out[out_hz // 10 :]) / np.std(pcm[rate_hz // 10 :]) < 1.3


def test_the_round_trip_delays_by_less_than_30_ms() -> None:
    pcm = voice(1.0, 16_000)
    out = np.concatenate(list(map(Decoder().decode, packets(pcm, Encoder(16_000), 320))))
    lags = range(640)
    scores = [float(np.dot(pcm[2000:10_000].astype(float), out[2000 + lag : 10_000 + lag])) for lag in lags]
    assert int(np.argmax(scores)) < 480


@pytest.mark.parametrize("ms", [10, 20, 40, 60])
def test_the_toc_tells_the_duration(ms: int) -> None:
    frame = 24 * ms
    made = packets(voice(0.6, 24_000), Encoder(24_000), frame)
    assert {packet_samples(p) for p in made} == {48 * ms}
    assert {len(Decoder().decode(p)) for p in made} == {16 * ms}


def test_toc_durations_follow_rfc_6716() -> None:
    assert packet_samples(b"") == 0
    assert packet_samples(bytes([0b00000_0_00])) == 480
    assert packet_samples(bytes([0b00011_0_00])) == 2880
    assert packet_samples(bytes([0b01111_0_01])) == 2 * 960
    assert packet_samples(bytes([0b10000_0_10])) == 2 * 120
    assert packet_samples(bytes([0b11111_0_11, 3])) == 3 * 960
    assert packet_samples(bytes([0b11111_0_11])) == 0
    assert packet_samples(bytes([0b11111_0_11, 0])) == 0
    assert packet_samples(bytes([0b00011_0_11, 63])) == 0


def test_in_band_fec_restores_what_concealment_cannot() -> None:
    pcm = voice(4.0, 16_000)
    made = packets(pcm, Encoder(16_000, bitrate=32_000, expected_loss_pct=20), 320)
    whole = Decoder()
    truth = [whole.decode(p) for p in made]
    repaired, concealed = Decoder(), Decoder()
    fec_error = conceal_error = 0.0
    repairs = 0
    for n, packet in enumerate(made):
        if n % 7 == 5 and has_fec(made[n + 1]):
            repairs += 1
            a = repaired.decode_fec(made[n + 1], 320)
            b = concealed.conceal(320)
            fec_error += float(np.square(a.astype(float) - truth[n]).sum())
            conceal_error += float(np.square(b.astype(float) - truth[n]).sum())
        else:
            repaired.decode(packet)
            concealed.decode(packet)
    assert repairs > 8
    assert fec_error < 0.5 * conceal_error


def test_packets_say_whether_they_carry_fec() -> None:
    pcm = voice(1.0, 16_000)
    with_fec = packets(pcm, Encoder(16_000, expected_loss_pct=20), 320)
    without = packets(pcm, Encoder(16_000, expected_loss_pct=0), 320)
    # libopus copies only frames with enough voice in them.
    assert sum(map(has_fec, with_fec)) > 20
    assert not any(map(has_fec, without))


def test_silence_turns_into_dtx_and_speech_turns_back() -> None:
    encoder = Encoder(24_000)
    packets(voice(0.5, 24_000), encoder, 480)
    encoder.allow_dtx(True)
    quiet = [len(encoder.encode(np.zeros(480, np.int16))) for _ in range(20)]
    assert min(quiet) <= 2
    assert len(encoder.encode(voice(0.02, 24_000))) > 20


def test_a_steady_tone_is_kept_while_dtx_is_off() -> None:
    decoder, encoder = Decoder(), Encoder(24_000)
    t = np.arange(480 * 150) / 24_000
    pcm = (9000 * np.sin(2 * np.pi * 300 * t)).astype(np.int16)
    levels = [np.abs(decoder.decode(p).astype(float)).mean() for p in packets(pcm, encoder, 480)]
    assert min(levels[2:]) > 4_000


def test_concealment_fades_when_repeated() -> None:
    decoder = Decoder()
    for p in packets(voice(0.5, 24_000), Encoder(24_000), 480):
        decoder.decode(p)
    levels = [float(np.abs(decoder.conceal(320).astype(float)).mean()) for _ in range(15)]
    assert levels[-1] < 0.2 * levels[0]


def test_bitrate_is_obeyed() -> None:
    pcm = voice(2.0, 24_000)
    low = sum(map(len, packets(pcm, Encoder(24_000, bitrate=12_000, expected_loss_pct=0), 480)))
    high = sum(map(len, packets(pcm, Encoder(24_000, bitrate=64_000, expected_loss_pct=0), 480)))
    assert low * 8 / 2 < 18_000
    assert high > 2 * low


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_garbage_is_a_media_error_or_audio_and_never_a_crash(data: bytes) -> None:
    decoder = Decoder()
    for attempt in (lambda: decoder.decode(data), lambda: decoder.decode_fec(data, 320)):
        try:
            pcm = attempt()
        except MediaError:
            continue
        assert pcm.dtype == np.int16
        assert len(pcm) <= 16 * 120
    assert packet_samples(data) <= 5760
    has_fec(data)


def test_wrong_arguments_are_refused_by_name() -> None:
    with pytest.raises(MediaError, match="44100"):
        Decoder(44_100)
    with pytest.raises(MediaError, match="44100"):
        Encoder(44_100)
    with pytest.raises(MediaError, match="bitrate"):
        Encoder(24_000, bitrate=-5)
    with pytest.raises(MediaError, match="100 samples"):
        Encoder(24_000).encode(np.zeros(100, np.int16))
    with pytest.raises(MediaError):
        Decoder().conceal(0)


def test_a_closed_codec_says_so() -> None:
    decoder, encoder = Decoder(), Encoder(24_000)
    for codec in (decoder, encoder):
        codec.close()
        codec.close()
    with pytest.raises(MediaError, match="closed"):
        decoder.conceal(320)
    with pytest.raises(MediaError, match="closed"):
        encoder.encode(np.zeros(480, np.int16))


def test_a_missing_library_is_an_environment_fault_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opus, "find_spec", lambda name: None)
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    opus._library.cache_clear()
    try:
        with pytest.raises(EnvironmentFault, match="apt-get install libopus0"):
            Decoder()
    finally:
        monkeypatch.undo()
        opus._library.cache_clear()
    assert importlib.util.find_spec("av") is not None
    Decoder()
