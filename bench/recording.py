"""What a recording costs: CPU a recorded call adds, on the event loop and in the writer's thread, by format."""

from __future__ import annotations

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agent.media.frames import Pcm
from agent.media.resample import resample
from agent.recording.files import Batch, Plan, RecordingFiles
from agent.recording.recorder import CallRecorder
from agent.recording.writer import Recording, RecordingWriter
from bench._speech import clips
from bench.harness import Report

__all__ = ["run"]

KEY = bytes(32)
TICKS_PER_S = 50
PACKET = bytes(90)
"""About an Opus packet of a call with its RTP header."""


@dataclass(frozen=True)
class _Cost:
    """CPU seconds a second of call, and bytes a second."""

    loop_pct: float
    thread_pct: float
    kb_per_s: float


def run(*, quick: bool) -> Report:
    """One call's worth of speech, caller and agent in turns, through each format; as fast as it goes."""
    seconds = 60 if quick else 600
    caller, agent = _sides(seconds)
    rows: list[tuple[object, ...]] = []
    keys: dict[str, float | int | str] = {}
    for name, fmt, key in (("ogg", "ogg", None), ("ogg_sealed", "ogg", KEY), ("wav", "wav", None)):
        cost = _measure(fmt, key, caller, agent, seconds)
        total = cost.loop_pct + cost.thread_pct
        label = f"{fmt}, encrypted" if key else fmt
        rows.append((label, f"{cost.loop_pct:.3f}", f"{cost.thread_pct:.3f}", f"{total:.3f}", f"{cost.kb_per_s:.1f}"))
        keys[f"{name}_cpu_pct"] = round(total, 3)
        keys[f"{name}_loop_cpu_pct"] = round(cost.loop_pct, 3)
        keys[f"{name}_per_s_kb"] = round(cost.kb_per_s, 2)
    keys["ogg_10_calls_dropped_count"] = asyncio.run(_together(10, caller, agent, min(seconds, 60)))
    columns = ("format", "event loop, %", "writer, %", "together, %", "KB a second")
    notes = (
        "Percent of one core a recorded call, both sides speaking in turns; KB include events and packets.",
        "10 calls were also written together through the one thread, with none dropped unless the last key says so.",
    )
    return Report(f"Recording a call, {seconds} s of speech", columns, rows, keys, notes)


def _sides(seconds: int) -> tuple[list[Pcm], list[Pcm | None]]:
    """Caller (16 kHz) and agent (24 kHz) frames: four seconds each in turn, with noise under the caller."""
    rng = np.random.default_rng(1)
    spoken = np.concatenate([clip.pcm() for clip in clips()[:12]])
    spoken = np.resize(spoken, seconds * 16_000)
    noise = rng.normal(0, 30, len(spoken))
    turn = (np.arange(len(spoken)) // (4 * 16_000)) % 2 == 0
    caller = (spoken * turn + noise).clip(-32_768, 32_767).astype(np.int16)
    voice = resample(spoken, 16_000, 24_000)
    frames: list[Pcm | None] = [
        None if turn[tick * 320] else voice[tick * 480 : (tick + 1) * 480] for tick in range(seconds * TICKS_PER_S)
    ]
    return [caller[tick * 320 : (tick + 1) * 320] for tick in range(seconds * TICKS_PER_S)], frames


class _Direct(Recording):
    """Writes in this thread and counts the time."""

    def __init__(self, plan: Plan) -> None:
        self.files = RecordingFiles(plan)
        self.spent_s = 0.0

    def put(self, batch: Batch) -> None:
        began = time.thread_time()
        self.files.write(batch)
        self.spent_s += time.thread_time() - began

    def end(self, reason: str) -> None:
        began = time.thread_time()
        self.files.close(reason)
        self.spent_s += time.thread_time() - began


def _measure(fmt: str, key: bytes | None, caller: list[Pcm], agent: list[Pcm | None], seconds: int) -> _Cost:
    with tempfile.TemporaryDirectory(prefix="rejoinder-bench-") as folder:
        direct = _Direct(_plan(Path(folder), "call", fmt, key))
        recorder = _recorder(direct)
        began = time.thread_time()
        _feed(recorder, caller, agent)
        recorder.close("over")
        whole = time.thread_time() - began
        size = sum(path.stat().st_size for path in Path(folder).iterdir())
    return _Cost(100 * (whole - direct.spent_s) / seconds, 100 * direct.spent_s / seconds, size / 1000 / seconds)


async def _together(count: int, caller: list[Pcm], agent: list[Pcm | None], seconds: int) -> int:
    """How many of `count` calls at once are dropped by the one thread, fed at ten times their pace."""
    dropped = 0

    def failed(_reason: str) -> None:
        nonlocal dropped
        dropped += 1

    with tempfile.TemporaryDirectory(prefix="rejoinder-bench-") as folder:
        async with RecordingWriter() as writer:
            recorders = [
                _recorder(Recording(writer, _plan(Path(folder), f"call_{n}", "ogg", None), failed))
                for n in range(count)
            ]
            for second in range(seconds):
                due = time.monotonic() + 0.1
                part = slice(second * TICKS_PER_S, (second + 1) * TICKS_PER_S)
                for recorder in recorders:
                    _feed(recorder, caller[part], agent[part], first=part.start)
                await asyncio.sleep(max(0.0, due - time.monotonic()))
            for recorder in recorders:
                recorder.close("over")
    return dropped


def _plan(folder: Path, name: str, fmt: str, key: bytes | None) -> Plan:
    return Plan(folder, name, "wav" if fmt == "wav" else "ogg", 24_000, {}, {}, key)


def _recorder(recording: Recording) -> CallRecorder:
    recorder = CallRecorder(
        "call", lambda _event: None, now=lambda: 0.0, max_slots=1 << 40, on_error=lambda _reason: None
    )
    recorder.begin(recording)
    return recorder


def _feed(recorder: CallRecorder, caller: list[Pcm], agent: list[Pcm | None], *, first: int = 0) -> None:
    for number, (heard, said) in enumerate(zip(caller, agent, strict=True)):
        recorder.on_packet(PACKET, 0.0)
        recorder.on_tick(first + number, 0.0, said, (heard,))
