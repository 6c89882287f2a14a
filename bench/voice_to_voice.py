"""Voice to voice: from a caller's last speech to the first audible packet, with a warm voice cache and a cold one.

The server is `python -m agent serve` in a process of its own, with its own recogniser, turn-taking and voice. Two
callers over WebRTC take turns with the same recorded sentences: one is answered with openings that were said before,
the other with such as never were. Audible is the first packet with 10 ms above -50 dBFS in it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import aiohttp

from agent.errors import EnvironmentFault, RejoinderError
from agent.media.priority import favour_media_thread
from agent.media.ticker import Ticker
from bench._callers import Question, RtcCaller, Wait, prepare, serving
from bench._charts import chart, distribution
from bench._media import percentile
from bench._openings import COLD, OPENINGS, WARM
from bench._speech import clips
from bench.harness import Report, Value

__all__ = ["run"]

SENTENCES = (
    "sb-spk2_snt2",
    "sb-spk2_snt4",
    "sb-spk2_snt1",
    "ls-1089-134691-0000",
    "goforward",
    "sb-spk1_snt4",
    "sb-spk1_snt1",
    "librivox-0880",
    "newhome",
    "sb-spk1_snt2",
    "p225_016",
)
"""Whole sentences that a turn can end with, by their recordings, the shortest first.

Of the recordings up to 6 s without a pause over 300 ms inside; left out are fragments of a sentence, single words,
digits, and recordings whose background is too loud to say where speech ends: the last 10 ms above -50 dBFS and the last
ones within 30 dB of the loudest are to be 50 ms apart at most.
"""
QUICK_SENTENCES = 4
LAPS = 4

PAUSE_S = 0.3
"""Between the end of an answer and the next question."""
ANSWER_DEADLINE_S = 20.0
PARTS = ("endpoint_ms", "asr_final_ms", "nlu_first_ms", "tts_first_ms", "playout_ms")


@dataclass(frozen=True)
class Measured:
    """What one caller saw."""

    waits: list[Wait | None]
    timings: list[dict[str, float | None]]
    """The server's own, of spoken turns."""

    @property
    def whole(self) -> list[Wait]:
        """Answers to turns that were taken for over after their last speech."""
        return [wait for wait in self.waits if wait is not None and wait.after_decision_ms is not None]

    @property
    def response_ms(self) -> list[float]:
        return [wait.response_ms for wait in self.whole]

    @property
    def after_decision_ms(self) -> list[float]:
        return [ms for wait in self.whole if (ms := wait.after_decision_ms) is not None]

    @property
    def cut(self) -> int:
        """Turns taken for over before their last speech."""
        return sum(wait is not None for wait in self.waits) - len(self.whole)

    def part(self, name: str, share: float) -> float:
        return percentile([ms for timing in self.timings if (ms := timing.get(name)) is not None], share)

    def server_after_decision_ms(self, share: float) -> float:
        """From the decision to the first frame of the answer taken from the playout, by the server's clock."""
        both = [(timing.get("response_ms"), timing.get("endpoint_ms")) for timing in self.timings]
        spans = [response - endpoint for response, endpoint in both if response is not None and endpoint is not None]
        return percentile(spans, share)


def run(*, quick: bool) -> Report:
    """Four sentences quick, in about 45 s; eleven sentences four times in full, in about seven minutes."""
    return asyncio.run(_run(quick=quick))


async def _run(*, quick: bool) -> Report:
    favour_media_thread()
    questions = _questions()[: QUICK_SENTENCES if quick else None]
    laps = 1 if quick else LAPS
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(
            serving(REJOINDER_NLU__KIND="function", REJOINDER_NLU__TARGET="bench._openings:reply")
        )
        http = await stack.enter_async_context(aiohttp.ClientSession())
        ticker = await stack.enter_async_context(Ticker())
        warm = await stack.enter_async_context(RtcCaller(server, http, ticker))
        cold = await stack.enter_async_context(RtcCaller(server, http, ticker))
        await asyncio.gather(warm.greeted(ANSWER_DEADLINE_S), cold.greeted(ANSWER_DEADLINE_S))
        await asyncio.gather(_type(cold, COLD, 1), _type(warm, WARM, len(OPENINGS)))
        for question in questions * laps:
            for caller in (warm, cold):
                await asyncio.sleep(PAUSE_S)
                await caller.ask(question, ANSWER_DEADLINE_S)
    return _report(_measured(warm, len(OPENINGS)), _measured(cold, 1), len(questions), quick=quick)


