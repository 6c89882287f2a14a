"""Fail-over of one stream between replicas."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent.core.breaker import Breaker, BreakerState
from agent.core.failover import (
    OPEN_S,
    PROGRESS_S,
    REPLAY_MS,
    Action,
    Cause,
    Close,
    Failover,
    Open,
    Replay,
    ReplayBuffer,
    StreamState,
    Unavailable,
)


def make(*replicas: str, breaker: Breaker | None = None) -> Failover:
    return Failover(lambda: replicas, breaker or Breaker(failures=3))


def live(*replicas: str, breaker: Breaker | None = None) -> Failover:
    """On the first replica, with an ack from it."""
    stream = make(*replicas, breaker=breaker)
    assert stream.start(0.0) == [Open(replicas[0], 1)]
    assert stream.opened(1) == [Replay(1)]
    stream.sent(0.02)
    stream.progress(1, 0.03, outstanding=False)
    return stream


def test_a_stream_begins_on_the_best_replica() -> None:
    stream = live("a", "b")
    assert (stream.state, stream.replica) == (StreamState.LIVE, "a")


def test_an_error_moves_it_to_the_next_replica_with_a_replay_and_a_new_generation() -> None:
    stream = live("a", "b")
    assert stream.failed(1, 1.0) == [Close("a", 1, Cause.ERROR), Open("b", 2)]
    assert not stream.is_current(1)
    assert stream.opened(2) == [Replay(2)]
    assert stream.is_current(2)


def test_no_progress_for_200_ms_is_noticed_at_the_deadline_and_not_before() -> None:
    stream = live("a", "b")
    stream.sent(1.0)
    stream.sent(1.1)
    assert stream.deadline == 1.0 + PROGRESS_S
    assert stream.tick(1.19) == []
    assert stream.tick(1.2) == [Close("a", 1, Cause.STALLED), Open("b", 2)]


def test_an_ack_that_leaves_something_outstanding_starts_the_clock_again() -> None:
    stream = live("a", "b")
    stream.sent(1.0)
    stream.progress(1, 1.15, outstanding=True)
    assert stream.tick(1.3) == []
    assert stream.tick(1.35) == [Close("a", 1, Cause.STALLED), Open("b", 2)]


def test_a_quiet_call_is_never_stalled() -> None:
    stream = live("a", "b")
    assert stream.deadline is None
    assert stream.tick(3600.0) == []


def test_a_replica_that_does_not_open_in_time_is_passed_over() -> None:
    stream = make("a", "b")
    stream.start(0.0)
    assert stream.deadline == OPEN_S
    assert stream.tick(OPEN_S) == [Close("a", 1, Cause.NOT_OPENED), Open("b", 2)]


def test_answers_of_an_attempt_that_was_left_change_nothing() -> None:
    stream = live("a", "b")
    stream.failed(1, 1.0)
    assert stream.opened(1) == []
    assert stream.failed(1, 1.0) == []
    stream.progress(1, 1.0, outstanding=True)
    assert stream.state is StreamState.OPENING


def test_with_nowhere_to_go_it_says_so_once_and_tries_again() -> None:
    stream = live("a")
    assert stream.failed(1, 1.0) == [Close("a", 1, Cause.ERROR), Unavailable()]
    assert stream.state is StreamState.UNAVAILABLE
    retry_at = stream.deadline
    assert retry_at is not None
    assert stream.tick(retry_at - 0.01) == []
    assert stream.tick(retry_at) == [Open("a", 2)]
    assert stream.failed(2, retry_at + 0.1) == [Close("a", 2, Cause.ERROR)]


def test_after_a_recovery_it_may_be_unavailable_again() -> None:
    stream = live("a")
    stream.failed(1, 1.0)
    stream.tick(2.0)
    stream.opened(2)
    stream.progress(2, 2.1, outstanding=False)
    assert Unavailable() in stream.failed(2, 3.0)


def test_a_replica_that_opens_and_then_hangs_does_not_look_well_each_time_anew() -> None:
    breaker = Breaker(failures=3, first_s=10.0)
    stream = make("a", breaker=breaker)
    stream.start(0.0)
    told: list[Action] = []
    now, generation = 0.0, 1
    while breaker.allows():
        assert generation < 10
        stream.opened(generation)
        stream.sent(now)
        now += PROGRESS_S
        told += [action for action in stream.tick(now) if isinstance(action, Unavailable)]
        now += 0.5
        generation += any(isinstance(action, Open) for action in stream.tick(now))
    assert told == [Unavailable()]


def test_an_open_breaker_lets_one_stream_probe_and_the_rest_wait() -> None:
    breaker = Breaker(failures=1, first_s=1.0)
    one, other = live("a", breaker=breaker), live("a", breaker=breaker)
    one.failed(1, 1.0)
    assert breaker.state is BreakerState.OPEN
    other.failed(1, 1.0)
    assert one.tick(1.5) == []
    assert one.tick(2.0) == [Open("a", 2)]
    assert other.tick(2.0) == []
    one.opened(2)
    one.progress(2, 2.02, outstanding=False)
    assert other.deadline is not None
    assert other.tick(other.deadline) == [Open("a", 2)]


def test_a_probing_stream_tries_all_replicas_before_it_gives_up() -> None:
    breaker = Breaker(failures=1, first_s=1.0)
    breaker.failed(0.0)
    stream = make("a", "b", breaker=breaker)
    assert stream.start(1.0) == [Open("a", 1)]
    assert stream.failed(1, 1.1) == [Close("a", 1, Cause.ERROR), Open("b", 2)]
    assert stream.failed(2, 1.2) == [Close("b", 2, Cause.ERROR), Unavailable()]
    assert breaker.state is BreakerState.OPEN


def test_a_call_that_ends_while_it_probes_leaves_the_probe_to_another() -> None:
    breaker = Breaker(failures=1, first_s=1.0)
    breaker.failed(0.0)
    stream = make("a", breaker=breaker)
    stream.start(1.0)
    stream.close(1.1)
    assert breaker.probe(1.1)


def test_a_move_opens_the_new_stream_before_it_closes_the_old() -> None:
    stream = live("a", "b")
    assert stream.move(1.0) == [Open("b", 2)]
    assert (stream.state, stream.replica) == (StreamState.MOVING, "a")
    assert stream.is_current(1)
    assert stream.opened(2) == [Replay(2), Close("a", 1, Cause.MOVED)]
    assert (stream.state, stream.replica) == (StreamState.LIVE, "b")


def test_a_move_that_fails_leaves_the_stream_where_it_was() -> None:
    stream = live("a", "b")
    stream.move(1.0)
    assert stream.failed(2, 1.1) == [Close("b", 2, Cause.ERROR)]
    assert (stream.state, stream.replica) == (StreamState.LIVE, "a")


def test_a_move_with_no_other_replica_stays() -> None:
    stream = live("a")
    assert stream.move(1.0) == []
    assert stream.state is StreamState.LIVE


def test_the_old_replica_may_die_during_a_move() -> None:
    stream = live("a", "b")
    stream.move(1.0)
    assert stream.failed(1, 1.1) == [Close("a", 1, Cause.ERROR)]
    assert stream.state is StreamState.OPENING
    assert stream.opened(2) == [Replay(2)]


def test_closing_closes_every_attempt_and_nothing_revives_it() -> None:
    stream = live("a", "b")
    stream.move(1.0)
    assert stream.close(1.1) == [Close("a", 1, Cause.MOVED), Close("b", 2, Cause.MOVED)]
    assert stream.tick(100.0) == stream.start(100.0) == stream.opened(2) == []
    assert stream.state is StreamState.CLOSED


def test_the_replay_holds_the_last_400_ms() -> None:
    buffer: ReplayBuffer[int] = ReplayBuffer()
    for n in range(100):
        buffer.add(n)
    assert buffer.frames() == list(range(100 - REPLAY_MS // 20, 100))
    buffer.clear()
    assert buffer.frames() == []


EVENTS = st.tuples(
    st.sampled_from(["opened", "failed", "progress", "sent", "tick", "move"]), st.integers(0, 3), st.floats(0.0, 0.3)
)


@given(st.lists(EVENTS, max_size=80), st.integers(0, 3))
def test_whatever_happens_one_generation_counts_and_every_attempt_left_is_closed(
    events: list[tuple[str, int, float]], count: int
) -> None:
    stream = Failover(lambda: [f"r{n}" for n in range(count)], Breaker(failures=2))
    opened: set[int] = set()
    closed: set[int] = set()
    now, newest, told = 0.0, 0, False

    def obey(actions: list[Action]) -> None:
        nonlocal newest, told
        for action in actions:
            match action:
                case Open(_, generation):
                    assert generation == newest + 1
                    newest = generation
                    opened.add(generation)
                case Close(_, generation, _):
                    assert generation in opened - closed
                    closed.add(generation)
                case Unavailable():
                    assert not told
                    told = True
                case Replay(generation):
                    assert stream.is_current(generation)

    obey(stream.start(now))
    for name, back, passed in events:
        now += passed
        generation = max(1, newest - back)
        match name:
            case "opened":
                obey(stream.opened(generation))
            case "failed":
                obey(stream.failed(generation, now))
            case "progress":
                told = told and not stream.is_current(generation)
                stream.progress(generation, now, outstanding=back > 0)
            case "sent":
                stream.sent(now)
            case "tick":
                obey(stream.tick(now))
            case _:
                obey(stream.move(now))
        current = [generation for generation in range(newest + 1) if stream.is_current(generation)]
        assert len(current) == (stream.replica is not None)
        assert not closed.intersection(current)
        if stream.state in (StreamState.OPENING, StreamState.UNAVAILABLE):
            assert stream.deadline is not None, "it would wait for ever"
    obey(stream.close(now))
    assert closed == opened
