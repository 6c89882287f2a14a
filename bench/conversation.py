"""How often an answer's first clause is ready before it is asked for, over 200 service calls in virtual time."""

from __future__ import annotations

import asyncio
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from agent.config import CacheSettings, load_settings
from agent.core.pool import WorkerPool
from agent.tts.hibari import HibariSynthesizer
from agent.tts.protocol import Style, Voice
from agent.voicecache.foresight import first_clause
from agent.voicecache.situation import heard_slots, template
from bench._charts import chart
from bench._dialogues import Dialogue, dialogues
from bench._linesim import EngineTimes, LineResult, play
from bench.harness import Report, Value

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["run"]

CALLS = 200
MARKS = (20, 50, 100, 200)
SEEDS = (1, 2, 3, 4, 5)
"""Each draws its own 200 calls from the scripts and their order; results are means."""

SYSTEMS = {
    "none": "no cache",
    "lru": "LRU cache of the same size",
    "learned": "voice cache, hooks say nothing of what they expect",
    "ours": "voice cache",
    "oracle": "oracle (knows the next answer)",
}


def run(*, quick: bool) -> Report:
    """Measure the engine, then play the calls against each system."""
    settings = CacheSettings()
    times = asyncio.run(_engine_times(6 if quick else 16))
    seeds = SEEDS[:1] if quick else SEEDS
    played = {
        system: [play(dialogues(CALLS, seed), times, system, settings, seed=seed) for seed in seeds]
        for system in SYSTEMS
    }
    rows: list[tuple[object, ...]] = []
    for system, name in SYSTEMS.items():
        results = played[system]
        spent_s = statistics.mean(result.live_s + result.ahead_s for result in results)
        rows.append(
            (
                name,
                *(round(_mean_pct(results, mark), 1) for mark in MARKS),
                round(1000 * statistics.mean(_mean(result.waited_s) for result in results), 1),
                round(spent_s, 1),
                round(_wasted_pct(results), 1),
            )
        )
    ours, lru, oracle = (_mean_pct(played[system], 100) for system in ("ours", "lru", "oracle"))
    keys: dict[str, Value] = {
        "ready_pct_100": round(ours, 1),
        "lru_pct_100": round(lru, 1),
        "oracle_pct_100": round(oracle, 1),
        "learned_pct_100": round(_mean_pct(played["learned"], 100), 1),
        "gap_closed_pct": round(100 * (ours - lru) / (oracle - lru), 1) if oracle > lru else 0.0,
        "wasted_pct": round(_wasted_pct(played["ours"]), 1),
    }
    knowable = statistics.mean(_knowable_pct(dialogues(CALLS, seed), 100) for seed in seeds)
    keys["knowable_pct_100"] = round(knowable, 1)
    each = [_pct(result, 100) for result in played["ours"]]
    answers = statistics.mean(len(result.waited_s) for result in played["ours"])
    notes = (
        f"{len(seeds)} x {CALLS} calls of five domains, {answers:.0f} answers each, three or more calls at a time; "
        "greetings are not counted.",
        "Partials come each 320 ms and once at the pause, 250 ms after the last word: before any hook is asked, that "
        "word has been read. The answer is there 400 ms after it.",
        "A column tells the share of answers, in the half of the calls up to that one, whose whole first clause was in "
        "memory when the hook had written it.",
        f"Over the sets of calls the voice cache had {min(each):.0f} to {max(each):.0f} % ready at 100.",
        f"Of the answers up to 100, {knowable:.0f} % began with a clause that was said before (but for names and "
        "numbers the call had mentioned) or that the hook expected. The rest is new, which only the oracle knows.",
        "Engine time is CPU time of the embedded voice, measured in this run: "
        f"{times.each_s * 1000:.1f} ms + {times.per_char_s * 1000:.2f} ms a character.",
        "Wasted: made ahead and not said until the end, in percent of all the engine's time.",
        "Two of the five hooks say what they expect (`expect`) and three name their states; two are written like a "
        "language model that does neither.",
        f"Both caches hold {settings.memory_mb} MB in memory; no disk, no Redis, so that only the choice of what to "
        "keep and to make differs.",
    )
    columns = ("system", *(f"ready at {mark}, %" for mark in MARKS), "first clause, ms", "engine, s", "wasted, %")
    curves = {
        name: [_mean_pct(played[system], mark) for mark in MARKS]
        for system, name in SYSTEMS.items()
        if system != "none"
    }
    drawn = () if quick else chart("conversation", partial(_draw, curves=curves))
    return Report("First clauses that are ready", columns, rows, keys, notes, drawn)


def _draw(axes: Axes, *, curves: dict[str, list[float]]) -> None:
    for name, ready_pct in curves.items():
        axes.plot(MARKS, ready_pct, marker="o", label=name)
    axes.set(xlabel="calls", ylabel="first clauses ready, %", xticks=MARKS, ylim=(0, 102))


def _pct(result: LineResult, mark: int) -> float:
    """Of the answers in the calls from `mark` / 2 to `mark`."""
    answers = [ready for call in result.ready[mark // 2 : mark] for ready in call]
    return 100 * sum(answers) / len(answers)


def _knowable_pct(calls: list[Dialogue], mark: int) -> float:
    """The share of answers, in the calls from `mark` / 2 to `mark`, whose opening could be known: see the notes."""
    seen: set[str] = set()
    knowable: list[bool] = []
    for number, call in enumerate(calls[:mark]):
        before = call.greeting
        for exchange in call.exchanges:
            opening = _opening(exchange.reply)
            pattern = template(opening, {**heard_slots(exchange.heard), **before.known})
            if number >= mark // 2:
                knowable.append(pattern in seen or opening in map(_opening, before.expected))
            seen.add(pattern)
            before = exchange
    return 100 * sum(knowable) / len(knowable)


def _opening(text: str) -> str:
    clause = first_clause(text, "en")
    return "" if clause is None else clause.text.strip()


def _mean_pct(results: list[LineResult], mark: int) -> float:
    return statistics.mean(_pct(result, mark) for result in results)


def _wasted_pct(results: list[LineResult]) -> float:
    return statistics.mean(100 * result.wasted_s / (result.live_s + result.ahead_s) for result in results)


def _mean(values: list[float]) -> float:
    return statistics.mean(values) if values else 0.0


async def _engine_times(count: int) -> EngineTimes:
    """CPU seconds of the embedded voice for clauses of these calls: a line through them."""
    texts: list[str] = []
    for dialogue in dialogues(40, 9):
        for exchange in dialogue.exchanges:
            clause = first_clause(exchange.reply, "en")
            if clause is not None and clause.spoken not in texts:
                texts.append(clause.spoken)
    texts = sorted(texts, key=len)[:: max(1, len(texts) // count)]
    async with WorkerPool(1, name="bench") as pool:
        engine = await HibariSynthesizer.load(load_settings().tts, pool)
        seconds = []
        for text in texts:
            began = time.process_time()
            async for _ in engine.stream(text, Voice(""), Style()):
                pass
            seconds.append(time.process_time() - began)
        await engine.close()
    slope, base = np.polyfit([len(text) for text in texts], seconds, 1)
    return EngineTimes(max(0.0, float(base)), max(0.0, float(slope)))
