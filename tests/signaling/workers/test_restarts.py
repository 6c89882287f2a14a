import pytest

from signaling.workers.restarts import FIRST_S, HEALTHY_S, LONGEST_S, Restarts


def test_the_first_restart_is_quick_and_the_wait_doubles() -> None:
    restarts = Restarts(lambda: 1.0)
    assert [restarts.ended(1.0) for _ in range(9)] == [0.25, 0.5, 1, 2, 4, 8, 16, LONGEST_S, LONGEST_S]


@pytest.mark.parametrize("drawn", [0.0, 0.3, 0.999])
def test_half_of_each_wait_is_drawn(drawn: float) -> None:
    restarts = Restarts(lambda: drawn)
    restarts.ended(None)
    assert restarts.ended(None) == pytest.approx(2 * FIRST_S * (0.5 + drawn / 2))


def test_a_healthy_stretch_forgives() -> None:
    restarts = Restarts(lambda: 1.0)
    for _ in range(6):
        restarts.ended(1.0)
    assert restarts.ended(HEALTHY_S) == FIRST_S
    assert restarts.ended(HEALTHY_S - 1) == 2 * FIRST_S


def test_a_month_of_failures_does_not_overflow() -> None:
    restarts = Restarts(lambda: 1.0)
    assert {restarts.ended(None) for _ in range(100_000)} > {LONGEST_S}


def test_four_failed_starts_in_a_row_are_hopeless() -> None:
    restarts = Restarts()
    for _ in range(3):
        restarts.ended(None)
    assert not restarts.hopeless
    restarts.ended(None)
    assert restarts.hopeless
    restarts.ended(HEALTHY_S)
    assert not restarts.hopeless
