"""The pool with real threads; order is forced with events, never with time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest

from agent.core.pool import Priority, WorkerPool
from agent.errors import EngineError, EngineOverloaded

PATIENCE_S = 10.0


class Gate:
    """A job that occupies a thread until it is opened."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.opened = threading.Event()

    def job(self) -> None:
        self.entered.set()
        assert self.opened.wait(PATIENCE_S)

    async def occupy(
        self, pool: WorkerPool, owner: str = "gate", priority: Priority = Priority.NORMAL
    ) -> asyncio.Task[None]:
        task = asyncio.create_task(pool.run(self.job, owner=owner, priority=priority))
        assert await asyncio.to_thread(self.entered.wait, PATIENCE_S)
        return task


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with WorkerPool(1, name="test") as pool:
        yield pool


async def test_results_come_back_from_a_thread_of_the_pool(pool: WorkerPool) -> None:
    assert await pool.run(divmod, 7, 2, owner="a") == (3, 1)
    name = await pool.run(lambda: threading.current_thread().name, owner="a")
    assert name == "test-0"


async def test_an_exception_is_carried_back_and_the_thread_lives_on(pool: WorkerPool) -> None:
    with pytest.raises(ZeroDivisionError):
        await pool.run(divmod, 1, 0, owner="a")
    with pytest.raises(SystemExit):
        await pool.run(exit, owner="a")
    assert await pool.run(divmod, 1, 1, owner="a") == (1, 0)
    assert pool.statistics.failed == 2


async def test_queued_jobs_run_by_priority_then_owner_by_owner(pool: WorkerPool) -> None:
    gate = Gate()
    gated = await gate.occupy(pool)
    order: list[str] = []
    jobs = [
        ("idle", "z", Priority.IDLE),
        ("a1", "a", Priority.NORMAL),
        ("a2", "a", Priority.NORMAL),
        ("b1", "b", Priority.NORMAL),
        ("final", "a", Priority.FINAL),
    ]
    async with asyncio.TaskGroup() as group:
        for label, owner, priority in jobs:
            group.create_task(pool.run(order.append, label, owner=owner, priority=priority))
        await asyncio.sleep(0)
        assert pool.statistics.queued == len(jobs)
        gate.opened.set()
    await gated
    assert order == ["final", "a1", "b1", "a2", "idle"]


async def test_a_cancelled_waiters_job_never_runs(pool: WorkerPool) -> None:
    gate = Gate()
    gated = await gate.occupy(pool)
    ran: list[str] = []
    waiter = asyncio.create_task(pool.run(ran.append, "cancelled", owner="a"))
    await asyncio.sleep(0)
    assert pool.statistics.queued == 1
    waiter.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiter
    assert pool.statistics.queued == 0
    gate.opened.set()
    await gated
    await pool.run(ran.append, "next", owner="a")
    assert ran == ["next"]
    assert pool.statistics.dropped == 1


async def test_cancelling_a_running_job_frees_the_waiter_at_once(pool: WorkerPool) -> None:
    gate = Gate()
    gated = await gate.occupy(pool)
    gated.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gated
    assert pool.statistics.running == 1
    gate.opened.set()
    assert await pool.run(divmod, 1, 1, owner="a") == (1, 0)


async def test_one_job_too_many_is_refused_at_once() -> None:
    async with WorkerPool(1, name="small", max_queued=2) as pool:
        gate = Gate()
        gated = await gate.occupy(pool)
        waiting = [asyncio.create_task(pool.run(divmod, 1, 1, owner=n)) for n in range(2)]
        await asyncio.sleep(0)
        assert pool.statistics.queued == 2
        with pytest.raises(EngineOverloaded, match="2 jobs are waiting"):
            await pool.run(divmod, 1, 1, owner="late")
        assert pool.statistics.refused == 1
        gate.opened.set()
        await gated
        assert await asyncio.gather(*waiting) == [(1, 0), (1, 0)]


async def test_a_job_that_cannot_start_in_time_is_dropped(pool: WorkerPool) -> None:
    gate = Gate()
    gated = await gate.occupy(pool)
    ran: list[int] = []
    with pytest.raises(EngineOverloaded, match="no thread was free"):
        await pool.run(ran.append, 1, owner="a", deadline_s=0.01)
    gate.opened.set()
    await gated
    await pool.run(ran.append, 2, owner="a")
    assert ran == [2]


