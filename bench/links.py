"""Links between an edge and a core: round trips of 20 ms frames, and CPU a stream-second, at 1, 20 and 100 streams.

Each stream sends a frame of 16 kHz audio (640 bytes) every 20 ms, and the other process sends it back. In `tick` all
frames of a tick leave at one moment, as the shared ticker of a media process sends them; the last of a hundred waits
for the ninety-nine before it, both ways. In `spread` each stream has its own moment. CPU is that of the whole process,
the load generator included.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from agent.core.address import parse_core_address
from agent.core.inproc import inproc_pair
from agent.core.link import Link
from agent.core.linking import LinkOptions, connect
from agent.core.messages import Audio, Hello, Message
from agent.errors import RejoinderError
from agent.media.priority import favour_media_thread
from bench._media import percentile
from bench.harness import Report
from bench.workers import cpu_s

__all__ = ["run"]

LINKS = ("inproc", "shm", "grpc+unix", "grpc+tcp")
STREAMS = (1, 20, 100)
TICK_S = 0.02
FRAME = bytes(640)
WARM_UP_TICKS = 10
LINGER_S = 1.0
"""How long the last frames may take to come back."""

DEADLINE_S = 30.0


@dataclass(frozen=True)
class Cell:
    """One link under one load: microseconds, and CPU milliseconds a stream-second of each side (None: not apart)."""

    p50_us: float
    p99_us: float
    edge_ms: float
    core_ms: float | None
    lost: int


def run(*, quick: bool) -> Report:
    """All links, all loads, in one run."""
    return asyncio.run(_run(quick=quick))


async def _run(*, quick: bool) -> Report:
    favoured = favour_media_thread()
    seconds, rounds = (0.4, 3) if quick else (1.0, 15)
    rows: list[tuple[object, ...]] = []
    cells: dict[tuple[str, int, str], Cell] = {}
    quietest: dict[tuple[str, int, str], float] = {}
    for name in LINKS:
        async with _link(name) as (link, pid):
            for streams in STREAMS:
                for pattern in ("tick", "spread"):
                    if pattern == "spread" and streams < 100:
                        continue
                    done = [await _measure(link, pid, streams, pattern, seconds) for _ in range(rounds)]
                    cell = cells[name, streams, pattern] = _middle(done)
                    quietest[name, streams, pattern] = min(one.p99_us for one in done)
                    core = "" if cell.core_ms is None else round(cell.core_ms, 3)
                    rows.append((name, streams, pattern, cell.p50_us, cell.p99_us, round(cell.edge_ms, 3), core))
    lost = sum(cell.lost for cell in cells.values())
    mux = [cells[name, 100, "tick"] for name in ("grpc+unix", "grpc+tcp")]
    return Report(
        title="Links: a 20 ms frame there and back",
        columns=("link", "streams", "frames", "p50 us", "p99 us", "edge CPU ms a stream-s", "core CPU ms a stream-s"),
        rows=rows,
        keys={
            "shm_p99_us_100": round(cells["shm", 100, "spread"].p99_us, 1),
            "shm_quietest_p99_us_100": round(quietest["shm", 100, "spread"], 1),
            "shm_p50_us_100": round(cells["shm", 100, "spread"].p50_us, 1),
            "shm_tick_p99_us_100": round(cells["shm", 100, "tick"].p99_us, 1),
            "shm_cpu_ms_per_stream_s_100": round(_dearer(cells["shm", 100, "tick"]), 3),
            "mux_cpu_ms_per_stream_s_100": round(max(_dearer(cell) for cell in mux), 3),
            "mux_tick_p99_us_100": round(max(cell.p99_us for cell in mux), 1),
            "frames_lost_count": lost,
        },
        notes=(
            f"{rounds} rounds of {seconds:g} s a row; the middle one by p99.",
            "shm_quietest_p99 is the best round's: what is above it is other programs' use of the cores.",
            f"Scheduling of both event loops: {favoured}, as in the product.",
            "mux: the dearer side of the dearer of the two gRPC links, all streams in one HTTP/2 stream.",
            "shm_p99 is of frames that come spread over the tick; shm_tick_p99 of a hundred at one moment.",
            "inproc: both sides are one process.",
            "gRPC sends spread frames in batches of 15 ms: that wait is most of their round trip.",
        ),
    )


@asynccontextmanager
async def _link(name: str) -> AsyncIterator[tuple[Link, int | None]]:
    """A greeted link to an echo, and that one's process id; None for this process."""
    if name == "inproc":
        edge, core = inproc_pair()

        def echo(messages: Sequence[Message]) -> None:
            for message in messages:
                core.send(message)

        await asyncio.gather(edge.greet(Hello("bench"), DEADLINE_S), core.welcome(Hello("echo"), DEADLINE_S))
        core.start(echo, lambda _reason: None)
        yield edge, None
        await edge.close()
        await core.close()
        return
    with tempfile.TemporaryDirectory(prefix="rejoinder-links-") as folder:
        where = {"shm": f"shm:{folder}/s", "grpc+unix": f"unix:{folder}/s", "grpc+tcp": "tcp://127.0.0.1:0"}[name]
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "bench._links_core",
            where,
            cwd=Path(__file__).parents[1],
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), DEADLINE_S)).decode().strip()
            if not line:
                raise RejoinderError(f"{name}: the other process did not start")
            link = await connect(parse_core_address(line), LinkOptions())
            await link.greet(Hello("bench"), DEADLINE_S)
            yield link, process.pid
            await link.close()
        finally:
            process.kill()
            await process.wait()


