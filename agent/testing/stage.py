"""Scripted engines, a clock, and the calls that are made on them, all in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from agent.asr.protocol import Recognizer
from agent.call import Call, CallParts
from agent.config import Settings
from agent.foreseeing import DialogueWatcher
from agent.listening.silero import VadEngine
from agent.media.frames import FRAME_MS, Pcm
from agent.nlu.function import FunctionNlu
from agent.nlu.hook import Channel, Nlu, Reply, Session, Turn
from agent.observe.metrics import Metrics
from agent.replay.engines import ComputeModel, Waiting, timed_nlu, timed_recognizer, timed_synthesizer
from agent.replay.loop import VirtualLoop
from agent.speech.phrases import PhraseBook
from agent.testing.caller import VirtualCall
from agent.testing.fakes import ScriptedPort, ScriptedVad
from agent.testing.lexicon import Lexicon
from agent.testing.recognizer import ScriptedRecognizer
from agent.testing.synthesizer import ScriptedSynthesizer
from agent.tts.protocol import Style, Synthesizer, Voice

__all__ = ["AT_ONCE", "Stage", "rehearsal"]

END_DEADLINE_S = 10.0
"""Virtual seconds that a call may take to end."""

AT_ONCE = ComputeModel()


class Stage:
    """What calls share, and the clock that ticks all of them each 20 ms. Use as `async with`, in a virtual loop.

    Args:
        nlu: the hook; a bare function is one too.
        settings: as for a server; nothing of them that needs files or a network is used.
        recognizer, synthesizer, vad: scripted ones by default. A recogniser without a lexicon does not hear callers.
        clips: recordings that `Play` names.
        foresight: told how dialogues go; nobody by default.
        timing: how long engines take on the call's clock.
    """

    def __init__(
        self,
        nlu: Nlu | Callable[[Turn], Any],
        *,
        settings: Settings | None = None,
        recognizer: Recognizer | None = None,
        synthesizer: Synthesizer | None = None,
        vad: VadEngine | None = None,
        clips: Mapping[str, Pcm] | None = None,
        foresight: DialogueWatcher | None = None,
        timing: ComputeModel = AT_ONCE,
    ) -> None:
        hook = nlu if isinstance(nlu, Nlu) else FunctionNlu(nlu)
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop), "expected a virtual loop: see agent.testing.virtual_time"
        self._loop = loop
        self.settings = settings or Settings()
        self.lexicon = synthesizer.lexicon if isinstance(synthesizer, ScriptedSynthesizer) else Lexicon()
        self.recognizer = recognizer or ScriptedRecognizer(lexicon=self.lexicon)
        self.synthesizer = synthesizer or ScriptedSynthesizer(lexicon=self.lexicon)
        self.metrics = Metrics()
        self.calls: list[VirtualCall] = []
        waiting = Waiting(loop)
        loop.outside = waiting.outside
        phrases = PhraseBook(self.settings.phrases, self.synthesizer)
        engine = self.synthesizer
        self.parts = CallParts(
            settings=self.settings,
            nlu=timed_nlu(_Witness(hook, self.calls), waiting, timing),
            recognizer=timed_recognizer(self.recognizer, timing),
            synthesizer=timed_synthesizer(engine, waiting, timing),
            vad=vad or ScriptedVad(),
            phrases=phrases,
            clips=clips or {},
            metrics=self.metrics,
            voices=lambda: engine.info.voices,
            foresight=foresight,
        )
        self._running: dict[Call, asyncio.Task[None]] = {}
        self._ticker: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Stage:
        tts = self.settings.tts
        await self.parts.phrases.make([Voice(tts.voice, tts.language)], Style(tts.rate))
        if isinstance(self.synthesizer, ScriptedSynthesizer):
            self.synthesizer.spoken.clear()
            self.synthesizer.asked_as.clear()
        self._ticker = asyncio.create_task(self._tick(), name="stage clock")
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._ticker is not None
        try:
            for call in self.calls:
                call.call.hangup("test over")
            if self._running:
                await asyncio.wait(list(self._running.values()), timeout=END_DEADLINE_S)
        finally:
            for task in (*self._running.values(), self._ticker):
                task.cancel()
            await asyncio.gather(*self._running.values(), self._ticker, return_exceptions=True)
            self._loop.unscript()

    async def call(
        self,
        *,
        call_id: str | None = None,
        channel: Channel = "browser",
        language: str | None = None,
        caller: str | None = None,
        port: ScriptedPort | None = None,
        state: Mapping[str, Any] | None = None,
    ) -> VirtualCall:
        """A caller comes in; the agent begins to greet. Raises ProtocolError as `Call` does."""
        session = Session(
            id=call_id or f"call_{len(self.calls) + 1}",
            channel=channel,
            language=language or self.settings.asr.language,
            caller=caller,
            state=dict(state or {}),
        )
        port = port or ScriptedPort()
        virtual = VirtualCall(port, self.lexicon, now=self._loop.time)
        call = Call(self.parts, port=port, session=session, observer=virtual.observe, now=self._loop.time)
        virtual.call = call
        self.calls.append(virtual)
        self._running[call] = asyncio.create_task(call.run(), name=f"{session.id} run")
        await asyncio.sleep(0)
        return virtual

    async def _tick(self) -> None:
        at = self._loop.time()
        while True:
            at += FRAME_MS / 1000
            reached: asyncio.Future[None] = self._loop.create_future()
            self._loop.script(at, partial(_reach, reached))
            await reached
            for call in self.calls:
                call.tick()


class _Witness:
    """The hook, and what it was asked, told to the calls."""

    def __init__(self, nlu: Nlu, calls: list[VirtualCall]) -> None:
        self._nlu = nlu
        self._calls = calls

    def reply(self, turn: Turn) -> Reply:
        for call in self._calls:
            if call.call.session is turn.session:
                call.asked.append(turn)
        return self._nlu.reply(turn)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nlu, name)


def _reach(reached: asyncio.Future[None]) -> None:
    if not reached.done():
        reached.set_result(None)


@asynccontextmanager
async def rehearsal(nlu: Nlu | Callable[[Turn], Any], **options: Any) -> AsyncIterator[VirtualCall]:
    """A stage with one call on it. Options are those of `Stage` and of `Stage.call`, and settings of a group by name:

    `rehearsal(hook, conversation={"barge_in_ms": 200}, language="zh")`.
    """
    of_call = {name: options.pop(name) for name in CALL_OPTIONS & options.keys()}
    groups = {name: options.pop(name) for name in Settings.model_fields.keys() & options.keys()}
    if groups:
        options["settings"] = Settings(**groups)
    async with Stage(nlu, **options) as stage:
        call = await stage.call(**of_call)
        call.stage = stage
        yield call


CALL_OPTIONS = {"call_id", "channel", "language", "caller", "port", "state"}
