"""Thread priorities: each thread has its own, children of the media thread start ordinary."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import TypeVar

from agent.media.priority import ENGINE_NICE, MEDIA_NICE, REALTIME_PRIORITY, favour_engine_thread, favour_media_thread

T = TypeVar("T")


def in_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def nice() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_an_engine_thread_is_favoured_alone_and_only_as_far_as_it_says() -> None:
    before = nice()
    favoured, niceness = in_thread(lambda: (favour_engine_thread(), nice()))
    assert niceness == (ENGINE_NICE if favoured else before)
    assert nice() == before


def test_the_media_thread_gets_what_it_says_and_its_children_do_not() -> None:
    def run() -> tuple[str, int, int, int, int]:
        got = favour_media_thread()
        return got, os.sched_getscheduler(0), os.sched_getparam(0).sched_priority, nice(), in_thread(ordinary)

    def ordinary() -> int:
        return os.sched_getscheduler(0)

    got, policy, priority, niceness, child = in_thread(run)
    if got == "realtime":
        assert policy & ~os.SCHED_RESET_ON_FORK == os.SCHED_RR
        assert priority == REALTIME_PRIORITY
    else:
        assert policy == os.SCHED_OTHER
        assert (niceness == MEDIA_NICE) is (got == "nice")
    assert child == os.SCHED_OTHER
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
