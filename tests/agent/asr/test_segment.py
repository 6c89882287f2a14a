"""The growing audio: its levels, its ends, its cuts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.asr.segment import RATE_HZ, SpeechBuffer

Pcm = npt.NDArray[np.int16]


def noise(seconds: float, amplitude: float, seed: int = 0) -> Pcm:
    samples = np.random.default_rng(seed).normal(0, amplitude, int(seconds * RATE_HZ))
    return np.clip(samples, -32768, 32767).astype(np.int16)


def filled(*parts: Pcm) -> SpeechBuffer:
    buffer = SpeechBuffer()
    for part in parts:
        buffer.append(part)
    return buffer


@given(st.lists(st.integers(0, 5000), max_size=40))
def test_whatever_the_pieces_the_audio_is_whole(sizes: list[int]) -> None:
    whole = noise(sum(sizes) / RATE_HZ + 0.1, 1000)[: sum(sizes)]
    buffer = SpeechBuffer()
    at = 0
    for size in sizes:
        buffer.append(whole[at : at + size])
        at += size
    assert len(buffer) == len(whole)
    np.testing.assert_array_equal(buffer.slice(len(whole)), whole)


def test_levels_do_not_depend_on_how_the_audio_was_pushed() -> None:
    audio = np.concatenate([noise(0.5, 3), noise(1, 3000), noise(0.33, 3)])
    at_once = filled(audio)
    in_pieces = filled(*(audio[at : at + 77] for at in range(0, len(audio), 77)))
    assert at_once.speech() == in_pieces.speech()


def test_a_slice_keeps_its_samples_while_the_buffer_grows() -> None:
    buffer = filled(noise(1, 1000))
    early = buffer.slice(16_000)
    copy = early.copy()
    for seed in range(30):
        buffer.append(noise(1, 1000, seed))
    np.testing.assert_array_equal(early, copy)


def test_speech_ends_with_the_last_loud_frame() -> None:
    start, end = filled(noise(0.4, 3), noise(2, 3000), noise(0.6, 3)).speech()
    assert abs(start - 0.4 * RATE_HZ) <= 320
    assert abs(end - 2.4 * RATE_HZ) <= 320


def test_noise_close_to_the_speech_is_not_taken_for_a_pause() -> None:
    audio = filled(noise(2, 3000), noise(1, 300))
    assert audio.speech()[1] == len(audio)


def test_silence_has_no_speech() -> None:
    buffer = filled(np.zeros(RATE_HZ, np.int16), noise(1, 5))
    assert buffer.silent
    assert buffer.speech() == (0, 0)
    buffer.append(noise(0.1, 3000))
    assert not buffer.silent


def test_an_empty_buffer_is_silent() -> None:
    assert SpeechBuffer().silent
    assert SpeechBuffer().speech() == (0, 0)


def test_the_cut_is_in_the_middle_of_the_pause() -> None:
    buffer = filled(noise(14, 3000), noise(0.3, 3), noise(6, 3000))
    at = buffer.quietest(12 * RATE_HZ, 20 * RATE_HZ)
    assert 14.0 * RATE_HZ < at < 14.3 * RATE_HZ


def test_after_a_cut_the_rest_is_measured_anew() -> None:
    quiet, loud = noise(1, 3), noise(2, 3000)
    buffer = filled(loud, quiet, loud, quiet)
    buffer.cut(3 * RATE_HZ)
    np.testing.assert_array_equal(buffer.slice(len(buffer)), np.concatenate([loud, quiet]))
    assert buffer.speech() == (0, 2 * RATE_HZ)
    buffer.cut(2 * RATE_HZ)
    assert buffer.silent


@pytest.mark.parametrize("wrong", [np.zeros(320, np.float32), np.zeros((2, 320), np.int16)])
def test_audio_of_another_kind_is_refused(wrong: npt.NDArray[np.int16]) -> None:
    with pytest.raises(ValueError, match=r"int16 \[n\]"):
        SpeechBuffer().append(wrong)
