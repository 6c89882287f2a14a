"""A stretch of sound that begins or ends with a step is led to zero; what is quiet already is left alone."""

from __future__ import annotations

import numpy as np
import pytest

from agent.media.joints import QUIET_PEAK, begun_softly, led_to_zero, softened

RATE = 24_000
FADE = RATE * 5 // 1000


def steps(pcm: np.ndarray) -> int:
    """The greatest step of the signal, silence around it included."""
    return int(np.abs(np.diff(np.pad(pcm.astype(np.int32), 1))).max())


@pytest.mark.parametrize("level", [QUIET_PEAK + 1, 5_000, -32_768, 32_767])
def test_a_step_at_the_beginning_is_faded_in_and_the_rest_is_untouched(level: int) -> None:
    pcm = np.full(RATE, level, np.int16)
    out = begun_softly(pcm, RATE)
    assert np.array_equal(out[FADE:], pcm[FADE:])
    assert steps(out[:FADE][: FADE // 2]) <= abs(level)
    assert abs(int(out[0])) <= abs(level) / FADE + 1
    assert pcm[0] == level


@pytest.mark.parametrize("level", [0, QUIET_PEAK, -QUIET_PEAK])
def test_what_begins_and_ends_quietly_stays_the_same(level: int) -> None:
    pcm = np.full(RATE, level, np.int16)
    assert begun_softly(pcm, RATE) is pcm
    assert not len(led_to_zero(pcm, RATE))


@pytest.mark.parametrize("length", [1, 10, FADE, RATE])
def test_the_end_goes_down_to_zero_without_a_step(length: int) -> None:
    pcm = np.full(length, -20_000, np.int16)
    rest = led_to_zero(pcm, RATE)
    assert len(rest) == (FADE if length == 1 else min(FADE, length))
    assert rest[-1] == 0
    assert rest[0] == -20_000
    if length == 1 or length >= FADE:
        assert int(np.abs(np.diff(rest.astype(np.int32))).max()) <= 20_000 / (FADE - 1) + 1


def test_a_whole_stretch_is_softened_at_both_ends_and_nowhere_else() -> None:
    pcm = np.full(RATE, 9_000, np.int16)
    out = softened(pcm, RATE)
    assert len(out) == len(pcm)
    assert np.array_equal(out[FADE:-FADE], pcm[FADE:-FADE])
    assert steps(out) <= 9_000 / (FADE - 1) + 1
    quiet = np.zeros(RATE, np.int16)
    assert softened(quiet, RATE) is quiet


def test_nothing_is_led_nowhere() -> None:
    nothing = np.zeros(0, np.int16)
    assert begun_softly(nothing, RATE) is nothing
    assert not len(led_to_zero(nothing, RATE))


def test_even_a_stretch_shorter_than_the_fade_begins_softly() -> None:
    out = begun_softly(np.full(10, 9_000, np.int16), RATE)
    assert len(out) == 10
    assert out[0] == 0