async def test_a_job_that_runs_too_long_says_so(pool: WorkerPool) -> None:
    gate = Gate()
    with pytest.raises(EngineError, match="took longer"):
        await pool.run(gate.job, owner="a", deadline_s=0.05)
    gate.opened.set()


async def test_a_timeout_raised_by_the_job_is_the_jobs_own(pool: WorkerPool) -> None:
    def late() -> None:
        raise TimeoutError("the job's own")

    with pytest.raises(TimeoutError, match="the job's own"):
        await pool.run(late, owner="a", deadline_s=PATIENCE_S)


async def test_partials_leave_a_thread_free_for_a_final() -> None:
    async with WorkerPool(2, name="pair") as pool:
        gates = [Gate(), Gate()]
        first = await gates[0].occupy(pool, owner="a", priority=Priority.PARTIAL)
        second = asyncio.create_task(pool.run(gates[1].job, owner="b", priority=Priority.PARTIAL))
        await asyncio.sleep(0)
        assert pool.statistics.queued == 1
        # Served although one partial runs and another waits: a thread was kept free.
        assert await pool.run(divmod, 1, 1, owner="c", priority=Priority.FINAL) == (1, 0)
        assert not gates[1].entered.is_set()
        for gate in gates:
            gate.opened.set()
        await asyncio.gather(first, second)


async def test_close_fails_what_waits_and_lets_what_runs_end() -> None:
    pool = WorkerPool(1, name="closing")
    pool.start()
    gate = Gate()
    gated = await gate.occupy(pool)
    waiter = asyncio.create_task(pool.run(divmod, 1, 1, owner="a"))
    await asyncio.sleep(0)
    assert pool.statistics.queued == 1
    closing = asyncio.create_task(pool.close())
    with pytest.raises(EngineError, match="closed before the job started"):
        await waiter
    gate.opened.set()
    await gated
    await closing
    assert not [t for t in threading.enumerate() if t.name.startswith("closing")]
    with pytest.raises(EngineError, match="is closed"):
        await pool.run(divmod, 1, 1, owner="a")
    await pool.close()


async def test_close_returns_at_its_deadline_though_a_job_hangs(caplog: pytest.LogCaptureFixture) -> None:
    pool = WorkerPool(1, name="hanging")
    pool.start()
    gate = Gate()
    gated = await gate.occupy(pool)
    await pool.close(deadline_s=0.05)
    assert "still running" in caplog.text
    gate.opened.set()
    await gated


async def test_it_does_not_run_before_it_was_started() -> None:
    pool = WorkerPool(1, name="cold")
    with pytest.raises(EngineError, match="not started"):
        await pool.run(divmod, 1, 1, owner="a")


def test_zero_threads_means_one_a_core_and_fewer_is_an_error() -> None:
    assert WorkerPool(0, name="auto").threads >= 1
    with pytest.raises(ValueError, match="threads"):
        WorkerPool(-1, name="wrong")


async def test_many_jobs_of_many_owners_all_come_back_right() -> None:
    async with WorkerPool(4, name="many", max_queued=1000) as pool:
        results = await asyncio.gather(*(pool.run(pow, n, 2, owner=n % 7) for n in range(400)))
    assert results == [n * n for n in range(400)]
    statistics = pool.statistics
    assert (statistics.done, statistics.queued, statistics.running) == (400, 0, 0)


async def test_each_thread_is_prepared_before_its_first_job() -> None:
    prepared: list[str] = []
    async with WorkerPool(2, name="p", prepare=lambda: prepared.append(threading.current_thread().name)) as pool:
        assert await pool.run(lambda: threading.current_thread().name in prepared, owner="a")
    assert sorted(prepared) == ["p-0", "p-1"]


async def test_load_rises_while_threads_work(pool: WorkerPool) -> None:
    assert pool.load == 0.0
    gate = Gate()
    gated = await gate.occupy(pool)
    assert 0.0 < pool.load <= 1.0
    gate.opened.set()
    await gated
    assert 0.0 < pool.load <= 1.0
