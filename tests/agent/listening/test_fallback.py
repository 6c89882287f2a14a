from __future__ import annotations

import numpy as np

from agent.listening.fallback import EnergyVote
from tests.agent.listening.hearing import Clip, at_peak_db, frames, silence, white_noise


def test_silence_and_steady_noise_are_not_speech_even_if_called_voiced() -> None:
    for pcm in (silence(2), white_noise(2, -50), white_noise(2, -20)):
        vote = EnergyVote(list(frames(pcm))[:50])
        assert max(vote.push(frame, voiced=True) for frame in frames(pcm)) < 0.35


def test_a_voice_above_the_floor_is_speech(clips: dict[str, Clip]) -> None:
    clip = at_peak_db(clips["jfk"].pcm, -12)
    vote = EnergyVote(frames(white_noise(1, -60)))
    noisy = clip + white_noise(len(clip) / 16_000, -60)[: len(clip)]
    track = np.array([vote.push(frame, voiced=True) for frame in frames(noisy)])
    assert (track >= 0.5).mean() > 0.5


def test_what_is_not_voiced_is_not_speech(clips: dict[str, Clip]) -> None:
    vote = EnergyVote()
    assert max(vote.push(frame, voiced=False) for frame in frames(clips["jfk"].pcm)) == 0.0


def test_noise_that_begins_and_stays_is_forgotten() -> None:
    vote = EnergyVote(frames(silence(1)))
    track = [vote.push(frame, voiced=True) for frame in frames(white_noise(20, -35))]
    assert max(track[:20]) == 1.0
    assert max(track[-100:]) == 0.0
