"""The same with real sound: recorded and synthesised callers, the real detector, recogniser and voice.

Engines run on the virtual clock's own thread and take no time of the call.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent import models
from agent.asr.factory import create_recognizer
from agent.asr.protocol import Recognizer
from agent.asr.rereading import RereadingRecognizer
from agent.config import Settings
from agent.events import OutputPaused, SpeechStarted
from agent.listening.silero import MODEL_FILE
from agent.media.frames import Pcm
from agent.media.resample import resample
from agent.nlu.hook import Listen, Nlu, Turn
from agent.nlu.spoken_digits import digit_runs
from agent.replay.engines import InlinePool, InlineVad
from agent.speech.clips import read_wav
from agent.testing import Echo, ScriptedHook, VirtualCall, rehearsal, run_virtual
from agent.tts.factory import create_synthesizer
from agent.tts.protocol import Style, Synthesizer, Voice

pytestmark = pytest.mark.e2e

SPEECH = Path(os.environ.get("REJOINDER_SPEECH") or Path(__file__).parents[4] / "shared" / "speech")

HOURS = "We open at nine in the morning and close at six in the evening on every day of the week."


@dataclass(frozen=True, slots=True)
class Engines:
    recognizer: Recognizer
    synthesizer: Synthesizer
    vad: InlineVad

    def caller(self, text: str) -> Pcm:
        """Somebody who says this: the engine's voice at telephone level, int16 [n] at 16 kHz."""

        async def speak() -> Pcm:
            stream = self.synthesizer.stream(text, Voice("heart"), Style())
            return np.concatenate([piece.pcm async for piece in stream])

        return levelled(resample(run_virtual(speak()), self.synthesizer.info.sample_rate_hz, 16_000), -23)


@pytest.fixture(scope="module")
def engines() -> Engines:
    async def load() -> Engines:
        settings = Settings(asr={"partial_every_ms": 480}, tts={"fallback": "none"})  # type: ignore[arg-type]
        pool = InlinePool()
        vad = InlineVad(models.require("silero-vad", settings.models) / MODEL_FILE)
        await vad.__aenter__()
        return Engines(await create_recognizer(settings, pool), await create_synthesizer(settings, pool), vad)

    return run_virtual(load())


@asynccontextmanager
async def rehearse(engines: Engines, nlu: Nlu, **options: Any) -> AsyncIterator[VirtualCall]:
    assert isinstance(engines.recognizer, RereadingRecognizer)
    engines.recognizer.clock = asyncio.get_running_loop().time
    options = {"recognizer": engines.recognizer, "synthesizer": engines.synthesizer, "vad": engines.vad, **options}
    async with rehearsal(nlu, **options) as call:
        yield call


def recorded(name: str, band: str = "wav16") -> Pcm:
    path = SPEECH / band / f"{name}.wav"
    assert path.is_file(), f"{path} is missing: set REJOINDER_SPEECH to the folder of recorded speech"
    pcm, rate_hz = read_wav(path)
    return resample(pcm, rate_hz, 16_000)


def levelled(pcm: Pcm, dbfs: float) -> Pcm:
    """The same at this RMS level of its audible parts."""
    loud = pcm.astype(np.float64)
    loud = loud[np.abs(loud) > np.abs(loud).max() * 0.05]
    gain = 32_767 * 10 ** (dbfs / 20) / np.sqrt(np.mean(loud**2))
    return np.clip(pcm * gain, -32_768, 32_767).astype(np.int16)


def trimmed(pcm: Pcm) -> Pcm:
    """Without the silence around it."""
    loud = np.flatnonzero(np.abs(pcm.astype(np.int32)) > 600)
    return pcm[loud[0] : loud[-1] + 1]


def answering(answer: list[Any], first: list[Any] | None = None) -> ScriptedHook:
    greeting = first or ["Hello, how can I help you today?"]
    return ScriptedHook(lambda turn: greeting if turn.kind == "greeting" else answer)


