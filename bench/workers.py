"""Several media processes behind one door: what the supervisor costs, and how soon a killed worker is back.

One process alone and a supervisor with two workers, the same calls in turn. CPU is the kernel's own count in
nanoseconds of all threads of the process in question.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from agent.config import MediaSettings
from agent.errors import RejoinderError
from agent.media.aiortc_seam import PeerTransport
from agent.media.ticker import Ticker
from bench._callers import RtcCaller, Server, StreamCaller, _offer, serving
from bench._media import percentile
from bench.harness import Report

__all__ = ["run"]

WORKERS = 2
NO_LIMIT = {"REJOINDER_SERVER__RATE_PER_MINUTE": "100000", "REJOINDER_SERVER__MAX_LAG_MS": "0"}
LOAD = "All of it suffers when other programs use the cores: times and recovery most, CPU time by up to a half."


class _Silent:
    """What a transport tells, told to nobody: the call is set up and hung up, never used."""

    def on_rtp(self, data: bytes) -> None: ...
    def on_rtcp(self, data: bytes) -> None: ...
    def on_channel(self, channel: object) -> None: ...
    def on_gone(self, reason: str) -> None: ...


def cpu_s(pid: int) -> float:
    """CPU time of a process and its threads that live, in seconds (proc(5): schedstat)."""
    total = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        total += int(path.read_text(encoding="ascii").split()[0])
    return total / 1e9


def rss_mb(pid: int) -> tuple[float, float]:
    """Resident memory, and the part of it that is this process's alone (smaps_rollup: Private_*)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()[1:]
    kb = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return kb["Rss"] / 1024, (kb["Private_Clean"] + kb["Private_Dirty"]) / 1024


async def overview(http: aiohttp.ClientSession, server: Server) -> list[dict[str, object]]:
    async with http.get(f"{server.url}/healthz") as answer:
        found: list[dict[str, object]] = (await answer.json())["workers"]
        return found


def worker_pids(server: Server) -> dict[int, int]:
    """Process ids by worker number."""
    found = {}
    children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text(encoding="ascii").split()
    for task in Path(f"/proc/{server.pid}/task").iterdir():
        children += (task / "children").read_text(encoding="ascii").split()
    for pid in children:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        if b"signaling.workers.worker" in words:
            found[int(words[words.index(b"signaling.workers.worker") + 1])] = int(pid)
    return found


async def set_up(server: Server, http: aiohttp.ClientSession, count: int) -> list[float]:
    """Offer, answer and hang up, `count` times one after the other: ms from the offer's sending to the answer."""
    headers = {"Authorization": f"Bearer {server.token}"}
    times = []
    for _ in range(count):
        transport = PeerTransport(MediaSettings(), _Silent(), data=True, controlling=True)
        await transport.gather()
        offer = {"sdp": _offer(transport), "type": "offer"}
        began = time.perf_counter()
        async with http.post(f"{server.url}/v1/calls", json=offer, headers=headers) as answer:
            if answer.status != 201:
                raise RejoinderError(f"a call was refused: {(await answer.text())[:200]}")
            call_id = (await answer.json())["id"]
        times.append((time.perf_counter() - began) * 1000)
        async with http.delete(f"{server.url}/v1/calls/{call_id}", headers=headers) as answer:
            await answer.read()
        await transport.close()
    return times


async def open_streams(server: Server, http: aiohttp.ClientSession, count: int) -> list[float]:
    """Open a WebSocket call and close it, `count` times: ms to the open socket."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        ws = await http.ws_connect(f"{server.url}/v1/stream?rate=16000&token={server.token}")
        times.append((time.perf_counter() - began) * 1000)
        await ws.close()
    return times


@asynccontextmanager
async def proxying(server: Server) -> AsyncIterator[tuple[int, Server]]:
    """A WebSocket proxy before a server: its process id, and the server as reached through it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench._ws_proxy", server.url), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        port = int(await process.stdout.readline())
        yield process.pid, Server(process.pid, f"http://127.0.0.1:{port}", server.token)
    finally:
        process.kill()
        await process.wait()


async def talking(pid: int, server: Server, http: aiohttp.ClientSession, calls: int, seconds: float) -> float:
    """CPU of `pid` while `calls` WebSocket calls go on, as % of a core a call. The callers' microphones never rest."""
    async with AsyncExitStack() as stack:
        for _ in range(calls):
            await stack.enter_async_context(StreamCaller(server, http))
        await asyncio.sleep(1.0)
        before, began = cpu_s(pid), time.monotonic()
        await asyncio.sleep(seconds)
        return (cpu_s(pid) - before) / (time.monotonic() - began) / calls * 100


async def recovery(server: Server, http: aiohttp.ClientSession, ticker: Ticker) -> tuple[float, float, float]:
    """Kill a worker that has a call: seconds until the door knows, until the other takes a call, until it is back."""
    async with AsyncExitStack() as stack:
        for _ in range(WORKERS):
            await stack.enter_async_context(RtcCaller(server, http, ticker))
        pids = worker_pids(server)
        os.kill(pids[1], signal.SIGKILL)
        began = time.monotonic()
        # Another program's state: there is no event to wait for.
        while (await overview(http, server))[0]["state"] == "ready":  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        known = time.monotonic() - began
        await set_up(server, http, 1)
        taken = time.monotonic() - began
        while (await overview(http, server))[0]["state"] != "ready":  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return known, taken, time.monotonic() - began


