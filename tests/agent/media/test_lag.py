from agent.media.lag import EVERY, WINDOW, LagGate


def feed(gate: LagGate, lag_ms: float, count: int) -> None:
    for _ in range(count):
        gate.add(lag_ms / 1000)


def test_a_punctual_clock_is_never_late() -> None:
    gate = LagGate(20.0)
    feed(gate, 1.0, 10 * WINDOW)
    assert not gate.late
    assert gate.p99_ms == 1.0


def test_a_clock_that_is_late_now_and_then_closes_the_gate() -> None:
    gate = LagGate(20.0)
    for _ in range(WINDOW // 10):
        feed(gate, 1.0, 9)
        feed(gate, 35.0, 1)
    assert gate.late
    assert gate.p99_ms == 35.0


def test_one_stall_in_three_seconds_does_not() -> None:
    gate = LagGate(20.0)
    feed(gate, 1.0, WINDOW)
    gate.add(0.4)
    feed(gate, 1.0, EVERY * 2)
    assert not gate.late


def test_it_opens_again_only_well_below_the_limit() -> None:
    gate = LagGate(20.0)
    feed(gate, 30.0, WINDOW)
    assert gate.late
    feed(gate, 15.0, 2 * WINDOW)
    assert gate.late
    feed(gate, 9.0, 2 * WINDOW)
    assert not gate.late
    feed(gate, 15.0, 2 * WINDOW)
    assert not gate.late


def test_it_closes_within_half_a_second_of_trouble() -> None:
    gate = LagGate(20.0)
    feed(gate, 0.0, WINDOW)
    feed(gate, 50.0, EVERY)
    assert gate.late


def test_zero_turns_it_off() -> None:
    gate = LagGate(0.0)
    feed(gate, 500.0, 2 * WINDOW)
    assert not gate.late