def play(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    run_virtual(scene())


async def asks(call: VirtualCall, name: str = "goforward") -> None:
    """A recorded question, to the first sound of its answer."""
    await call.answer()
    await call.plays(trimmed(recorded(name)))
    sounds = len(call.sounds)
    await call.until(lambda: len(call.sounds) > sounds, 6)


# The voice's "ah-ha" is what people write as "uh-huh", and the recogniser agrees.
@pytest.mark.parametrize("word", ["Mhm.", "Ah-ha.", "Okay."])
def test_a_backchannel_does_not_stop_the_agent(engines: Engines, word: str) -> None:
    async def scene() -> None:
        async with rehearse(engines, answering([HOURS])) as call:
            await asks(call)
            await call.pause(1.0)
            await call.plays(sound, word)
            ended = call.now_s
            said = await call.answer()
            assert (said.text, said.status) == (HOURS, "completed"), call.transcript()
            assert call.audible(ended, ended + 1.0)
            await call.pause(2)
            assert len(call.turns) == 1

    sound = trimmed(engines.caller(word))
    play(scene)


@pytest.mark.parametrize("gap_s", [0.15, 0.35])
def test_a_clap_after_the_turn_does_not_cost_the_answer(engines: Engines, gap_s: float) -> None:
    rng = np.random.default_rng(1)
    clap = (rng.normal(0, 9_000, 4_800) * np.exp(-np.arange(4_800) / 900)).clip(-32_768, 32_767).astype(np.int16)

    async def scene() -> None:
        async with rehearse(engines, answering([HOURS])) as call:
            await call.answer()
            await call.plays(trimmed(recorded("goforward")))
            await call.pause(gap_s)
            await call.plays(clap, "(clap)")
            said = await call.answer(10)
            assert (said.text, said.status) == (HOURS, "completed"), call.transcript()
            assert len(call.turns) == 1

    play(scene)


@pytest.mark.parametrize("name", ["jfk", "beckett", "LJ001-0006"])
def test_after_barge_in_there_is_no_sound(engines: Engines, name: str) -> None:
    async def scene() -> None:
        async with rehearse(engines, answering([], [HOURS, " ", HOURS])) as call:
            await call.until(lambda: call.sounds)
            await call.pause(1.5)
            began = call.now_s
            await call.plays(speech)
            paused = call.times(OutputPaused)
            assert paused, call.transcript()
            assert paused[0] - began < 0.45
            assert not call.audible(paused[0] + 0.1, call.now_s), call.transcript()
            assert call.replies[0].status == "cancelled"

    speech = trimmed(recorded(name))[: 16_000 * 4]
    play(scene)


def test_a_slow_speaker_who_says_umm_is_not_cut_off(engines: Engines) -> None:
    parts = [trimmed(engines.caller(text)) for text in ("My address is, umm,", "uhh,", "twelve Market Street.")]

    async def scene() -> None:
        async with rehearse(engines, answering(["Thank you."])) as call:
            await call.answer()
            await call.pause(0.1)
            began = call.now_s
            for part in parts:
                await call.plays(part)
                if part is not parts[-1]:
                    # The detector takes no "uhh" for speech, so the two pauses and it are one.
                    await call.pause(0.5)
            assert not call.audible(began), call.transcript()
            said = await call.answer(5)
            assert said.text == "Thank you."
            assert len(call.turns) == 1
            assert "market street" in call.turns[0].lower()

    play(scene)


def digits(pcm: Pcm, count: int) -> list[Pcm]:
    """A clip of digits with pauses between them, cut into that many."""
    level = np.convolve(np.abs(pcm.astype(np.float64)), np.ones(800) / 800, "same")
    voiced = level > level.max() * 0.06
    edges = np.flatnonzero(np.diff(voiced.astype(np.int8)))
    gaps = sorted(zip(edges[1:-1:2], edges[2::2], strict=False), key=lambda gap: gap[0] - gap[1])[: count - 1]
    middles = sorted((int(a) + int(b)) // 2 for a, b in gaps)
    return np.split(pcm, middles)


@pytest.mark.parametrize("name", ["fsdd-george", "fsdd-lucas"])
def test_a_phone_number_in_three_groups_is_one_turn(engines: Engines, name: str) -> None:
    clip = trimmed(recorded(name))
    single = digits(clip, 6)
    groups = [np.concatenate(single[i : i + 2]) for i in (0, 2, 4)]
    greeting = ["What's your number?", Listen("digits", min_digits=6)]

    async def scene() -> None:
        async with rehearse(engines, answering(["Thank you."], greeting)) as call:
            await call.answer()
            began = call.now_s
            for number, group in enumerate(groups):
                await call.plays(group)
                if number < 2:
                    # The detector takes no "uhh" for speech, so the two pauses and it are one.
                    await call.pause(0.5)
            assert not call.audible(began), call.transcript()
            said = await call.answer(5)
            assert said.text == "Thank you."
            assert len(call.turns) == 1, call.turns
            assert len("".join(digit_runs(re.findall(r"\w+", call.turns[0].lower())))) >= 5, call.turns

    play(scene)


def test_the_agents_own_voice_as_echo_does_not_interrupt_it(engines: Engines) -> None:
    async def scene() -> None:
        async with rehearse(engines, answering([HOURS])) as call:
            call.echo = Echo(level_db=-20, delay_s=0.15)
            await asks(call)
            said = await call.answer()
            assert (said.text, said.status) == (HOURS, "completed"), call.transcript()
            await call.pause(2)
            assert len(call.turns) == 1, call.turns
            assert said.end_s - said.start_s < 9

    play(scene)


@pytest.mark.parametrize("dbfs", [-55.0, -48.0])
def test_television_chatter_at_low_level_opens_no_turn(engines: Engines, dbfs: float) -> None:
    async def scene() -> None:
        asked: list[Turn] = []
        async with rehearse(engines, answering(["Yes?"])) as call:
            asked = call.asked
            await call.answer()
            await call.plays(levelled(recorded("goforward"), -23))
            await call.answer(5)
            turns = len(asked)
            await call.plays(television)
            await call.pause(2)
            assert len(call.turns) == 1, f"{len(call.of(SpeechStarted))} segments: {call.turns}"
            assert len(asked) == turns
            await call.plays(levelled(recorded("goforward"), -23))
            assert (await call.answer(5)).text == "Yes?"

    television = levelled(np.concatenate([recorded("jfk"), recorded("p225_003")]), dbfs)
    play(scene)
