from __future__ import annotations

import numpy as np
import pytest

from agent.listening.gate import HANGOVER_MS, REPLAY_MS, SpeechGate
from agent.media.frames import Pcm
from tests.agent.listening.hearing import Clip, at_peak_db, frames, silence, white_noise


def test_silence_and_room_noise_keep_it_shut() -> None:
    for pcm in (silence(3), white_noise(3, -60), white_noise(3, -45)):
        gate = SpeechGate()
        opened = sum(bool(gate.push(frame)) for frame in frames(pcm))
        assert opened * 20 <= HANGOVER_MS + 20 + REPLAY_MS


@pytest.mark.parametrize("peak_db", [0, -35])
def test_it_opens_for_every_voice_and_gives_the_audio_before_it_opened(clips: dict[str, Clip], peak_db: float) -> None:
    for clip in clips.values():
        gate = SpeechGate()
        source = np.concatenate([silence(1), at_peak_db(clip.pcm, peak_db), silence(1)])
        given: list[Pcm] = []
        for i, frame in enumerate(frames(source)):
            out = gate.push(frame)
            if gate.opened and not given:
                assert np.array_equal(np.concatenate(out), source[(i + 1 - len(out)) * 320 : (i + 1) * 320])
                assert len(out) == REPLAY_MS // 20 + 1
            given += out
        assert len(given) * 320 > 0.5 * len(clip.pcm), clip.name


def test_frames_are_given_once_and_in_order(clips: dict[str, Clip]) -> None:
    gate = SpeechGate()
    source = np.concatenate([clips["cards-001"].pcm, silence(1.2), clips["cards-002"].pcm])
    numbered = []
    for i, frame in enumerate(frames(source)):
        out = gate.push(frame)
        numbered += list(range(i + 1 - len(out), i + 1))
    assert numbered == sorted(set(numbered))


def test_it_shuts_after_the_hangover_unless_held(clips: dict[str, Clip]) -> None:
    gate = SpeechGate()
    for frame in frames(clips["jfk"].pcm):
        gate.push(frame)
    for frame in frames(silence(2)):
        assert gate.push(frame, hold=True)
    assert gate.push(silence(0.02)) == []
    assert not gate.is_open


def test_holding_opens_it_again() -> None:
    gate = SpeechGate()
    for frame in frames(silence(1)):
        assert gate.push(frame) == []
    assert len(gate.push(silence(0.02), hold=True)) == REPLAY_MS // 20 + 1
    assert gate.opened


def test_a_frame_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"int16 \[320\]"):
        SpeechGate().push(np.zeros(160, dtype=np.int16))
