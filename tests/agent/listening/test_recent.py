from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.listening.recent import RecentAudio


@given(st.lists(st.integers(0, 25), max_size=12), st.integers(1, 20), st.integers(-5, 150))
def test_it_holds_the_newest_samples_in_order(sizes: list[int], capacity: int, since: int) -> None:
    recent = RecentAudio(capacity)
    whole = np.arange(sum(sizes), dtype=np.int16)
    at = 0
    for size in sizes:
        recent.push(whole[at : at + size])
        at += size
    assert recent.position == len(whole)
    wanted = whole[max(0, since, len(whole) - capacity) :]
    assert recent.since(since).tolist() == wanted.tolist()


def test_a_slice_does_not_change_with_what_comes_after() -> None:
    recent = RecentAudio(4)
    recent.push(np.array([1, 2, 3], np.int16))
    kept = recent.since(0)
    recent.push(np.array([7, 8, 9, 9], np.int16))
    assert kept.tolist() == [1, 2, 3]


def test_it_must_keep_something() -> None:
    with pytest.raises(ValueError, match="samples"):
        RecentAudio(0)
