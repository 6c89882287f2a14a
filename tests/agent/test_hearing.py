"""What hearing tells the turn machine of a pause: the words, and beside them the sound."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np

from agent.asr.protocol import Hypothesis
from agent.config import ConversationSettings, ListeningSettings
from agent.conversation import protocol as turns
from agent.conversation.machine import TurnMachine
from agent.core.pool import WorkerPool
from agent.errors import EngineError
from agent.events import CallEvent
from agent.hearing import Hearing
from agent.listening.endpoint import SilenceEndpoint
from agent.listening.sound import TurnSound
from agent.media.frames import HEARING_SAMPLES, Pcm
from agent.testing.fakes import ScriptedRecognizer, ScriptedVad
from agent.testing.recognizer import ScriptedStream


class Host:
    """Feeds the machine as a call does, and keeps what it was fed."""

    def __init__(self, machine: TurnMachine) -> None:
        self.machine = machine
        self.events: list[turns.Event] = []
        self.wanted: list[int] = []
        self.now = 0.0

    def feed(self, event: turns.Event) -> None:
        self.events.append(event)
        for command in self.machine.on(event, self.now):
            if isinstance(command, turns.RequestFinal):
                self.wanted.append(command.final_id)

    def emit(self, event: CallEvent) -> None: ...

    def fault(self, part: str, error: BaseException) -> None: ...

    def unanswered_item(self) -> str:
        return ""


class Model:
    """Keeps what it heard."""

    def __init__(self, error: EngineError | None = None) -> None:
        self.error = error
        self.heard: list[Pcm] = []

    def probability(self, pcm: Pcm) -> float:
        self.heard.append(pcm)
        if self.error is not None:
            raise self.error
        return 0.25


async def hear(sound: TurnSound | None, recognizer: ScriptedRecognizer) -> tuple[Hearing, Host]:
    """A loud second and the pause that closes its segment."""
    settings = ListeningSettings()
    machine = TurnMachine(ConversationSettings(), settings, SilenceEndpoint(500))
    host = Host(machine)
    hearing = Hearing(
        settings, recognizer, ScriptedVad(), machine, host, language="en", now=lambda: host.now, sound=sound
    )
    loud = np.full(HEARING_SAMPLES, 5000, np.int16)
    loud[::2] = -5000
    for frame in [loud] * 50 + [np.zeros(HEARING_SAMPLES, np.int16)] * 30:
        host.now += 0.02
        hearing.take(frame)
        await asyncio.sleep(0)
    return hearing, host


async def test_a_pause_is_judged_by_its_sound_beside_its_words() -> None:
    model = Model()
    async with WorkerPool(1, name="test") as pool:
        hearing, host = await hear(TurnSound(model, pool), ScriptedRecognizer(["where is my order"]))
        await hearing.read_final(host.wanted[-1])
        hearing.close()
    assert turns.SoundJudged(host.wanted[-1], 0.25) in host.events
    assert [event.text for event in host.events if isinstance(event, turns.FinalHeard)] == ["where is my order"]
    # It heard the second of speech and no more than what opens and closes a segment.
    assert 16_000 <= len(model.heard[-1]) < 2 * 16_000


async def test_a_failing_recogniser_does_not_keep_the_sound_from_being_judged() -> None:
    recognizer = ScriptedRecognizer(["lost"])
    recognizer.broken = True
    async with WorkerPool(1, name="test") as pool:
        hearing, host = await hear(TurnSound(Model(), pool), recognizer)
        await hearing.read_final(host.wanted[-1])
        hearing.close()
    assert turns.SoundJudged(host.wanted[-1], 0.25) in host.events
    assert turns.FinalFailed(host.wanted[-1]) in host.events


async def test_a_turn_that_is_used_up_leaves_no_sound_behind() -> None:
    model = Model()
    async with WorkerPool(1, name="test") as pool:
        hearing, host = await hear(TurnSound(model, pool), ScriptedRecognizer(["one"]))
        hearing.forget()
        await hearing.read_final(host.wanted[-1])
        hearing.close()
    assert model.heard == []
    assert not any(isinstance(event, turns.SoundJudged) for event in host.events)


async def test_without_a_judge_of_sound_only_words_are_reported() -> None:
    hearing, host = await hear(None, ScriptedRecognizer(["where is my order"]))
    await hearing.read_final(host.wanted[-1])
    hearing.close()
    assert not any(isinstance(event, turns.SoundJudged) for event in host.events)
    assert any(isinstance(event, turns.FinalHeard) for event in host.events)


async def test_sound_that_was_judged_beside_the_reading_is_reported_before_its_words() -> None:
    class Elsewhere(ScriptedRecognizer):
        def stream(self, *, language: str, hints: Sequence[str] = ()) -> ScriptedStream:
            stream = super().stream(language=language, hints=hints)

            async def final() -> Hypothesis:
                return Hypothesis("where is my order", "where is my order", sound=0.75)

            stream.final = final  # type: ignore[method-assign]
            return stream

    hearing, host = await hear(None, Elsewhere())
    await hearing.read_final(host.wanted[-1])
    hearing.close()
    told = [event for event in host.events if isinstance(event, turns.SoundJudged | turns.FinalHeard)]
    assert told == [turns.SoundJudged(host.wanted[-1], 0.75), turns.FinalHeard(host.wanted[-1], "where is my order")]
