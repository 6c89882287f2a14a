from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import CallRefused
from signaling.workers.placement import Roster


def ready(workers: int = 3, max_calls: int = 2) -> Roster:
    roster = Roster(workers, max_calls)
    for number in range(1, workers + 1):
        roster.up(number)
    return roster


def test_calls_spread_evenly() -> None:
    roster = ready(3, 4)
    assert Counter(roster.place(f"c{n}", "alice") for n in range(9)) == {1: 3, 2: 3, 3: 3}


def test_a_call_goes_to_the_least_loaded() -> None:
    roster = ready(2, 9)
    where = {n: roster.place(f"c{n}", "alice") for n in range(6)}
    for n, worker in where.items():
        if worker == 2:
            roster.release(f"c{n}")
    assert [roster.place(f"d{n}", "alice") for n in range(3)] == [2, 2, 2]


def test_among_equals_the_one_not_used_for_longest() -> None:
    roster = ready(3)
    order = []
    for n in range(6):
        order.append(roster.place(f"c{n}", "alice"))
        roster.release(f"c{n}")
    assert order == [1, 2, 3, 1, 2, 3]


def test_full_is_refused_with_the_reason() -> None:
    roster = ready(2, 1)
    roster.place("a", "alice")
    roster.place("b", "alice")
    with pytest.raises(CallRefused, match="every worker: all 1 lines are busy") as refused:
        roster.place("c", "alice")
    assert refused.value.retry_after_s == 5
    assert set(roster.placed) == {"a", "b"}
    roster.release("a")
    assert roster.place("c", "alice") == 1


def test_a_late_worker_is_passed_over_and_named_when_there_is_no_other() -> None:
    roster = ready(2, 1)
    roster.judge(1, "the media clock is late")
    assert roster.place("a", "alice") == 2
    with pytest.raises(CallRefused) as refused:
        roster.place("b", "alice")
    assert str(refused.value) == "worker 1: the media clock is late; worker 2: all 1 lines are busy"
    assert refused.value.retry_after_s == 2
    roster.judge(1, "")
    assert roster.place("b", "alice") == 1


def test_a_dead_worker_takes_only_its_calls_with_it() -> None:
    roster = ready(2, 5)
    where = {f"c{n}": roster.place(f"c{n}", "alice") for n in range(4)}
    lost = roster.down(1, "restarting")
    assert set(lost) == {call for call, worker in where.items() if worker == 1}
    assert set(roster.placed) == {call for call, worker in where.items() if worker == 2}
    assert roster.place("new", "alice") == 2
    # What a dead worker said last does not bring it back.
    roster.judge(1, "")
    assert roster.place("newer", "alice") == 2
    roster.up(1)
    assert roster.place("newest", "alice") == 1


def test_a_call_is_another_subjects_business_only() -> None:
    roster = ready()
    roster.place("a", "alice")
    found = roster.find("a", "alice")
    assert found is not None
    assert found.worker == 1
    assert roster.find("a", "bob") is None
    assert roster.find("z", "alice") is None


def test_calls_of_a_subject_are_counted_over_all_workers() -> None:
    roster = ready(3)
    for n in range(3):
        roster.place(f"a{n}", "alice")
    roster.place("b", "bob")
    assert roster.count("alice") == 3
    assert roster.release("a0")
    assert not roster.release("a0")
    assert roster.count("alice") == 2
    assert roster.count("carol") == 0


def test_a_worker_that_has_just_failed_on_a_call_is_not_tried_again() -> None:
    roster = ready(2)
    assert roster.place("a", "alice", without={1}) == 2
    with pytest.raises(CallRefused, match="ended"):
        roster.place("b", "alice", without={1, 2})


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("place"), st.integers(0, 30)),
            st.tuples(st.just("release"), st.integers(0, 30)),
            st.tuples(st.sampled_from(["down", "up", "late", "fine"]), st.integers(1, 3)),
        ),
        max_size=80,
    )
)
def test_whatever_happens_the_counts_are_right_and_no_worker_is_overfull(events: list[tuple[str, int]]) -> None:
    roster = Roster(3, 4)
    for what, value in events:
        call_id = f"c{value}"
        if what == "place" and call_id not in roster.placed:
            free = [seat for seat in roster.seats if not roster.why_not(seat)]
            try:
                number = roster.place(call_id, "alice")
            except CallRefused:
                assert not free
            else:
                assert number in {seat.number for seat in free}
        elif what == "release":
            roster.release(call_id)
        elif what == "down":
            roster.down(value, "restarting")
        elif what == "up":
            roster.up(value)
        elif what in ("late", "fine"):
            roster.judge(value, "late" if what == "late" else "")
        by_worker = Counter(placed.worker for placed in roster.placed.values())
        for seat in roster.seats:
            assert len(seat.calls) == by_worker[seat.number] <= roster.max_calls
        assert roster.count("alice") == len(roster.placed)
