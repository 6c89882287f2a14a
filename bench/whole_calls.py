"""Whole calls, voice to voice: one and five callers ask, the real server answers; who waits how long, and for what?

The server is `python -m agent serve`, in a process of its own, with its own recogniser, turn-taking, hook and voice.
The callers speak in real time and in the same moment, and measure what reaches them: the time from the last speech they
sent to the first audible packet (10 ms above -50 dBFS in it), and how far behind the schedule each frame came that the
earliest frame of its talk spurt sets.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from agent.errors import EnvironmentFault, RejoinderError
from agent.media.frames import HEARING_HZ, Pcm
from agent.media.priority import favour_media_thread
from agent.media.resample import resample
from agent.media.ticker import Ticker
from agent.speech.clips import read_wav
from bench._callers import Caller, Question, RtcCaller, Server, StreamCaller, prepare, serving
from bench._media import percentile
from bench._speech import clips
from bench._turns import lateness_ms, longest_pause_ms
from bench.harness import Report, Value

__all__ = ["run"]

CALLS = 5
LATE_MS = 20.0
PAUSE_S = 0.3
"""Between the end of an answer and the next question."""
ANSWER_DEADLINE_S = 20.0

SHOP_QUESTIONS = (
    "How long does delivery take?",
    "Where is your shop?",
    "How much is delivery?",
    "How do I return something?",
    "What are your opening hours?",
)
"""Each has an answer in the shop example; none ends the call. The shortest answers come first."""
QUICK_QUESTIONS = 2

MAX_PAUSE_MS = 300
"""A recording with a longer pause inside would be taken for two turns."""
RECORDED_S = (1.5, 5.0)
"""Length of a recorded question: longer ones cost the bench time and tell nothing new."""
RECORDINGS = 8

PARTS = ("endpoint_ms", "asr_final_ms", "nlu_first_ms", "tts_first_ms", "playout_ms")


@dataclass(frozen=True)
class Measured:
    """One round of calls."""

    label: str
    calls: int
    asked: int
    response_ms: list[float]
    lateness_ms: list[float]
    timings: list[dict[str, float | None]]
    cpu_pct_per_call: float
    rss_mb: float
    caller_lags_ms: list[float]
    """How late the callers' own 20 ms clock was."""

    @property
    def late(self) -> int:
        """Frames behind schedule by more than 20 ms."""
        return sum(value > LATE_MS for value in self.lateness_ms)

    def part(self, name: str) -> float:
        """Median of one of the server's own times, over the turns that have it."""
        return percentile([value for timing in self.timings if (value := timing.get(name)) is not None], 0.5)


def run(*, quick: bool) -> Report:
    """One and five calls over WebRTC, five over the WebSocket; 45 s quick, three minutes in full."""
    voice = next((name for name in ("flite", "espeak-ng") if shutil.which(name)), None)
    spoken = SHOP_QUESTIONS[:QUICK_QUESTIONS] if quick else SHOP_QUESTIONS
    shop = [prepare(pcm) for pcm in _voiced(voice, spoken)] if voice else []
    recorded = [prepare(pcm) for pcm in _recorded()] if not (quick and shop) else []
    return asyncio.run(_run(shop, recorded, voice, quick=quick))


async def _run(shop: list[Question], recorded: list[Question], voice: str | None, *, quick: bool) -> Report:
    favour_media_thread()
    turns = 2 if quick else len(SHOP_QUESTIONS)
    rounds: dict[str, Measured] = {}
    async with serving(**({} if shop else {"REJOINDER_NLU__KIND": "echo"})) as server:
        questions = shop or recorded
        rounds["1"] = await _round("WebRTC", server, questions, calls=1, turns=turns)
        rounds["5"] = await _round("WebRTC", server, questions, calls=CALLS, turns=turns)
        rounds["ws_5"] = await _round("WebSocket", server, questions, calls=CALLS, turns=1 if quick else turns)
    if shop and recorded:
        async with serving(REJOINDER_NLU__KIND="echo") as server:
            rounds["echo_5"] = await _round("WebRTC", server, recorded, calls=CALLS, turns=turns, what="recordings")
    notes = (
        f"Questions for the shop are spoken by {voice}." if voice else "No espeak-ng or flite: recordings and `echo`.",
        "Server and callers share the cores; both ask for the real-time policy (it needs root or CAP_SYS_NICE).",
        "Endpoint, recogniser, hook, voice and playout are the server's own times (`rejoinder.timings`), median.",
    )
    columns = ("round", *(f"{r.calls} x {r.label}" for r in rounds.values()))
    return Report("Whole calls, voice to voice", columns, _rows(rounds), _keys(rounds), notes)


async def _round(
    label: str, server: Server, questions: Sequence[Question], *, calls: int, turns: int, what: str = ""
) -> Measured:
    """`calls` at once; each asks `turns` questions, one after the other, other ones than its neighbours."""
    lags: list[float] = []
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(aiohttp.ClientSession())
        ticker = await stack.enter_async_context(Ticker(on_lag=lags.append))
        before = server.use()
        callers: list[Caller] = []
        for _ in range(calls):
            if label == "WebRTC":
                callers.append(await stack.enter_async_context(RtcCaller(server, http, ticker)))
            else:
                callers.append(await stack.enter_async_context(StreamCaller(server, http)))
        await asyncio.gather(*(_converse(c, questions, at, turns) for at, c in enumerate(callers)))
        after = server.use()
    responses = [value for caller in callers for value in caller.response_ms()]
    heard = [value for value in responses if value is not None]
    if not heard:
        raise RejoinderError(f"{calls} calls over {label}: not one question was answered")
    return Measured(
        label=f"{label}{', ' + what if what else ''}",
        calls=calls,
        asked=len(responses),
        response_ms=heard,
        lateness_ms=[value for caller in callers for value in lateness_ms(caller.spurts())],
        timings=[timing for caller in callers for timing in caller.timings],
        cpu_pct_per_call=(after.cpu_s - before.cpu_s) / (after.at_s - before.at_s) * 100 / calls,
        rss_mb=after.rss_mb,
        caller_lags_ms=[lag * 1000 for lag in lags],
    )


