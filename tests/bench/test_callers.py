"""What a caller says is encoded beforehand, and the bench's server tells what it uses."""

from __future__ import annotations

import os

import numpy as np
import pytest

from agent.errors import EnvironmentFault
from agent.media.frames import SPEAKING_HZ
from agent.media.opus import Decoder
from bench._callers import QUESTION_HZ, Server, prepare


def question() -> np.ndarray[tuple[int], np.dtype[np.int16]]:
    t = np.arange(QUESTION_HZ // 2) / QUESTION_HZ
    voiced = (np.sin(2 * np.pi * 300 * t) * 12_000).astype(np.int16)
    return np.concatenate([voiced, np.zeros(QUESTION_HZ // 5, np.int16)])


def test_a_question_is_whole_frames_of_20_ms_with_its_speech_counted() -> None:
    made = prepare(question())
    assert {len(frame) for frame in made.frames} == {SPEAKING_HZ // 50 * 2}
    assert len(made.packets) == len(made.frames) == 50  # 0.5 s of tone, 0.2 s of silence, 0.3 s to ring out
    assert 25 <= made.speech_frames <= 26


def test_the_packets_of_a_question_sound_like_it_and_end_in_silence() -> None:
    made = prepare(question())
    decoder = Decoder(SPEAKING_HZ)
    heard = [decoder.decode(packet).astype(np.float64) for packet in made.packets]
    decoder.close()
    assert np.sqrt(np.mean(heard[12] ** 2)) > 5_000
    assert np.abs(heard[-1]).max() < 30


def test_use_grows_with_work() -> None:
    server = Server(os.getpid(), "http://127.0.0.1:1", "")
    before = server.use()
    while (after := server.use()).cpu_s == before.cpu_s:
        sum(range(10_000))
    assert after.cpu_s > before.cpu_s
    assert after.rss_mb > 1


def test_a_server_that_is_gone_is_a_fault_with_a_reason() -> None:
    with pytest.raises(EnvironmentFault, match="/proc"):
        Server(2**22 + 1, "http://127.0.0.1:1", "").use()
