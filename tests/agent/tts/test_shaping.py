"""Trimming, levels and word times of one piece."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from agent.asr.protocol import Word
from agent.tts.shaping import audible, proportional_words, shape, tail_ms, trim

RATE = 24_000


def tone(seconds: float, before: float = 0.3, after: float = 0.5, level: float = 0.3) -> npt.NDArray[np.float32]:
    wave = np.zeros(int(RATE * (before + seconds + after)), np.float32)
    at, count = int(RATE * before), int(RATE * seconds)
    wave[at : at + count] = level * np.sin(2 * np.pi * 220 * np.arange(count) / RATE)
    return wave


def test_the_first_sound_comes_within_ten_milliseconds() -> None:
    speech = shape(tone(1.0), "Hello.", None, gain=1.0, rate=1.0, began_s=0.0)
    assert speech is not None
    first = int(np.argmax(np.abs(speech.pcm) > 104))
    assert first <= RATE * 10 // 1000
    assert len(speech.pcm) / RATE == pytest.approx(1.0 + 0.005 + 0.220, abs=0.01)


@pytest.mark.parametrize(
    ("text", "pause"), [("Hi.", 220), ('"Hi!"', 220), ("hi,", 120), ("好。", 220), ("好，", 120), ("hi", 40), ("", 40)]
)
def test_the_pause_goes_by_the_last_mark_and_the_rate(text: str, pause: float) -> None:
    assert tail_ms(text) == pause
    assert tail_ms(text, 2.0) == pause / 2


def test_silence_gives_nothing() -> None:
    assert shape(np.zeros(RATE, np.float32), "Hi.", None, gain=2.0, rate=1.0, began_s=0.0) is None
    assert len(trim(np.zeros(0, np.float32), RATE, 100).wave) == 0
    assert not audible(np.zeros(10, np.int16))
    assert not audible(np.zeros(0, np.int16))
    assert audible(np.full(10, -32768, np.int16))


def test_loud_waves_are_turned_down_and_never_clip() -> None:
    speech = shape(tone(0.5, level=0.9), "Hi.", None, gain=4.0, rate=1.0, began_s=0.0)
    assert speech is not None
    assert 30_000 < int(np.abs(speech.pcm.astype(int)).max()) < 32_000


def test_given_word_times_move_with_the_trim_and_the_stream() -> None:
    words = [Word("a", 0.3, 0.8), Word("b", 0.8, 1.3)]
    speech = shape(tone(1.0), "a b", words, gain=1.0, rate=1.0, began_s=10.0)
    assert speech is not None
    assert speech.words[0].start_s == pytest.approx(10.005, abs=0.003)
    assert speech.words[1].end_s == pytest.approx(11.005, abs=0.003)


def test_words_without_times_are_spread_by_letters() -> None:
    a, long = proportional_words("a elephant", 1.0, 2.1)
    assert (a.start_s, long.end_s) == (1.0, pytest.approx(2.1))
    assert a.end_s == long.start_s == pytest.approx(1.2)
