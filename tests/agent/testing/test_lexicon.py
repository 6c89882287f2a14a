from __future__ import annotations

import numpy as np
import pytest

from agent.testing import Lexicon, voice


def words(lexicon: Lexicon, pcm: np.ndarray) -> list[str]:
    return [word.text for number in lexicon.read(pcm) if (word := lexicon.word(number)) is not None]


def test_sound_tells_its_words_in_order_from_any_cut() -> None:
    lexicon = Lexicon()
    pcm = lexicon.speech("what are your opening hours", 2.0, voice(1.0))
    assert len(pcm) == 32_000
    assert words(lexicon, pcm) == ["what", "are", "your", "opening", "hours"]
    for start in (0, 1, 319, 10_001):
        assert words(lexicon, pcm[start:])[-1] == "hours"
    assert words(lexicon, pcm[20_001:20_321]) == ["opening"]


def test_about_all_samples_of_a_word_are_counted() -> None:
    lexicon = Lexicon()
    (count,) = lexicon.read(lexicon.mark(voice(0.5), "hello")).values()
    assert count == pytest.approx(8_000, rel=0.01)


def test_the_same_word_twice_is_two() -> None:
    lexicon = Lexicon()
    assert words(lexicon, lexicon.speech("no no", 1.0, voice(1.0))) == ["no", "no"]


@pytest.mark.parametrize("pcm", [np.zeros(320, np.int16), voice(0.2) // 3, np.zeros(1, np.int16)])
def test_other_sound_tells_nothing_that_counts(pcm: np.ndarray) -> None:
    lexicon = Lexicon()
    lexicon.mark(voice(0.2), "hello")
    assert all(samples < len(pcm) / 4 for samples in lexicon.read(pcm).values())


def test_noise_has_no_word_and_words_cost_little_sound() -> None:
    lexicon = Lexicon()
    sound = voice(0.5)
    assert words(lexicon, lexicon.mark(sound)) == []
    error = lexicon.mark(sound, "hello").astype(float) - sound
    assert 10 * np.log10(np.mean(error**2) / np.mean(sound.astype(float) ** 2)) < -28


def test_the_oldest_words_are_forgotten_when_numbers_run_out() -> None:
    lexicon = Lexicon()
    frame = np.zeros(4, np.int16)
    first = lexicon.mark(frame, "first")
    for _ in range(16_382):
        lexicon.mark(frame, "more")
    assert words(lexicon, first) == ["first"]
    lexicon.mark(frame, "last")
    assert words(lexicon, first) == ["last"]
