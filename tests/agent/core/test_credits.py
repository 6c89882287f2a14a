"""Credits: the core's window and the edge's queue."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from agent.core.credits import FRAME_MS, MAX_CREDITS, MAX_QUEUED_MS, CreditedQueue, CreditWindow

TICK_S = 0.02


def test_a_slow_core_halves_the_window_down_to_one_frame() -> None:
    window = CreditWindow(0.0)
    seen = [window.observe(41.0, 0.04 * tick) for tick in range(5)]
    assert seen == [4, 2, 1, 1, 1]


def test_one_slow_moment_halves_once_however_often_it_is_seen() -> None:
    window = CreditWindow(0.0)
    assert [window.observe(90.0, 0.001 * tick) for tick in range(4)] == [4, 4, 4, 4]


def test_exactly_forty_milliseconds_are_not_slow() -> None:
    window = CreditWindow(0.0)
    assert window.observe(40.0, 1.0) == MAX_CREDITS


def test_an_easy_core_gets_its_window_back_a_frame_at_a_time() -> None:
    window = CreditWindow(0.0)
    for tick in range(4):
        window.observe(100.0, tick * 0.05)
    grown = [window.observe(0.0, 0.15 + 0.06 * tick) for tick in range(1, 20)]
    assert grown[0] == 1
    assert grown[1] == 2
    assert grown[-1] == MAX_CREDITS
    assert all(after - before in (0, 1) for before, after in pairwise(grown))


def test_between_easy_and_slow_the_window_stays() -> None:
    window = CreditWindow(0.0)
    window.observe(100.0, 0.0)
    assert {window.observe(30.0, 0.02 * tick) for tick in range(1, 200)} == {4}


def test_with_credit_a_frame_goes_out_at_once() -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    sent = [item.frame for n in range(MAX_CREDITS) for item in queue.push(n, speech=True)]
    assert sent == list(range(MAX_CREDITS))
    assert queue.push(99, speech=True) == []


def test_an_ack_lets_the_next_go_in_order() -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    for n in range(10):
        queue.push(n, speech=True)
    assert [item.frame for item in queue.acked(1, MAX_CREDITS)] == [8]
    assert [item.frame for item in queue.acked(2, MAX_CREDITS)] == [9]


def test_a_smaller_window_holds_frames_until_the_surplus_is_acknowledged() -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    for n in range(9):
        queue.push(n, speech=True)
    assert queue.acked(6, 1) == []
    assert [item.frame for item in queue.acked(8, 1)] == [8]


def test_silence_is_dropped_before_older_speech() -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    for n in range(8):
        queue.push(n, speech=True)
    queue.push(8, speech=True)
    queue.push(9, speech=False)
    queue.push(10, speech=True)
    assert (queue.dropped.silence, queue.dropped.speech) == (1, 0)
    assert [item.frame for item in queue.acked(8, MAX_CREDITS)] == [8, 10]


def test_speech_is_dropped_oldest_first_and_counted_when_there_is_nothing_else() -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    for n in range(12):
        queue.push(n, speech=True)
    assert (queue.dropped.silence, queue.dropped.speech) == (0, 2)
    assert [item.seq for item in queue.acked(8, MAX_CREDITS)] == [11, 12]


def test_a_restart_forgets_what_was_on_the_way() -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    for n in range(10):
        queue.push(n, speech=True)
    queue.acked(3, 1)
    assert [item.frame for item in queue.restart()] == [8, 9]
    assert (queue.window, queue.in_flight) == (MAX_CREDITS, 2)


def test_an_ack_of_frames_never_sent_and_an_impossible_window_do_no_harm() -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    queue.push(0, speech=True)
    queue.acked(10_000, 500)
    assert (queue.window, queue.in_flight) == (MAX_CREDITS, 0)
    queue.acked(0, 0)
    assert queue.window == 1


STEPS = st.one_of(
    st.tuples(st.just("push"), st.booleans()),
    st.tuples(st.just("ack"), st.integers(0, 3), st.integers(0, 10)),
    st.tuples(st.just("restart")),
)


@given(st.lists(STEPS, max_size=200))
def test_queued_audio_never_passes_the_limit_and_every_frame_is_accounted_for(steps: list[tuple[object, ...]]) -> None:
    queue: CreditedQueue[int] = CreditedQueue()
    pushed, sent, speech_by_seq = 0, [], {}
    for step in steps:
        match step:
            case ("push", bool(speech)):
                speech_by_seq[pushed] = speech
                sent += queue.push(pushed, speech=speech)
                pushed += 1
            case ("ack", int(behind), int(window)):
                last = sent[-1].seq if sent else 0
                sent += queue.acked(last - behind, window)
                assert 1 <= queue.window <= MAX_CREDITS
            case _:
                sent += queue.restart()
        assert queue.queued_ms <= MAX_QUEUED_MS
        assert queue.in_flight <= MAX_CREDITS
        assert len(sent) + queue.waiting + queue.dropped.total == pushed
    assert [item.seq for item in sent] == sorted({item.seq for item in sent})
    assert all(item.frame == item.seq - 1 and item.speech == speech_by_seq[item.frame] for item in sent)


@given(st.integers(1, 12), st.integers(50, 300))
def test_in_front_of_a_core_of_any_speed_the_wait_is_bounded(ticks_per_frame: int, ticks: int) -> None:
    """A core that takes one frame every so many ticks, and the caller's microphone, which never rests."""
    queue: CreditedQueue[int] = CreditedQueue()
    window = CreditWindow(0.0)
    at_core: list[tuple[int, int]] = []
    for tick in range(ticks):
        at_core += [(item.seq, tick) for item in queue.push(tick, speech=tick % 3 > 0)]
        age_ms = (tick - at_core[0][1]) * FRAME_MS if at_core else 0
        granted = window.observe(age_ms, tick * TICK_S)
        if tick % ticks_per_frame == 0 and at_core:
            seq, _ = at_core.pop(0)
            at_core += [(item.seq, tick) for item in queue.acked(seq, granted)]
        assert queue.queued_ms <= MAX_QUEUED_MS
    if ticks_per_frame == 1:
        assert queue.dropped.total == 0
