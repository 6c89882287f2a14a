"""Admission: one suite over the book of one process, the script in fakeredis, and the script in a real Redis."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fakeredis import FakeAsyncRedis
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.admission import Admission, AdmissionLimits, Admitted, Load, Overview, Queued, Reason, Refused
from agent.core.admission_book import LocalAdmission
from agent.core.admission_redis import RedisAdmission, connect_redis
from tests.redisserver import RedisServer

LIMITS = AdmissionLimits(
    streams=10, queue=3, queue_s=30.0, pace_s=0.2, lease_s=15.0, presence_s=5.0, load_s=100.0, memory_low=0.8
)
SLOW = Load(0.1, 500.0, 10)
QUICK = Load(0.1, 250.0, 10)


@dataclass
class Clock:
    """Seconds; moved by the test."""

    now: float = 1000.0

    def ms(self) -> int:
        return int(self.now * 1000)


@dataclass
class Book:
    """An admission with a clock; `make` gives another one over the same shared state where there is one."""

    kind: str
    clock: Clock = field(default_factory=Clock)
    redis: Any = None

    def make(self, limits: AdmissionLimits = LIMITS) -> Admission:
        if self.redis is None:
            return LocalAdmission(limits, lambda: self.clock.now)
        return RedisAdmission(self.redis, limits, now_ms=self.clock.ms, deadline_s=20.0)


@pytest.fixture(params=["local", "fakeredis", pytest.param("redis", marks=pytest.mark.e2e)])
async def book(request: pytest.FixtureRequest) -> AsyncIterator[Book]:
    match request.param:
        case "local":
            yield Book("local")
        case "fakeredis":
            async with FakeAsyncRedis(max_connections=1000) as fake:
                yield Book("fakeredis", redis=fake)
        case _:
            server: RedisServer = request.getfixturevalue("module_redis")
            async with connect_redis(server.url) as client:
                await client.flushall()
                yield Book("redis", redis=client)


async def fill(admission: Admission, count: int = 10) -> None:
    for n in range(count):
        assert await admission.ask(f"live-{n}") == Admitted()


async def test_places_are_given_until_they_are_taken_then_calls_are_refused(book: Book) -> None:
    admission = book.make()
    await fill(admission)
    assert await admission.ask("late") == Refused(Reason.STREAMS, 5)
    assert await admission.overview() == Overview(10, 0, full=True, memory=False, slow=False)


async def test_two_hundred_arrivals_at_once_get_exactly_the_places_there_are(book: Book) -> None:
    admission = book.make(replace(LIMITS, streams=42))
    answers = await asyncio.gather(*(admission.ask(f"t{n}") for n in range(200)))
    assert Counter(type(answer) for answer in answers) == {Admitted: 42, Refused: 158}


async def test_two_hundred_arrivals_before_a_slow_core_queue_in_order_and_the_rest_is_refused(book: Book) -> None:
    admission = book.make(replace(LIMITS, queue=100))
    await admission.report("core", SLOW)
    answers = [await admission.ask(f"t{n}") for n in range(200)]
    assert [answer.position for answer in answers if isinstance(answer, Queued)] == list(range(1, 101))
    assert Counter(answer.reason for answer in answers if isinstance(answer, Refused)) == {Reason.QUEUE_FULL: 100}


async def test_asking_again_is_safe_for_an_admitted_call(book: Book) -> None:
    admission = book.make()
    await fill(admission)
    assert await admission.ask("live-3") == Admitted()
    assert (await admission.overview()).leases == 10


async def test_a_full_house_opens_only_when_it_is_a_twentieth_empty(book: Book) -> None:
    admission = book.make(replace(LIMITS, streams=40))
    await fill(admission, 40)
    for n in range(1):
        await admission.release(f"live-{n}")
        assert await admission.ask("late") == Refused(Reason.STREAMS, 5)
    await admission.release("live-1")
    assert await admission.ask("late") == Admitted()


async def test_even_a_house_of_one_place_opens_again(book: Book) -> None:
    admission = book.make(replace(LIMITS, streams=1))
    await fill(admission, 1)
    assert isinstance(await admission.ask("late"), Refused)
    await admission.release("live-0")
    assert await admission.ask("late") == Admitted()


async def test_a_place_that_is_not_renewed_is_free_again(book: Book) -> None:
    admission = book.make()
    await fill(admission)
    book.clock.now += 10
    await admission.renew(["live-0", "live-1"])
    book.clock.now += 10
    assert (await admission.overview()).leases == 2
    assert await admission.ask("late") == Admitted()


async def test_live_calls_keep_their_places_whatever_the_thresholds_say(book: Book) -> None:
    admission = book.make()
    await admission.report("core", Load(0.95))
    await admission.renew([f"live-{n}" for n in range(12)])
    assert await admission.overview() == Overview(12, 0, full=True, memory=True, slow=False)


async def test_memory_refuses_from_its_high_mark_until_its_low_one(book: Book) -> None:
    admission = book.make()
    seen = []
    for memory in (0.89, 0.90, 0.85, 0.81, 0.80, 0.89):
        await admission.report("core", Load(memory))
        answer = await admission.ask("x")
        await admission.release("x")
        seen.append(answer.reason if isinstance(answer, Refused) else None)
    assert seen == [None, Reason.MEMORY, Reason.MEMORY, Reason.MEMORY, None, None]


async def test_one_core_with_memory_is_enough(book: Book) -> None:
    admission = book.make()
    await admission.report("a", Load(0.99))
    await admission.report("b", Load(0.50))
    assert await admission.ask("x") == Admitted()


async def test_a_slow_first_packet_queues_from_its_high_mark_until_its_low_one(book: Book) -> None:
    admission = book.make()
    seen = []
    for mean in (400.0, 401.0, 350.0, 301.0, 300.0, 390.0):
        await admission.report("core", Load(0.1, mean, 5))
        answer = await admission.ask("x")
        await admission.release("x")
        seen.append(isinstance(answer, Queued))
    assert seen == [False, True, True, True, False, False]


async def test_the_mean_is_over_all_answers_and_not_over_cores(book: Book) -> None:
    admission = book.make()
    await admission.report("busy", Load(0.1, 200.0, 90))
    await admission.report("one-slow-answer", Load(0.1, 2000.0, 10))
    assert not (await admission.overview()).slow
    await admission.report("busy", Load(0.1, 200.0, 10))
    assert (await admission.overview()).slow


async def test_loads_that_are_no_longer_reported_count_no_more(book: Book) -> None:
    admission = book.make()
    await admission.report("dead", Load(0.99, 5000.0, 10))
    assert await admission.ask("x") == Refused(Reason.MEMORY, 15)
    book.clock.now += 100
    assert await admission.ask("x") == Admitted()


async def test_without_answers_there_is_no_mean(book: Book) -> None:
    admission = book.make()
    await admission.report("idle", Load(0.1, None, 50))
    await admission.report("odd", Load(0.1, 5000.0, 0))
    assert await admission.ask("x") == Admitted()


async def test_who_waits_is_told_position_and_time_left(book: Book) -> None:
    admission = book.make()
    await admission.report("core", SLOW)
    assert await admission.ask("a") == Queued(1, 30.0)
    assert await admission.ask("b") == Queued(2, 30.0)
    book.clock.now += 4
    assert await admission.ask("b") == Queued(2, 26.0)
    await admission.release("a")
    assert await admission.ask("b") == Queued(1, 26.0)


async def test_the_queue_empties_in_order_and_at_its_pace(book: Book) -> None:
    admission = book.make()
    await admission.report("core", SLOW)
    for name in "abc":
        await admission.ask(name)
    await admission.report("core", QUICK)
    assert await admission.ask("b") == Queued(2, 30.0)
    assert await admission.ask("a") == Admitted()
    assert await admission.ask("b") == Queued(1, 30.0)
    book.clock.now += 0.2
    assert await admission.ask("c") == Queued(2, 29.8)
    assert await admission.ask("b") == Admitted()
    book.clock.now += 0.2
    assert await admission.ask("c") == Admitted()


async def test_one_who_is_slow_to_ask_does_not_keep_those_behind_it(book: Book) -> None:
    admission = book.make()
    await admission.report("core", SLOW)
    for name in "abc":
        await admission.ask(name)
    await admission.report("core", QUICK)
    book.clock.now += 0.2
    assert await admission.ask("b") == Admitted()
    assert await admission.ask("c") == Queued(2, 29.8), "the place of the first is kept for it"
    assert await admission.ask("a") == Admitted()


async def test_nobody_overtakes_the_queue(book: Book) -> None:
    admission = book.make()
    await admission.report("core", SLOW)
    await admission.ask("a")
    await admission.report("core", QUICK)
    assert await admission.ask("newcomer") == Queued(2, 30.0)


async def test_a_full_house_keeps_the_queue_and_refuses_newcomers(book: Book) -> None:
    admission = book.make()
    await fill(admission, 9)
    await admission.report("core", SLOW)
    await admission.ask("waiting")
    await admission.renew(["live-9"])
    await admission.report("core", QUICK)
    assert await admission.ask("newcomer") == Refused(Reason.STREAMS, 5)
    assert await admission.ask("waiting") == Queued(1, 30.0)
    await admission.release("live-0")
    assert await admission.ask("waiting") == Admitted()


async def test_who_has_waited_to_the_deadline_is_told_and_may_begin_again(book: Book) -> None:
    admission = book.make()
    await admission.report("core", SLOW)
    await admission.ask("a")
    for _ in range(7):
        book.clock.now += 4
        assert isinstance(await admission.ask("a"), Queued)
    book.clock.now += 2
    assert await admission.ask("b") == Queued(1, 30.0)
    assert await admission.ask("a") == Refused(Reason.WAITED, 5)
    assert await admission.ask("a") == Queued(2, 30.0)


async def test_who_asks_no_more_has_left_the_queue(book: Book) -> None:
    admission = book.make()
    await admission.report("core", SLOW)
    await admission.ask("a")
    book.clock.now += 3
    await admission.ask("b")
    book.clock.now += 3
    assert await admission.ask("b") == Queued(1, 27.0)
    assert await admission.ask("a") == Queued(2, 30.0)


async def test_releasing_what_is_not_there_changes_nothing(book: Book) -> None:
    admission = book.make()
    await admission.release("nobody")
    await admission.renew([])
    assert await admission.overview() == Overview(0, 0, full=False, memory=False, slow=False)


async def test_processes_that_share_a_book_share_the_places(book: Book) -> None:
    if book.redis is None:
        one = other = book.make()
    else:
        one, other = book.make(), book.make()
    await fill(one, 6)
    answers = [await other.ask(f"other-{n}") for n in range(6)]
    assert Counter(type(answer) for answer in answers) == {Admitted: 4, Refused: 2}


async def test_pools_do_not_count_for_each_other() -> None:
    async with FakeAsyncRedis() as fake:
        await fill(RedisAdmission(fake, LIMITS))
        assert await RedisAdmission(fake, LIMITS, pool="other").ask("x") == Admitted()


async def test_the_clock_of_redis_is_the_clock() -> None:
    async with FakeAsyncRedis() as fake:
        admission = RedisAdmission(fake, replace(LIMITS, lease_s=0.05))
        await fill(admission)
        await asyncio.sleep(0.1)
        assert (await admission.overview()).leases == 0


NAMES = st.sampled_from(["a", "b", "c", "d", "e"])
# Mostly the values between which a queue forms and empties, now and then those at the edges.
MEMORY = st.sampled_from([0.1, 0.1, 0.1, 0.1, 0.8, 0.85, 0.9])
FIRST_PACKET_MS = st.sampled_from([100.0, 100.0, 3000.0, 3000.0, None, 0.4, 299.6, 300.5, 400.4, 400.6])
STEPS = st.one_of(
    *[st.tuples(st.just("ask"), NAMES)] * 4,
    st.tuples(st.just("renew"), st.lists(NAMES, max_size=2)),
    st.tuples(st.just("release"), NAMES),
    *[
        st.tuples(
            st.just("report"), st.sampled_from(["x", "y"]), st.builds(Load, MEMORY, FIRST_PACKET_MS, st.integers(0, 3))
        )
    ]
    * 2,
    *[st.tuples(st.just("pass"), st.sampled_from([0.001, 0.1, 0.1, 0.2, 0.5, 0.9, 1.0, 2.0]))] * 2,
)
SMALL = AdmissionLimits(
    streams=4, queue=2, queue_s=3.0, pace_s=0.2, lease_s=4.0, presence_s=1.0, load_s=5.0, memory_low=0.8
)


@settings(max_examples=100, deadline=None)
@given(st.lists(STEPS, min_size=10, max_size=60))
def test_the_script_and_the_book_answer_alike_whatever_happens(steps: list[tuple[Any, ...]]) -> None:
    clock = Clock()

    async def play() -> None:
        async with FakeAsyncRedis() as fake:
            twins = (
                LocalAdmission(SMALL, lambda: clock.now),
                RedisAdmission(fake, SMALL, now_ms=clock.ms, deadline_s=20.0),
            )
            for name, *arguments in steps:
                if name == "pass":
                    clock.now += arguments[0]
                    continue
                one, other = [await getattr(twin, name)(*arguments) for twin in twins]
                assert one == other
                views = [await twin.overview() for twin in twins]
                assert views[0] == views[1]
                assert views[0].queue <= SMALL.queue

    asyncio.run(play())


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"streams": 0}, "streams"),
        ({"memory_low": 0.95}, "memory_low"),
        ({"memory_high": 1.5}, "memory_low"),
        ({"first_packet_low_ms": 500.0}, "first_packet_low_ms"),
        ({"queue": -1}, "queue"),
        ({"lease_s": 0.0}, "lease_s"),
        ({"pace_s": -1.0}, "pace_s"),
    ],
)
def test_limits_that_contradict_themselves_are_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(LIMITS, **change)
