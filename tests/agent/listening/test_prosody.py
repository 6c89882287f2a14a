from __future__ import annotations

import numpy as np
import pytest

from agent.listening.prosody import contour, judge_prosody
from agent.media.resample import resample
from tests.agent.listening.hearing import Clip


def voice(hz: list[float], level: list[float]) -> np.ndarray:
    """A buzz whose pitch and loudness follow the points, int16 at 16 kHz, and a pause."""
    n = 16_000
    at = np.linspace(0, 1, n)
    pitch = np.interp(at, np.linspace(0, 1, len(hz)), hz)
    loud = np.interp(at, np.linspace(0, 1, len(level)), level)
    phase = 2 * np.pi * np.cumsum(pitch) / 16_000
    buzz = sum(np.sin(k * phase) / k for k in range(1, 8))
    return np.concatenate([(buzz * loud * 4000).astype(np.int16), np.zeros(1600, np.int16)])


FALLING = voice([140, 140, 140, 95], [1, 1, 1, 0.3])
LEVEL = voice([120, 120], [1, 1])
RISING = voice([110, 110, 110, 170], [1, 1, 1, 1])


def test_a_falling_voice_is_likelier_to_be_done_than_a_rising_one() -> None:
    falling, level, rising = (judge_prosody(pcm) for pcm in (FALLING, LEVEL, RISING))
    assert falling is not None
    assert level is not None
    assert rising is not None
    assert falling > level > rising


def test_pitch_is_found_to_a_semitone() -> None:
    shape = contour(voice([100, 100, 100, 100, 100, 200], [1, 1]))
    assert shape is not None
    assert shape.pitch_st == pytest.approx(11, abs=1.5)
    assert shape.slope_st > 5


def test_a_contour_never_makes_sure() -> None:
    for pcm in (FALLING, LEVEL, RISING):
        judged = judge_prosody(pcm)
        assert judged is not None
        assert 0.18 < judged < 0.82


@pytest.mark.parametrize(
    "pcm",
    [
        np.zeros(0, np.int16),
        np.zeros(16_000, np.int16),
        np.random.default_rng(1).integers(-3000, 3000, 16_000).astype(np.int16),
        LEVEL[:1600],
    ],
)
def test_silence_noise_and_a_moment_of_voice_say_nothing(pcm: np.ndarray) -> None:
    assert judge_prosody(pcm) is None


def test_a_telephones_band_gives_nearly_the_same_contour(clips: dict[str, Clip]) -> None:
    for name in ("LJ001-0013", "p226_011", "newhome"):
        wide, narrow = judge_prosody(clips[name].pcm), judge_prosody(resample(clips[name].pcm_8k, 8000, 16_000))
        assert wide is not None
        assert narrow is not None
        assert abs(wide - narrow) < 0.25