async def _run(calls: int, streams: int, seconds: float, kills: int) -> Report:
    keys: dict[str, float | int | str] = {}
    async with Ticker() as ticker, aiohttp.ClientSession() as http:
        async with serving(**NO_LIMIT) as alone:
            await set_up(alone, http, 3)
            setup_alone = await set_up(alone, http, calls)
            stream_alone = await open_streams(alone, http, calls)
            alone_rss, alone_own = rss_mb(alone.pid)
            async with proxying(alone) as (proxy_pid, through):
                keys["proxy_cpu_pct_per_stream_pct"] = round(
                    await talking(proxy_pid, through, http, streams, seconds), 3
                )
        async with serving(REJOINDER_SERVER__WORKERS=str(WORKERS), **NO_LIMIT) as fleet:
            await set_up(fleet, http, 3)
            before = cpu_s(fleet.pid)
            setup_fleet = await set_up(fleet, http, calls)
            setup_cpu_ms = (cpu_s(fleet.pid) - before) / calls * 1000
            before = cpu_s(fleet.pid)
            stream_fleet = await open_streams(fleet, http, calls)
            stream_cpu_ms = (cpu_s(fleet.pid) - before) / calls * 1000
            keys["supervisor_cpu_pct_per_stream_pct"] = round(
                await talking(fleet.pid, fleet, http, streams, seconds), 3
            )
            supervisor_rss, supervisor_own = rss_mb(fleet.pid)
            rss = [rss_mb(pid) for pid in worker_pids(fleet).values()]
            recoveries = []
            for _ in range(kills):
                recoveries.append(await recovery(fleet, http, ticker))
                await asyncio.sleep(1.0)
    known, taken, back = (statistics.median(column) for column in zip(*recoveries, strict=True))
    keys |= {
        "supervisor_cpu_per_webrtc_call_ms": round(setup_cpu_ms, 2),
        "supervisor_cpu_per_stream_call_ms": round(stream_cpu_ms, 2),
        "setup_alone_p50_ms": round(percentile(setup_alone, 0.5), 1),
        "setup_workers_p50_ms": round(percentile(setup_fleet, 0.5), 1),
        "setup_alone_p95_ms": round(percentile(setup_alone, 0.95), 1),
        "setup_workers_p95_ms": round(percentile(setup_fleet, 0.95), 1),
        "stream_open_alone_p50_ms": round(percentile(stream_alone, 0.5), 1),
        "stream_open_workers_p50_ms": round(percentile(stream_fleet, 0.5), 1),
        "death_known_ms": round(known * 1000, 1),
        "next_call_after_kill_ms": round(taken * 1000, 1),
        "worker_back_s": round(back, 2),
        "alone_rss_mb": round(alone_rss, 1),
        "supervisor_rss_mb": round(supervisor_rss, 1),
        "worker_rss_mb": round(max(total for total, _ in rss), 1),
        "worker_private_mb": round(max(own for _, own in rss), 1),
    }
    rows: list[tuple[object, ...]] = [
        ("WebRTC call: offer to answer, p50 / p95 ms", _pair(setup_alone), _pair(setup_fleet)),
        ("WebSocket call: to the open socket, p50 / p95 ms", _pair(stream_alone), _pair(stream_fleet)),
        ("supervisor's CPU to set up and end a WebRTC call, ms", "-", keys["supervisor_cpu_per_webrtc_call_ms"]),
        ("supervisor's CPU to set up a WebSocket call, ms", "-", keys["supervisor_cpu_per_stream_call_ms"]),
        (
            f"supervisor's CPU while {streams} WebSocket calls go on, % of a core a call",
            "-",
            keys["supervisor_cpu_pct_per_stream_pct"],
        ),
        ("the same if it proxied the audio", "-", keys["proxy_cpu_pct_per_stream_pct"]),
        ("worker killed: known, ms", "-", keys["death_known_ms"]),
        ("worker killed: next call set up, ms", "-", keys["next_call_after_kill_ms"]),
        ("worker killed: a new one takes calls, s", "-", keys["worker_back_s"]),
        ("resident memory / its own part, MB: one process or each worker", f"{alone_rss:.0f} / {alone_own:.0f}",
         ", ".join(f"{total:.0f} / {own:.0f}" for total, own in rss)),
        ("resident memory / its own part, MB: supervisor", "-", f"{supervisor_rss:.0f} / {supervisor_own:.0f}"),
    ]  # fmt: skip
    return Report(
        f"One process, and a supervisor with {WORKERS} workers", ("measure", "alone", "workers"), rows, keys, (LOAD,)
    )


def _pair(values: list[float]) -> str:
    return f"{percentile(values, 0.5):.1f} / {percentile(values, 0.95):.1f}"


def run(*, quick: bool) -> Report:
    """15 calls, 5 s and one kill (quick); or 60 calls, 20 s and five kills."""
    return asyncio.run(_run(15, 5, 5.0, 1) if quick else _run(60, 10, 20.0, 5))
