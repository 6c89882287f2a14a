"""From the decision to the first audible packet: an answer from the voice cache against one that must be made.

The decision is a typed message: the turn is over the moment it arrives, so what is measured is hook, voice, playout and
the wire, and no endpoint. Callers are real peers over WebRTC; audible is the first packet with 10 ms above -50 dBFS in
it. All callers type at once, which is the worst case for a shared engine. Hits and misses take turns in one run.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial

import aiohttp

from agent.errors import RejoinderError
from agent.media.priority import favour_media_thread
from agent.media.ticker import Ticker
from bench._callers import RtcCaller, Server, serving
from bench._charts import chart, distribution
from bench._media import percentile
from bench.harness import Report, Value

__all__ = ["run"]

CALLS = (1, 5, 10)
TURNS, QUICK_TURNS = 40, 6
PAUSE_S = 0.25
ANSWER_DEADLINE_S = 20.0
QUANTILES = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))


def run(*, quick: bool) -> Report:
    """1, 5 and 10 calls; about 40 s quick, four minutes in full."""
    return asyncio.run(_run(QUICK_TURNS if quick else TURNS, draw=not quick))


async def _run(turns: int, *, draw: bool) -> Report:
    favour_media_thread()
    measured: dict[int, dict[str, list[float]]] = {}
    async with serving(
        REJOINDER_NLU__KIND="function", REJOINDER_NLU__TARGET="bench._answers:reply", REJOINDER_SERVER__MAX_LAG_MS="0"
    ) as server:
        for calls in CALLS:
            measured[calls] = await _round(server, calls, max(2, turns // calls if calls > 1 else turns))
    rows: list[tuple[object, ...]] = []
    keys: dict[str, Value] = {}
    for what in ("hit", "miss"):
        for calls in CALLS:
            values = measured[calls][what]
            found = {name: percentile(values, share) for name, share in QUANTILES}
            rows.append((f"{what}, {calls} calls", len(values), *(f"{found[name]:.1f}" for name, _ in QUANTILES)))
            keys |= {f"{what}_{name}_ms_{calls}": round(value, 1) for name, value in found.items()}
    notes = (
        "Callers and server share the machine's cores; all callers of a round type in the same moment.",
        "A frame leaves every 20 ms, so about 10 ms on average are the wait for the next tick.",
    )
    curves = {f"{what}, {calls} calls": measured[calls][what] for what in ("hit", "miss") for calls in CALLS}
    drawn = chart("first_packet", partial(distribution, curves=curves, xlabel="ms")) if draw else ()
    return Report(
        "From the decision to the first audible packet",
        ("answer", "turns", "p50, ms", "p95, ms", "p99, ms"),
        rows,
        keys,
        notes,
        drawn,
    )


async def _round(server: Server, calls: int, turns: int) -> dict[str, list[float]]:
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        ticker = await stack.enter_async_context(Ticker())
        callers = [await stack.enter_async_context(RtcCaller(server, http, ticker)) for _ in range(calls)]
        await asyncio.gather(*(caller.greeted(ANSWER_DEADLINE_S) for caller in callers))
        # The first of its kind is made and stored; it is no hit.
        kinds = ["known", *(["known", "new"] * turns)]
        for kind in kinds:
            await asyncio.sleep(PAUSE_S)
            await asyncio.gather(*(caller.type(f"a {kind} question", ANSWER_DEADLINE_S) for caller in callers))
    out: dict[str, list[float]] = {"hit": [], "miss": []}
    for caller in callers:
        for kind, response in list(zip(kinds, caller.response_ms(), strict=True))[1:]:
            if response is None:
                raise RejoinderError(f"{calls} calls: a typed message was not answered")
            out["hit" if kind == "known" else "miss"].append(response)
    return out
