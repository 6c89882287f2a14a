"""Sample rates: lengths add up, tones keep pitch and level, aliases are kept out, pieces join without a seam."""

from __future__ import annotations

import numpy as np
import pytest

from agent.errors import MediaError
from agent.media.frames import Pcm
from agent.media.resample import StreamResampler, resample


def tone(hz: float, rate_hz: int, seconds: float = 1.0) -> Pcm:
    return (10_000 * np.sin(2 * np.pi * hz * np.arange(int(rate_hz * seconds)) / rate_hz)).astype(np.int16)


RATES = [(24_000, 16_000), (48_000, 16_000), (8_000, 16_000), (16_000, 24_000), (22_050, 24_000), (16_000, 8_000)]


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_a_stream_keeps_pitch_level_and_length(from_hz: int, to_hz: int) -> None:
    stream = StreamResampler(from_hz, to_hz)
    pcm = tone(1000, from_hz)
    pieces = [stream.push(pcm[i : i + from_hz // 50]) for i in range(0, len(pcm), from_hz // 50)]
    out = np.concatenate(pieces)
    assert abs(len(out) - to_hz) <= 1
    expected = 10_000 * np.sin(2 * np.pi * 1000 * (np.arange(len(out)) / to_hz - stream.delay_s))
    assert np.abs(out - expected)[to_hz // 20 :].max() < 30
    assert stream.delay_s <= 0.0032


@pytest.mark.parametrize(("from_hz", "to_hz"), RATES)
def test_pieces_of_any_length_join_without_a_seam(from_hz: int, to_hz: int) -> None:
    pcm = tone(700, from_hz, 0.5)
    whole = StreamResampler(from_hz, to_hz).push(pcm)
    stream, at, pieces = StreamResampler(from_hz, to_hz), 0, []
    for size in [1, 2, 3, 7, 160, 441, 0, 13] * 200:
        pieces.append(stream.push(pcm[at : at + size]))
        at += size
    joined = np.concatenate(pieces)
    assert len(joined) == len(whole)
    assert np.abs(joined.astype(int) - whole).max() <= 1


def test_what_lies_above_the_new_band_is_kept_out() -> None:
    out = StreamResampler(24_000, 16_000).push(tone(8_600, 24_000))
    assert np.abs(out[500:].astype(int)).max() < 10
    out = StreamResampler(24_000, 16_000).push(tone(7_000, 24_000))
    assert np.abs(out[500:].astype(int)).max() > 9_900


def test_a_recording_is_resampled_without_delay() -> None:
    out = resample(tone(1000, 24_000), 24_000, 16_000)
    expected = tone(1000, 16_000)
    assert len(out) == len(expected)
    assert np.abs(out.astype(int) - expected)[500:-500].max() < 5


def test_the_same_rate_is_untouched() -> None:
    pcm = tone(500, 16_000)
    assert resample(pcm, 16_000, 16_000) is pcm
    assert StreamResampler(16_000, 16_000).push(pcm) is pcm
    assert len(resample(np.zeros(0, np.int16), 8_000, 16_000)) == 0


def test_full_scale_is_clipped_and_does_not_wrap() -> None:
    square = np.repeat(np.array([32767, -32768] * 50, np.int16), 40)
    out = StreamResampler(24_000, 16_000).push(square)
    assert out.max() == 32767
    assert out.min() == -32768


def test_clear_forgets_the_past_and_last_flushes_it() -> None:
    stream = StreamResampler(24_000, 16_000)
    stream.push(tone(1000, 24_000, 0.1))
    stream.clear()
    assert not stream.push(np.zeros(480, np.int16)).any()
    click = np.zeros(480, np.int16)
    click[-1] = 20_000
    assert np.abs(stream.push(click, last=True).astype(int)).max() > 5_000


def test_rates_without_a_small_ratio_are_refused() -> None:
    with pytest.raises(MediaError, match="ratio"):
        StreamResampler(44_101, 16_000)
