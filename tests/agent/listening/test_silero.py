"""The engine: batches, fairness, bounds, failure."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import numpy as np
import pytest

from agent.errors import EngineError, EngineOverloaded, ModelMissing
from agent.listening.graph import Float32, SileroGraph
from agent.listening.silero import MAX_BATCH, MAX_PENDING, WINDOW_SAMPLES, VadEngine
from agent.media.frames import Pcm
from tests.agent.listening.hearing import Clip, frames


class ScriptedGraph:
    """Answers each window with its loudest sample; waits at `door` while that is shut; fails when told to."""

    def __init__(self) -> None:
        self.door = threading.Event()
        self.door.set()
        self.entered = threading.Event()
        self.fault: Exception | None = None
        self.poison = False
        self.batches: list[list[float]] = []
        self.threads: set[str] = set()
        self.thread: threading.Thread | None = None

    def __call__(self, file: Path) -> ScriptedGraph:
        self.thread = threading.current_thread()
        return self

    def run(self, windows: Float32, state: Float32) -> tuple[Float32, Float32]:
        self.threads.add(threading.current_thread().name)
        self.entered.set()
        assert self.door.wait(10)
        if self.fault is not None:
            raise self.fault
        out = windows[:, 64:].max(axis=1)
        self.batches.append([float(p) for p in out])
        return (out * np.nan if self.poison else out), state + 1


class Results:
    """What one stream was told."""

    def __init__(self, engine: VadEngine) -> None:
        self.probabilities: list[tuple[float, int]] = []
        self.failures: list[EngineError] = []
        self.stream = engine.open(lambda p, end: self.probabilities.append((p, end)), self.failures.append)


def window(value: float, count: int = 1) -> Pcm:
    return np.full(WINDOW_SAMPLES * count, round(value * 32768), dtype=np.int16)


async def test_calls_that_speak_in_one_pass_of_the_loop_share_a_run() -> None:
    graph = ScriptedGraph()
    async with VadEngine(Path("none"), load=graph) as engine:
        calls = [Results(engine) for _ in range(5)]
        for i, call in enumerate(calls):
            call.stream.push(window(i / 8))
        await engine.settled()
    assert graph.batches == [[0.0, 0.125, 0.25, 0.375, 0.5]]
    assert [call.probabilities for call in calls] == [[(i / 8, WINDOW_SAMPLES)] for i in range(5)]
    assert graph.threads == {"vad"}


async def test_a_burst_of_one_call_does_not_hold_up_another() -> None:
    graph = ScriptedGraph()
    async with VadEngine(Path("none"), load=graph) as engine:
        eager, modest = Results(engine), Results(engine)
        eager.stream.push(window(0.5, 10))
        modest.stream.push(window(0.25))
        await engine.settled()
    assert graph.batches == [[0.5, 0.25]] + [[0.5]] * 9
    assert [end for _, end in eager.probabilities] == [WINDOW_SAMPLES * (i + 1) for i in range(10)]


async def test_a_run_is_bounded_and_the_rest_comes_next() -> None:
    graph = ScriptedGraph()
    async with VadEngine(Path("none"), load=graph) as engine:
        calls = [Results(engine) for _ in range(MAX_BATCH + 3)]
        for call in calls:
            call.stream.push(window(0.5, 2))
        await engine.settled()
        assert engine.snapshot().largest_batch == MAX_BATCH
        assert engine.snapshot().windows == 2 * len(calls)
    assert [len(call.probabilities) for call in calls] == [2] * len(calls)
    # Whoever had to wait comes before anyone's second window.
    assert [len(batch) for batch in graph.batches] == [MAX_BATCH, MAX_BATCH, 6]


async def test_positions_go_on_and_jump_only_with_resume() -> None:
    async with VadEngine(Path("none"), load=ScriptedGraph()) as engine:
        call = Results(engine)
        call.stream.push(window(0.5)[:320])
        call.stream.push(window(0.5)[:320])
        call.stream.resume(640)
        call.stream.push(window(0.5)[:384])
        call.stream.resume(16_000)
        call.stream.push(window(0.25))
        await engine.settled()
    assert call.probabilities == [(0.5, 512), (0.5, 1024), (0.25, 16_512)]


async def test_two_callers_at_once_get_what_each_gets_alone(model_file: Path, clips: dict[str, Clip]) -> None:
    sources = [clips["jfk"].pcm[:64_000], clips["beckett"].pcm[:64_000]]
    async with VadEngine(model_file) as engine:
        alone = []
        for source in sources:
            call = Results(engine)
            for frame in frames(source):
                call.stream.push(frame)
                await engine.settled()
            alone.append(call.probabilities)
        assert engine.snapshot().largest_batch == 1
        together = [Results(engine) for _ in sources]
        for pair in zip(*(frames(source) for source in sources), strict=True):
            for call, frame in zip(together, pair, strict=True):
                call.stream.push(frame)
            await engine.settled()
        assert engine.snapshot().largest_batch == 2
    assert [call.probabilities for call in together] == alone
    assert max(p for p, _ in alone[0]) > 0.9 > 0.1 > min(p for p, _ in alone[0])


async def test_a_call_too_far_behind_is_told_and_may_resume_once_the_engine_caught_up() -> None:
    graph = ScriptedGraph()
    async with VadEngine(Path("none"), load=graph) as engine:
        call = Results(engine)
        graph.door.clear()
        call.stream.push(window(0.5, 1))
        assert await asyncio.to_thread(graph.entered.wait, 10)
        call.stream.push(window(0.5, MAX_PENDING - 1))
        assert not call.failures
        call.stream.push(window(0.5, 3))
        assert [type(e) for e in call.failures] == [EngineOverloaded]
        assert not call.stream.ready
        assert engine.snapshot().overloads == 1
        graph.door.set()
        await engine.settled()
        assert call.probabilities == []
        assert call.stream.ready
        call.stream.resume(99_488)
        call.stream.push(window(0.25))
        await engine.settled()
        assert call.probabilities == [(0.25, 100_000)]
    # What was dropped was not computed either: the run under way, and the one after.
    assert sum(len(batch) for batch in graph.batches) == 2


@pytest.mark.parametrize("kind", ["raises", "nan"])
async def test_a_failing_graph_is_an_engine_error_for_every_call_in_the_run_and_passes(kind: str) -> None:
    graph = ScriptedGraph()
    async with VadEngine(Path("none"), load=graph) as engine:
        calls = [Results(engine), Results(engine)]
        graph.fault, graph.poison = (RuntimeError("out of memory"), False) if kind == "raises" else (None, True)
        for call in calls:
            call.stream.push(window(0.5))
        await engine.settled()
        assert [[type(e) for e in call.failures] for call in calls] == [[EngineError], [EngineError]]
        assert engine.snapshot().failures == 1
        graph.fault, graph.poison = None, False
        for call in calls:
            call.stream.push(window(0.5))  # ignored until resumed
            call.stream.resume(4096)
            call.stream.push(window(0.5))
        await engine.settled()
        assert [call.probabilities for call in calls] == [[(0.5, 4608)], [(0.5, 4608)]]


async def test_nothing_is_heard_of_a_closed_stream() -> None:
    graph = ScriptedGraph()
    async with VadEngine(Path("none"), load=graph) as engine:
        gone, other = Results(engine), Results(engine)
        gone.stream.push(window(0.5))
        other.stream.push(window(0.25))
        gone.stream.close()
        gone.stream.close()
        gone.stream.push(window(0.5))
        gone.stream.resume(0)
        gone.stream.push(window(0.5))
        await engine.settled()
    assert (gone.probabilities, gone.failures) == ([], [])
    assert other.probabilities == [(0.25, WINDOW_SAMPLES)]
    assert graph.batches == [[0.25]]


async def test_a_callback_that_raises_costs_no_other_call_its_result() -> None:
    reported = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["exception"]))
    async with VadEngine(Path("none"), load=ScriptedGraph()) as engine:
        bad = engine.open(lambda p, end: 1 // 0, lambda error: None)
        good = Results(engine)
        bad.push(window(0.5))
        good.stream.push(window(0.5))
        await engine.settled()
    assert [type(e) for e in reported] == [ZeroDivisionError]
    assert good.probabilities == [(0.5, WINDOW_SAMPLES)]


async def test_an_engine_that_ended_fails_its_streams() -> None:
    graph = ScriptedGraph()
    async with VadEngine(Path("none"), load=graph) as engine:
        call = Results(engine)
    call.stream.push(window(0.5))
    assert [type(e) for e in call.failures] == [EngineError]
    assert graph.thread is not None
    assert not graph.thread.is_alive()


async def test_a_model_that_is_not_there_is_said_on_entering_and_leaves_no_thread(tmp_path: Path) -> None:
    threads: list[threading.Thread] = []

    def load(file: Path) -> SileroGraph:
        threads.append(threading.current_thread())
        return SileroGraph(file)

    with pytest.raises(ModelMissing, match="rejoinder models fetch"):
        async with VadEngine(tmp_path / "silero_vad.onnx", load=load):
            pass
    threads[0].join(10)
    assert not threads[0].is_alive()


async def test_a_cancelled_start_leaves_no_thread(model_file: Path) -> None:
    threads: list[threading.Thread] = []
    door, inside = threading.Event(), threading.Event()

    def load(file: Path) -> SileroGraph:
        threads.append(threading.current_thread())
        inside.set()
        assert door.wait(10)
        return SileroGraph(file)

    async def start() -> None:
        async with VadEngine(model_file, load=load):
            pass

    starting = asyncio.create_task(start())
    assert await asyncio.to_thread(inside.wait, 10)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    door.set()
    await asyncio.to_thread(threads[0].join, 10)
    assert not threads[0].is_alive()


async def test_the_graph_is_loaded_off_the_loop(model_file: Path) -> None:
    where = []

    def load(file: Path) -> SileroGraph:
        where.append(threading.current_thread())
        return SileroGraph(file)

    async with VadEngine(model_file, load=load):
        pass
    assert where[0] is not threading.main_thread()
