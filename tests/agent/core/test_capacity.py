"""What a probe measures, and how many streams follow from it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from agent.core.capacity import (
    MIN_STREAMS,
    Probe,
    probe_recognizer,
    probe_synthesizer,
    recognition_streams,
    synthesis_streams,
)
from agent.testing.recognizer import ScriptedRecognizer
from agent.testing.synthesizer import ScriptedSynthesizer
from agent.tts.protocol import Voice


def clock(*times: float) -> Iterator[float]:
    yield from times


def test_a_voice_that_speaks_twenty_times_faster_than_it_is_heard() -> None:
    assert synthesis_streams(Probe(0.25, 5.0), threads=4) == 104
    assert synthesis_streams(Probe(0.25, 5.0), threads=8) == 208


def test_a_reading_of_eighty_milliseconds_every_three_hundred_and_twenty() -> None:
    assert recognition_streams(Probe(0.08, 5.0), threads=4, partial_every_ms=320) == 41


def test_a_slow_recogniser_takes_no_more_than_a_third_of_a_core_a_stream() -> None:
    slow, slower = (recognition_streams(Probe(took, 5.0), threads=8, partial_every_ms=320) for took in (4.0, 40.0))
    assert slow == slower == 31


@pytest.mark.parametrize("count", [recognition_streams(Probe(60, 5), threads=1, partial_every_ms=320)])
def test_a_machine_that_was_busy_still_takes_a_few(count: int) -> None:
    assert count == MIN_STREAMS
    assert synthesis_streams(Probe(60, 5), threads=1) == MIN_STREAMS


async def test_the_better_of_two_readings_counts() -> None:
    times = clock(0.0, 3.0, 10.0, 10.5)
    recognizer = ScriptedRecognizer(["one", "two"])
    probe = await probe_recognizer(recognizer, "en", None, clock=lambda: next(times))
    assert probe == Probe(0.5, 5.0)
    assert probe.real_time_factor == 0.1
    assert [stream.closed for stream in recognizer.streams] == [True, True]


async def test_a_recogniser_is_measured_with_what_the_voice_said() -> None:
    synthesizer, recognizer = ScriptedSynthesizer(), ScriptedRecognizer()
    spoken, speech = await probe_synthesizer(synthesizer, Voice("heart"))
    assert spoken.audio_s == pytest.approx(len(speech) / 16_000, abs=0.001)
    assert len(synthesizer.spoken) == 2
    read = await probe_recognizer(recognizer, "en", speech)
    assert read.audio_s == pytest.approx(spoken.audio_s, abs=0.001)
    assert np.abs(speech).max() > 1000