class _Caller:
    """All streams of one run."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._on_its_way: dict[tuple[int, int], float] = {}
        self.times_us: list[float] = []
        self.done = asyncio.Event()

    def send(self, stream: int, sequence: int) -> None:
        self._on_its_way[stream, sequence] = time.perf_counter()
        self._link.send(Audio(stream, sequence, FRAME))

    def take(self, messages: Sequence[Message]) -> None:
        now = time.perf_counter()
        for message in messages:
            assert isinstance(message, Audio)
            self.times_us.append((now - self._on_its_way.pop((message.stream, message.sequence))) * 1e6)
        if not self._on_its_way:
            self.done.set()

    @property
    def missing(self) -> int:
        return len(self._on_its_way)


async def _measure(link: Link, pid: int | None, streams: int, pattern: str, seconds: float) -> Cell:
    caller = _Caller(link)
    _listen(link, caller.take)
    await _talk(caller, streams, pattern, WARM_UP_TICKS, 1)
    caller.times_us.clear()
    gc.collect()
    gc.disable()
    edge, core = time.process_time(), cpu_s(pid) if pid is not None else 0.0
    ticks = round(seconds / TICK_S)
    await _talk(caller, streams, pattern, ticks, WARM_UP_TICKS + 1)
    gc.enable()
    stream_seconds = streams * ticks * TICK_S
    return Cell(
        p50_us=statistics.median(caller.times_us),
        p99_us=percentile(caller.times_us, 99),
        edge_ms=(time.process_time() - edge) * 1000 / stream_seconds,
        core_ms=(cpu_s(pid) - core) * 1000 / stream_seconds if pid is not None else None,
        lost=caller.missing,
    )


def _listen(link: Link, take: Callable[[Sequence[Message]], None]) -> None:
    """The first time starts the link; then only who takes its messages changes."""
    if link._on_batch is None:
        link.start(take, lambda _reason: None)
    else:
        link._on_batch = take


async def _talk(caller: _Caller, streams: int, pattern: str, ticks: int, first: int) -> None:
    """`ticks` frames of each stream, from sequence number `first` on, and their way back."""
    loop = asyncio.get_running_loop()
    start = loop.time() + 0.01
    moments = [start + TICK_S * stream / streams for stream in range(streams)] if pattern == "spread" else [start]
    for tick in range(ticks):
        for place, moment in enumerate(moments):
            wait_s = moment + tick * TICK_S - loop.time()
            # Those whose moment has passed leave at once: the event loop wakes no oftener than each millisecond.
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            for stream in [place] if pattern == "spread" else range(streams):
                caller.send(stream + 1, first + tick)
    caller.done.clear()
    if caller.missing:
        try:
            async with asyncio.timeout(LINGER_S):
                await caller.done.wait()
        except TimeoutError:
            return


def _middle(cells: list[Cell]) -> Cell:
    return sorted(cells, key=lambda cell: cell.p99_us)[len(cells) // 2]


def _dearer(cell: Cell) -> float:
    return max(cell.edge_ms, cell.core_ms or 0.0)
