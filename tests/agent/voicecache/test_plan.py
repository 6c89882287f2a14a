"""What to make ahead, and the budget."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.voicecache.plan import MAX_CALLS, MAX_PER_CALL, Candidate, CpuBudget, PrefetchPlan


def plan(per_hour: float = 3600) -> PrefetchPlan:
    return PrefetchPlan(CpuBudget(per_hour, 0.0))


def test_the_likeliest_first_and_what_two_calls_want_counts_twice() -> None:
    wanted = plan()
    wanted.want("a", [Candidate("x", 0.5), Candidate("y", 0.3)])
    wanted.want("b", [Candidate("y", 0.3)])
    assert wanted.next(0.0) == Candidate("y", 0.6)
    wanted.done("y")
    assert wanted.next(0.0) == Candidate("x", 0.5)
    assert wanted.open == 1


def test_newer_predictions_replace_older_ones_and_a_call_that_spoke_wants_nothing() -> None:
    wanted = plan()
    wanted.want("a", [Candidate("x", 0.5)])
    wanted.want("a", [Candidate("y", 0.1)])
    assert wanted.next(0.0) == Candidate("y", 0.1)
    wanted.forget("a")
    assert wanted.next(0.0) is None


def test_it_is_bounded() -> None:
    wanted = plan()
    for call in range(MAX_CALLS + 50):
        wanted.want(str(call), [Candidate((call, i), 0.1) for i in range(100)])
    assert wanted.open == MAX_CALLS * MAX_PER_CALL


def test_nothing_when_the_budget_is_spent_until_it_fills() -> None:
    wanted = plan(36.0)
    wanted.want("a", [Candidate("x", 0.5)])
    wanted.budget.spend(3.6, 0.0)
    assert wanted.next(0.0) is None
    assert wanted.next(10.0) is not None


@given(st.lists(st.tuples(st.floats(0, 100), st.floats(0, 3)), max_size=40))
def test_what_is_spent_is_never_more_than_the_budget_and_one_piece(steps: list[tuple[float, float]]) -> None:
    budget = CpuBudget(60.0, 0.0)
    now = spent = 0.0
    for wait, cost in steps:
        now += wait
        if budget.left(now) > 0:
            budget.spend(cost, now)
            spent += cost
    assert spent <= 6.0 + now * 60 / 3600 + 3.0 + 1e-6
    assert budget.left(now + 10**9) == 60.0


def test_a_negative_budget_is_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        CpuBudget(-1, 0.0)
