"""What is told from arrivals: lateness against each spurt's own schedule, and where sound begins and ends."""

from __future__ import annotations

import numpy as np
import pytest

from agent.media.frames import Pcm
from bench._turns import (
    Frame,
    first_audible,
    lateness_ms,
    longest_pause_ms,
    speech_end,
    spurts_by_gap,
    spurts_by_marker,
)

RATE_HZ = 16_000


def tone(ms: int, dbfs: float = -20.0) -> Pcm:
    t = np.arange(RATE_HZ * ms // 1000) / RATE_HZ
    return (np.sin(2 * np.pi * 400 * t) * 32767 * np.sqrt(2) * 10 ** (dbfs / 20)).astype(np.int16)


def quiet(ms: int) -> Pcm:
    return np.zeros(RATE_HZ * ms // 1000, np.int16)


def test_a_spurt_runs_from_its_marker_to_the_packet_without_audio() -> None:
    frames = [
        Frame(0.0, 1.0, 60, marker=True),
        Frame(0.02, 1.02, 60),
        Frame(0.04, 1.04, 1),
        Frame(0.44, 1.44, 1),
        Frame(0.84, 1.84, 30),
        Frame(1.0, 2.0, 70, marker=True),
        Frame(1.02, 2.02, 70, marker=True),
    ]
    assert spurts_by_marker(frames) == [frames[:2], frames[5:6], frames[6:]]


def test_packets_before_the_first_marker_belong_to_no_spurt() -> None:
    assert spurts_by_marker([Frame(0.0, 1.0, 60)]) == []


def test_lateness_is_counted_from_the_earliest_frame_of_the_spurt() -> None:
    spurt = [Frame(0.0, 5.010, 60, marker=True), Frame(0.02, 5.020, 60), Frame(0.04, 5.065, 60)]
    assert lateness_ms([spurt]) == pytest.approx([10, 0, 25])


def test_each_spurt_has_a_schedule_of_its_own() -> None:
    early = [Frame(0.0, 1.0, 60, marker=True)]
    shifted = [Frame(2.0, 3.5, 60, marker=True), Frame(2.02, 3.52, 60)]
    assert lateness_ms([early, shifted, []]) == pytest.approx([0, 0, 0])


def test_time_in_which_nothing_was_due_is_not_late() -> None:
    assert lateness_ms([[Frame(0.0, 1.0, 60, marker=True), Frame(0.2, 1.2, 60)]]) == pytest.approx([0, 0])


def test_without_timestamps_a_short_gap_is_late_and_a_long_one_a_new_spurt() -> None:
    spurts = spurts_by_gap([1.0, 1.02, 1.09, 1.09, 2.0])
    assert [len(spurt) for spurt in spurts] == [4, 1]
    assert lateness_ms(spurts) == pytest.approx([0, 0, 50, 30, 0])


def test_the_first_audible_piece_is_found_past_silence_and_faint_noise() -> None:
    pieces = [quiet(20), tone(20, -60), np.concatenate([quiet(10), tone(10, -40)]), tone(20)]
    assert first_audible(pieces, RATE_HZ) == 2
    assert first_audible(pieces[:2], RATE_HZ) is None
    assert first_audible([], RATE_HZ) is None


def test_speech_ends_with_the_last_audible_window() -> None:
    assert speech_end(np.concatenate([quiet(50), tone(200), quiet(300)]), RATE_HZ) == RATE_HZ * 250 // 1000
    assert speech_end(quiet(100), RATE_HZ) == 0
    assert speech_end(np.zeros(0, np.int16), RATE_HZ) == 0


def test_the_longest_pause_is_inside_the_speech() -> None:
    clip = np.concatenate([quiet(900), tone(100), quiet(150), tone(100), quiet(320), tone(100), quiet(900)])
    assert longest_pause_ms(clip, RATE_HZ) == 320
    assert longest_pause_ms(tone(100), RATE_HZ) == 0
    assert longest_pause_ms(np.zeros(0, np.int16), RATE_HZ) == 0