async def _type(caller: RtcCaller, text: str, times: int) -> None:
    """What the call's answers shall be; each opening that is said now is known from then on."""
    for _ in range(times):
        await caller.type(text, ANSWER_DEADLINE_S)


def _questions() -> list[Question]:
    by_name = {clip.name: clip for clip in clips()}
    missing = [name for name in SENTENCES if name not in by_name]
    if missing:
        raise EnvironmentFault(f"recordings are missing in the speech folder: {', '.join(missing)}")
    return [prepare(by_name[name].pcm()) for name in SENTENCES]


def _measured(caller: RtcCaller, typed: int) -> Measured:
    """Without the first `typed` questions, which only set the scene. Raises RejoinderError when none was answered."""
    spoken = [timing for timing in caller.timings if timing.get("endpoint_ms") is not None]
    measured = Measured(caller.waits()[typed:], spoken)
    if not measured.whole:
        raise RejoinderError("not one question was answered after its end")
    return measured


def _report(warm: Measured, cold: Measured, sentences: int, *, quick: bool) -> Report:
    both = {"warm": warm, "cold": cold}
    each = list(both.values())
    rows: list[tuple[object, ...]] = [
        ("last speech to first sound, ms", *(cell for m in each for cell in _pair(m.response_ms))),
        ("decision to first sound, ms", *(cell for m in each for cell in _pair(m.after_decision_ms))),
        ("the same by the server's clock", *(cell for m in each for cell in _shares(m.server_after_decision_ms))),
        *((name, *(cell for m in each for cell in _shares(partial(m.part, name)))) for name in PARTS),
        (
            "answered at their end / asked",
            *(cell for m in each for cell in (f"{len(m.whole)} / {len(m.waits)}", "")),
        ),
        ("taken for over too soon", *(cell for m in each for cell in (m.cut, ""))),
    ]
    keys: dict[str, Value] = {}
    for name, m in both.items():
        keys[f"{name}_p50_ms"] = round(percentile(m.response_ms, 0.5), 1)
        keys[f"{name}_p95_ms"] = round(percentile(m.response_ms, 0.95), 1)
        keys[f"decision_to_packet_{name}_p50_ms"] = round(percentile(m.after_decision_ms, 0.5), 1)
        keys[f"decision_to_packet_{name}_p99_ms"] = round(percentile(m.after_decision_ms, 0.99), 1)
        keys[f"{name}_unanswered_count"] = sum(wait is None for wait in m.waits)
        keys[f"{name}_cut_count"] = m.cut
    keys |= {name: round(warm.part(name, 0.5), 1) for name in PARTS}
    keys["cold_tts_first_ms"] = round(cold.part("tts_first_ms", 0.5), 1)
    curves = {
        **{f"last speech to first sound, {name}": m.response_ms for name, m in both.items()},
        **{f"decision to first sound, {name}": m.after_decision_ms for name, m in both.items()},
    }
    notes = (
        f"{sentences} recorded sentences, {len(warm.waits)} turns with a warm cache and {len(cold.waits)} with a cold "
        "one by turns, one caller speaking at a time; callers and server share the machine's cores.",
        "They are read sentences, not questions to a service: the bench's own hook answers any text at once, warm with "
        f"one of {len(OPENINGS)} openings that were said before, cold with a sentence that never was.",
        "The decision is the server's word that the turn is over, as it reached the caller. Turns taken for over "
        "before their last speech are counted apart and have no times here.",
        "By the server's clock: to the first frame of the answer that leaves. The parts are the server's own times; "
        "what a reply that was begun before the decision had ready costs nothing in them.",
        f"With {len(warm.whole)} turns the 99th percentile is the slowest one.",
        *(["Quick: too few turns to judge by."] if quick else []),
    )
    columns = ("what", "warm p50", "warm p95", "cold p50", "cold p95")
    drawn = () if quick else chart("voice_to_voice", partial(distribution, curves=curves, xlabel="ms"))
    return Report("Voice to voice, recorded sentences", columns, rows, keys, notes, drawn)


def _pair(values: list[float]) -> tuple[str, str]:
    return _shares(partial(percentile, values))


def _shares(quantile: Callable[[float], float]) -> tuple[str, str]:
    return f"{quantile(0.5):.1f}", f"{quantile(0.95):.1f}"
