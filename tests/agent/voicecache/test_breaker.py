"""The circuit breaker."""

from __future__ import annotations

from agent.voicecache.breaker import Breaker, BreakerState


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
