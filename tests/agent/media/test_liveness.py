"""Silence of RTP, in virtual time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.media.liveness import SilenceWatch


def test_a_silence_is_told_once_after_its_time_and_its_end_once() -> None:
    watch = SilenceWatch(2.0)
    assert watch.check(10.0, 12.0) is None
    assert watch.check(10.0, 12.5) == ("stalled", 2.5)
    assert watch.check(10.0, 60.0) is None
    assert watch.check(61.0, 61.02) == ("resumed", 51.0)
    assert watch.check(61.0, 62.0) is None
    assert watch.check(61.0, 63.1) is not None


@given(st.lists(st.floats(0.0, 5.0), max_size=60))
def test_stalls_and_resumptions_alternate(gaps: list[float]) -> None:
    watch, told, last, now = SilenceWatch(2.0), [], 0.0, 0.0
    for gap in gaps:
        for _ in range(3):
            now += gap / 3
            if (found := watch.check(last, now)) is not None:
                told.append(found[0])
        last = now
    assert told == ["stalled", "resumed"] * (len(told) // 2) + ["stalled"] * (len(told) % 2)
