from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.config import ListeningSettings
from agent.listening.segmenter import Segmenter, SegmentEvent, SegmentLong, SegmentStarted, SegmentStopped

WINDOW = 512


def run(probabilities: list[float], settings: ListeningSettings | None = None) -> list[SegmentEvent]:
    segmenter = Segmenter(settings or ListeningSettings(stop_ms=192))
    events = [segmenter.feed(p, i * WINDOW, (i + 1) * WINDOW) for i, p in enumerate(probabilities)]
    return [event for event in events if event is not None]


def test_opens_after_start_ms_of_speech_and_closes_after_stop_ms_of_silence() -> None:
    assert run([0.0] * 3 + [0.9] * 5 + [0.0] * 7) == [
        SegmentStarted(start=3 * WINDOW, decided=5 * WINDOW),
        SegmentStopped(end=8 * WINDOW, speech=5 * WINDOW, decided=14 * WINDOW),
    ]


def test_a_blip_shorter_than_start_ms_leaves_no_trace() -> None:
    assert run([0.0, 0.99, 0.0, 0.99, 0.0, 0.99, 0.0]) == []


def test_a_window_between_the_thresholds_neither_opens_nor_starts_over() -> None:
    assert run([0.6, 0.4, 0.6, 0.6]) == [SegmentStarted(start=0, decided=3 * WINDOW)]
    assert run([0.4] * 50) == []


def test_two_blips_joined_by_a_long_doubt_are_two_blips() -> None:
    assert run([0.6] + [0.4] * 10 + [0.6] + [0.0]) == []


def test_doubt_keeps_an_open_segment_open() -> None:
    events = run([0.9] * 3 + [0.4] * 50 + [0.0] * 6)
    assert events[-1] == SegmentStopped(end=53 * WINDOW, speech=53 * WINDOW, decided=59 * WINDOW)


def test_a_short_pause_does_not_close() -> None:
    assert [type(e) for e in run([0.9] * 5 + [0.1] * 5 + [0.9] * 5 + [0.1] * 6)] == [SegmentStarted, SegmentStopped]


def test_speech_counts_only_windows_of_speech() -> None:
    stopped = run([0.9] * 5 + [0.1] * 5 + [0.9] * 5 + [0.1] * 6)[-1]
    assert isinstance(stopped, SegmentStopped)
    assert (stopped.end, stopped.speech) == (15 * WINDOW, 10 * WINDOW)


def test_a_long_segment_is_reported_each_max_segment_s_and_goes_on() -> None:
    settings = ListeningSettings(max_segment_s=2.0)
    events = run([0.9] * 150 + [0.0] * 10, settings)
    assert [type(e) for e in events] == [SegmentStarted, SegmentLong, SegmentLong, SegmentStopped]
    first, second = (e.at for e in events if isinstance(e, SegmentLong))
    assert 32_000 <= first < 32_000 + WINDOW
    assert 32_000 <= second - first < 32_000 + WINDOW


def test_a_gap_in_the_audio_breaks_a_beginning_but_not_a_segment() -> None:
    segmenter = Segmenter(ListeningSettings())
    assert segmenter.feed(0.9, 0, 512) is None
    assert segmenter.feed(0.9, 16_000, 16_512) is None
    assert segmenter.feed(0.9, 16_512, 17_024) == SegmentStarted(16_000, 17_024)
    assert segmenter.feed(0.9, 32_000, 32_512) is None
    assert segmenter.is_open


def test_results_that_overlap_are_counted_once() -> None:
    segmenter = Segmenter(ListeningSettings())
    assert segmenter.feed(0.9, 0, 512) is None
    assert segmenter.feed(0.9, 0, 512) is None
    assert segmenter.feed(0.9, 320, 640) is None
    assert not segmenter.is_open
    assert segmenter.position == 640


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_what_is_not_a_number_counts_as_silence(bad: float) -> None:
    assert run([bad] * 20) == []
    assert [type(e) for e in run([0.9] * 4 + [bad] * 6)] == [SegmentStarted, SegmentStopped]


probability = st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.35, 0.5, 1.0]))
# Runs rather than single windows: independent windows almost never add up to a segment.
tracks = st.lists(st.tuples(probability, st.integers(1, 30)), max_size=40).map(
    lambda parts: [p for p, n in parts for _ in range(n)]
)


@given(tracks, st.integers(0, 3))
def test_any_track_gives_well_formed_segments(track: list[float], gap: int) -> None:
    settings = ListeningSettings(max_segment_s=2.0)
    segmenter = Segmenter(settings)
    is_open, start, last_end, position = False, 0, 0, 0
    for p in track:
        begin = position + gap * WINDOW * (p == 0.0)
        position = begin + WINDOW
        event = segmenter.feed(p, begin, position)
        match event:
            case SegmentStarted():
                assert not is_open
                assert p >= settings.start_probability
                assert last_end <= event.start < event.decided == position
                assert event.decided - event.start >= settings.start_ms * 16
                is_open, start = True, event.start
            case SegmentStopped():
                assert is_open
                assert p < settings.stop_probability
                assert start < event.end < event.decided == position
                assert event.decided - event.end >= settings.stop_ms * 16
                assert settings.start_ms * 16 <= event.speech <= event.end - start
                is_open, last_end = False, event.end
            case SegmentLong():
                assert is_open
                assert event.at - start >= settings.max_segment_s * 16_000
        assert segmenter.is_open is is_open
        assert segmenter.start == (start if is_open else None)


@given(tracks)
def test_silence_always_closes(track: list[float]) -> None:
    segmenter = Segmenter(ListeningSettings())
    for i, p in enumerate(track + [0.0] * 7):
        segmenter.feed(p, i * WINDOW, (i + 1) * WINDOW)
    assert not segmenter.is_open
