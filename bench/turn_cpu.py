"""What listening costs a call without its recogniser: gate, detector, and the end of the turn with its model.

Twenty calls at the pace of a call, each caller speaking about two fifths of the time: a recorded turn with its pauses,
then silence while an agent would answer. The words are given, as a recogniser would; they are judged at each tick of a
pause. CPU is of the whole process, the engines' threads included.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

import numpy as np

from agent import models
from agent.config import Settings, load_settings
from agent.core.pool import WorkerPool
from agent.listening.endpoint import EndOfTurn, Evidence
from agent.listening.fused import create_endpoint
from agent.listening.graph import MODEL_FILE, SileroGraph
from agent.listening.listener import Heard, Listener, VoiceAudio, VoiceStarted, VoiceStopped
from agent.listening.silero import VadEngine
from agent.listening.sound import TurnModel, TurnSound, load_turn_model
from agent.media.frames import FRAME_MS, HEARING_SAMPLES, Pcm
from bench._pauses import paused_turn, utterances
from bench.harness import Report, Value

__all__ = ["run"]

CALLS = 20
SPEAKING_SHARE = 0.4
TURN_OVER_MS = 1600


def run(*, quick: bool) -> Report:
    """Measure with and without the model; about 20 s quick, 65 s in full."""
    return asyncio.run(_run(10.0 if quick else 30.0))


@dataclass
class _Use:
    cpu_pct: float
    judged: int
    sounds: int


async def _run(seconds: float) -> Report:
    settings = load_settings()
    vad_file = models.require("silero-vad", settings.models) / MODEL_FILE
    frames, share = _conversation(SileroGraph(vad_file))
    async with VadEngine(vad_file) as vad, WorkerPool(1, name="bench") as pool:
        model = await load_turn_model(settings, pool)
        parts = {
            "gate and detector": await _listen(settings, vad, None, frames, seconds),
            "with words and contour": await _listen(settings, vad, (None, pool), frames, seconds),
            "with the turn model": await _listen(settings, vad, (model, pool), frames, seconds),
        }
    rows: list[tuple[object, ...]] = [
        (
            name,
            f"{use.cpu_pct:.2f} %",
            f"{use.judged / CALLS / seconds:.1f}",
            f"{use.sounds / CALLS / seconds * 60:.1f}",
        )
        for name, use in parts.items()
    ]
    whole = parts["with the turn model"]
    keys: dict[str, Value] = {
        "turn_cpu_pct": round(whole.cpu_pct, 3),
        "turn_cpu_without_model_pct": round(parts["with words and contour"].cpu_pct, 3),
        "detector_cpu_pct": round(parts["gate and detector"].cpu_pct, 3),
    }
    return Report(
        f"CPU of listening a call, without the recogniser, {CALLS} calls",
        ("what", "CPU a call", "judgements a second", "sounds judged a minute"),
        rows,
        keys,
        (
            f"A share of a core. Callers speak {100 * share:.0f} % of the time; stop_ms {settings.listening.stop_ms}.",
            "No turn model is installed." if model is None else "The turn model runs once each closed segment.",
        ),
    )


def _conversation(graph: SileroGraph) -> tuple[list[Pcm], float]:
    """Frames of turns with silence between them, and the share of them that lies inside turns."""
    pieces: list[Pcm] = []
    spoken = 0
    for utterance in utterances()[::5]:
        turn = paused_turn(utterance, graph)
        speech = turn.pcm[: turn.end_ms * HEARING_SAMPLES // FRAME_MS]
        spoken += len(speech)
        rest = int(len(speech) * (1 / SPEAKING_SHARE - 1))
        pieces += [speech, np.zeros(rest, np.int16)]
    whole = np.concatenate(pieces)
    frames = [whole[at : at + HEARING_SAMPLES] for at in range(0, len(whole) - HEARING_SAMPLES + 1, HEARING_SAMPLES)]
    return frames, spoken / len(whole)


@dataclass
class _Caller:
    """One call's ear, as far as this bench goes."""

    endpoint: EndOfTurn
    sound: TurnSound | None
    text: str = "I would like to know when my order arrives."
    paused_at: int | None = None
    judged: int = 0
    tasks: list[asyncio.Task[float | None]] = field(default_factory=list)

    def hear(self, event: Heard) -> None:
        match event:
            case VoiceStarted(_, pcm, repeated):
                self.paused_at = None
                if self.sound is not None:
                    self.sound.begin(pcm, repeated)
            case VoiceAudio(pcm):
                if self.sound is not None:
                    self.sound.push(pcm)
            case VoiceStopped(end_ms, _):
                self.paused_at = end_ms
                if self.sound is not None:
                    self.tasks.append(asyncio.create_task(self.sound.judge()))
            case _:
                pass

    def tick(self, now_ms: int) -> None:
        """What the turn machine does in a pause."""
        if self.paused_at is None or self.sound is None:
            return
        if now_ms - self.paused_at > TURN_OVER_MS:
            self.paused_at = None
            self.sound.clear()
            return
        self.endpoint.judge(Evidence(text=self.text, stable=self.text, end_of_turn=0.5, sound=0.5))
        self.judged += 1


async def _listen(
    settings: Settings,
    vad: VadEngine,
    sound: tuple[TurnModel | None, WorkerPool] | None,
    frames: list[Pcm],
    seconds: float,
) -> _Use:
    endpoint = create_endpoint(settings.listening)
    callers = [_Caller(endpoint, TurnSound(*sound) if sound is not None else None) for _ in range(CALLS)]
    listeners = [Listener(settings.listening, vad, caller.hear) for caller in callers]
    loop = asyncio.get_running_loop()
    cpu, began = time.process_time(), loop.time()
    for tick in range(int(seconds * 1000) // FRAME_MS):
        # Calls are apart, so that they neither speak nor pause together.
        for index, (caller, listener) in enumerate(zip(callers, listeners, strict=True)):
            listener.feed(frames[(tick + index * len(frames) // CALLS) % len(frames)])
            caller.tick(listener.audio_ms)
        await asyncio.sleep(max(0.0, began + (tick + 1) * FRAME_MS / 1000 - loop.time()))
    await vad.settled()
    tasks = [task for caller in callers for task in caller.tasks]
    await asyncio.gather(*tasks)
    spent, wall = time.process_time() - cpu, loop.time() - began
    for listener in listeners:
        listener.close()
    return _Use(100 * spent / wall / CALLS, sum(caller.judged for caller in callers), len(tasks))
