"""Silence at the ends of stored speech."""

from __future__ import annotations

import numpy as np

from agent.asr.protocol import Word
from agent.voicecache.edges import cut_edges
from tests.agent.voicecache.support import RATE, tone


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.int16)


def test_a_long_head_goes_but_for_five_milliseconds_and_words_move_along() -> None:
    pcm = np.concatenate([silence(0.3), tone(0.2), silence(0.5)])
    cut, words = cut_edges(pcm, [Word("one", 0.3, 0.5)], RATE, 120)
    assert np.abs(cut[: RATE // 100]).max() > 1000
    assert abs(len(cut) / RATE - 0.325) < 0.002
    assert abs(words[0].start_s - 0.005) < 0.001
    assert abs(words[0].end_s - 0.205) < 0.001


def test_speech_that_is_trimmed_already_is_left_as_it_is() -> None:
    pcm = np.concatenate([silence(0.004), tone(0.2), silence(0.1)])
    cut, words = cut_edges(pcm, [Word("one", 0.004, 0.2)], RATE, 120)
    assert np.array_equal(cut, pcm)
    assert words[0] == Word("one", 0.004, 0.2)


def test_noise_below_minus_50_dbfs_is_silence() -> None:
    noise = np.full(RATE, 90, np.int16)
    assert not len(cut_edges(noise, [], RATE, 100)[0])
    assert not len(cut_edges(silence(0.1), [Word("x", 0, 0.1)], RATE, 100)[1])


def test_what_comes_back_is_a_copy() -> None:
    pcm = tone(0.1)
    cut, _ = cut_edges(pcm, [], RATE, 0)
    cut[:] = 0
    assert pcm.any()