async def _converse(caller: Caller, questions: Sequence[Question], at: int, turns: int) -> None:
    await caller.greeted(ANSWER_DEADLINE_S)
    for turn in range(turns):
        await asyncio.sleep(PAUSE_S)
        await caller.ask(questions[(at + turn) % len(questions)], ANSWER_DEADLINE_S)


def _rows(rounds: dict[str, Measured]) -> list[tuple[object, ...]]:
    each = list(rounds.values())
    table: list[tuple[object, ...]] = [
        ("answered / asked", *(f"{len(r.response_ms)} / {r.asked}" for r in each)),
        ("last speech to first sound p50 / p95, ms", *(_pair(r.response_ms, 0.5, 0.95) for r in each)),
        ("the same by the server's clock p50, ms", *(f"{r.part('response_ms'):.0f}" for r in each)),
        *((f"{name.removesuffix('_ms')} p50, ms", *(f"{r.part(name):.1f}" for r in each)) for name in PARTS),
        ("frames of speech", *(len(r.lateness_ms) for r in each)),
        ("frames later than 20 ms", *(r.late for r in each)),
        ("lateness p99 / max, ms", *(_pair(r.lateness_ms, 0.99, 1.0) for r in each)),
        ("callers' own clock late p99 / max, ms", *(_pair(r.caller_lags_ms, 0.99, 1.0) for r in each)),
        ("server's CPU a call, % of a core", *(f"{r.cpu_pct_per_call:.1f}" for r in each)),
        ("server's memory, MB", *(f"{r.rss_mb:.0f}" for r in each)),
    ]
    return table


def _keys(rounds: dict[str, Measured]) -> dict[str, Value]:
    keys: dict[str, Value] = {}
    for name, r in rounds.items():
        prefix, _, calls = name.rpartition("_")
        prefix += "_" if prefix else ""
        keys[f"{prefix}response_{calls}_p50_ms"] = round(percentile(r.response_ms, 0.5), 1)
        keys[f"{prefix}response_{calls}_p95_ms"] = round(percentile(r.response_ms, 0.95), 1)
        keys[f"{prefix}late_frames_over_20ms_{calls}_count"] = r.late
        keys[f"{prefix}lateness_{calls}_p99_ms"] = round(percentile(r.lateness_ms, 0.99), 2)
        keys[f"{prefix}lateness_{calls}_max_ms"] = round(max(r.lateness_ms, default=0.0), 2)
        keys[f"{prefix}callers_clock_late_{calls}_max_ms"] = round(max(r.caller_lags_ms, default=0.0), 2)
        keys[f"{prefix}unanswered_{calls}_count"] = r.asked - len(r.response_ms)
    five = rounds[str(CALLS)]
    for part in PARTS:
        keys[f"{part.removesuffix('_ms')}_p50_ms"] = round(five.part(part), 1)
    keys["server_cpu_per_call_pct"] = round(five.cpu_pct_per_call, 2)
    keys["server_rss_mb"] = round(five.rss_mb, 1)
    return keys


def _pair(values: list[float], low: float, high: float) -> str:
    return f"{percentile(values, low):.1f} / {percentile(values, high):.1f}"


def _voiced(program: str, texts: Sequence[str]) -> list[Pcm]:
    """Questions by a voice that is not the agent's: int16 [n] at 16 kHz. Raises EnvironmentFault."""
    out = []
    with tempfile.TemporaryDirectory(prefix="rejoinder-bench-") as folder:
        for number, text in enumerate(texts):
            path = Path(folder) / f"{number}.wav"
            command = (
                ["flite", "-voice", "slt", "-t", text, "-o", str(path)]
                if program == "flite"
                else ["espeak-ng", "-s", "150", "-w", str(path), text]
            )
            try:
                subprocess.run(command, check=True, timeout=30, capture_output=True)
                pcm, rate_hz = read_wav(path)
            except (OSError, ValueError, subprocess.SubprocessError) as exc:
                raise EnvironmentFault(f"{program} cannot speak the questions: {exc}") from exc
            out.append(resample(pcm, rate_hz, HEARING_HZ))
    return out


def _recorded() -> list[Pcm]:
    """Recordings without a pause that could end a turn: int16 [n] at 16 kHz."""
    found = []
    for clip in clips():
        pcm = clip.pcm()
        length_s = len(pcm) / HEARING_HZ
        if RECORDED_S[0] <= length_s <= RECORDED_S[1] and longest_pause_ms(pcm, HEARING_HZ) <= MAX_PAUSE_MS:
            found.append(pcm)
    if not found:
        raise EnvironmentFault("no recording of the speech folder is short enough and without pauses")
    return found[:RECORDINGS]
