"""The serving order, without threads."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.fairqueue import FairQueue, Priority, QueueFull


def queue(max_items: int = 100, max_per_owner: int = 100) -> FairQueue[str]:
    return FairQueue(max_items=max_items, max_per_owner=max_per_owner)


def test_urgent_work_overtakes_what_waits() -> None:
    q = queue()
    q.push("idle", owner="a", priority=Priority.IDLE)
    q.push("partial", owner="a", priority=Priority.PARTIAL)
    q.push("normal", owner="a", priority=Priority.NORMAL)
    q.push("final", owner="b", priority=Priority.FINAL)
    assert q.drain() == ["final", "normal", "partial", "idle"]


def test_final_and_live_are_one_class_and_take_turns() -> None:
    q = queue()
    for n in range(2):
        q.push(f"final{n}", owner="asr", priority=Priority.FINAL)
        q.push(f"live{n}", owner="tts", priority=Priority.LIVE)
    assert q.drain() == ["final0", "live0", "final1", "live1"]


def test_a_busy_owner_does_not_delay_another_by_more_than_one_item() -> None:
    q = queue()
    for n in range(50):
        q.push(f"busy{n}", owner="busy", priority=Priority.NORMAL)
    q.push("rare", owner="rare", priority=Priority.NORMAL)
    assert q.pop() == "busy0"
    assert q.pop() == "rare"


def test_an_owners_own_items_keep_their_order() -> None:
    q = queue()
    for n in range(5):
        q.push(str(n), owner="a", priority=Priority.NORMAL)
    assert q.drain() == ["0", "1", "2", "3", "4"]


def test_it_refuses_above_its_bound_and_takes_again_after_a_pop() -> None:
    q = queue(max_items=2)
    q.push("1", owner="a", priority=Priority.NORMAL)
    q.push("2", owner="b", priority=Priority.NORMAL)
    with pytest.raises(QueueFull):
        q.push("3", owner="c", priority=Priority.FINAL)
    q.pop()
    q.push("3", owner="c", priority=Priority.FINAL)
    assert len(q) == 2


def test_one_owner_cannot_take_all_the_room() -> None:
    q = queue(max_items=10, max_per_owner=3)
    for n in range(3):
        q.push(str(n), owner="greedy", priority=Priority.NORMAL)
    with pytest.raises(QueueFull):
        q.push("4", owner="greedy", priority=Priority.IDLE)
    q.push("other", owner="modest", priority=Priority.NORMAL)


def test_pop_leaves_work_below_the_asked_priority() -> None:
    q = queue()
    q.push("partial", owner="a", priority=Priority.PARTIAL)
    assert q.pop(lowest=Priority.NORMAL) is None
    assert q.pop(lowest=Priority.PARTIAL) == "partial"


def test_a_withdrawn_item_is_never_served() -> None:
    q = queue()
    q.push("1", owner="a", priority=Priority.NORMAL)
    q.push("2", owner="a", priority=Priority.NORMAL)
    assert q.remove("1", owner="a", priority=Priority.NORMAL)
    assert not q.remove("1", owner="a", priority=Priority.NORMAL)
    assert q.drain() == ["2"]


@pytest.mark.parametrize(("items", "per_owner"), [(0, 1), (1, 0)])
def test_bounds_below_one_are_refused(items: int, per_owner: int) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        FairQueue(max_items=items, max_per_owner=per_owner)


Entry = tuple[int, Priority]


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from(list(Priority))), max_size=60))
def test_nothing_is_lost_doubled_or_served_out_of_class(entries: list[Entry]) -> None:
    q: FairQueue[tuple[int, Entry]] = FairQueue(max_items=100, max_per_owner=100)
    for number, (owner, priority) in enumerate(entries):
        q.push((number, (owner, priority)), owner=owner, priority=priority)
    served = q.drain()
    assert Counter(served) == Counter(enumerate(entries))
    priorities = [entry[1] for _, entry in served]
    assert priorities == sorted(priorities)
    assert len(q) == 0


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60))
def test_while_two_owners_wait_neither_is_served_twice_in_a_row(owners: list[int]) -> None:
    q: FairQueue[tuple[int, int]] = FairQueue(max_items=100, max_per_owner=100)
    for number, owner in enumerate(owners):
        q.push((number, owner), owner=owner, priority=Priority.NORMAL)
    left = Counter(owners)
    previous: int | None = None
    for _, owner in q.drain():
        others = sum(count for other, count in left.items() if other != owner)
        assert not (previous == owner and others)
        left[owner] -= 1
        previous = owner
