"""The circuit breaker."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from agent.core.breaker import JITTER, PROBE_LOST_S, Breaker, BreakerState, ShardBreakers


def test_it_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker(failures=3)
    for _ in range(5):
        breaker.failed(0.0)
        breaker.failed(0.0)
        breaker.worked()
    assert breaker.allows()
    for _ in range(3):
        breaker.failed(0.0)
    assert not breaker.allows()


def test_one_probe_at_a_time_and_longer_between_them() -> None:
    breaker = Breaker(failures=1, first_s=1.0, max_s=4.0)
    breaker.failed(0.0)
    assert not breaker.probe(0.9)
    assert breaker.probe(1.0)
    assert not breaker.probe(1.0)
    waits = []
    now = 1.0
    for _ in range(4):
        breaker.failed(now)
        began = now
        while not breaker.probe(now):
            now += 0.5
        waits.append(now - began)
    assert waits == [2.0, 4.0, 4.0, 4.0]


def test_a_probe_that_works_closes_it_and_forgets() -> None:
    breaker = Breaker(failures=2, first_s=1.0)
    for _ in range(2):
        breaker.failed(0.0)
    assert breaker.probe(5.0)
    breaker.worked()
    assert breaker.state is BreakerState.CLOSED
    breaker.failed(6.0)
    assert breaker.allows()


def test_a_probe_whose_outcome_was_never_told_is_followed_by_another() -> None:
    breaker = Breaker(failures=1, first_s=1.0)
    breaker.failed(0.0)
    assert breaker.probe(1.0)
    assert not breaker.probe(1.0 + PROBE_LOST_S - 0.1)
    assert breaker.probe(1.0 + PROBE_LOST_S)


def test_a_breaker_that_never_opened_has_no_probes() -> None:
    breaker = Breaker(failures=2)
    breaker.failed(0.0)
    assert not breaker.probe(1000.0)


@given(st.floats(0, 1, exclude_max=True), st.integers(1, 8))
def test_jitter_spreads_each_wait_by_a_quarter_at_most(luck: float, failures: int) -> None:
    exact, jittered = Breaker(failures=1), Breaker(failures=1, random=lambda: luck)
    now = 0.0
    for _ in range(failures):
        exact.failed(now)
        jittered.failed(now)
        assert abs(jittered.retry_in_s(now) - exact.retry_in_s(now)) <= JITTER * exact.retry_in_s(now) * 1.0001
        now += 60.0
        assert exact.probe(now)
        assert jittered.probe(now)


def test_two_edges_that_saw_the_same_death_probe_at_different_times() -> None:
    one, other = Breaker(failures=1, random=Random(1).random), Breaker(failures=1, random=Random(2).random)
    one.failed(0.0)
    other.failed(0.0)
    assert one.retry_in_s(0.0) != other.retry_in_s(0.0)


def test_shards_fail_apart() -> None:
    shards = ShardBreakers(lambda: Breaker(failures=1))
    shards.of("asr:en").failed(0.0)
    assert not shards.of("asr:en").allows()
    assert shards.of("tts:heart").allows()
    assert dict(shards) == {"asr:en": BreakerState.OPEN, "tts:heart": BreakerState.CLOSED}


def test_a_probe_that_was_given_up_makes_room_for_another_at_once() -> None:
    breaker = Breaker(failures=1, first_s=1.0)
    breaker.failed(0.0)
    assert breaker.probe(1.0)
    breaker.gave_up(1.5)
    assert not breaker.allows()
    assert breaker.probe(1.5)
