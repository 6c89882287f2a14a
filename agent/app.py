"""The composition root: builds everything from settings. The only file that knows every part."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from types import MappingProxyType

from agent import models
from agent.asr.factory import create_recognizer
from agent.asr.protocol import Recognizer
from agent.call import Call
from agent.config import Settings
from agent.core.hosted import open_core_client
from agent.core.pool import WorkerPool
from agent.core.remote_asr import RemoteRecognizer
from agent.core.remote_tts import RemoteSynthesizer
from agent.errors import CallRefused
from agent.events import Observer
from agent.listening.silero import MODEL_FILE, VadEngine
from agent.listening.sound import TurnSound, load_turn_model
from agent.media.gathering import check_media
from agent.media.lag import LagGate
from agent.media.port import MediaPort
from agent.media.priority import favour_engine_thread
from agent.media.ticker import Ticker
from agent.nlu.factory import create_nlu
from agent.nlu.hook import Session
from agent.observe.metrics import Metrics
from agent.parts import CallParts
from agent.recording.calls import Recordings
from agent.speech.clips import load_clips
from agent.speech.phrases import PhraseBook, configured_voices, greetings_of
from agent.tts.factory import create_synthesizer
from agent.tts.protocol import Style, Synthesizer
from agent.voicecache.cache import VoiceCache

__all__ = ["Agent", "open_parts"]

log = logging.getLogger(__name__)

RETRY_AFTER_S = 5
CLOSE_DEADLINE_S = 10.0


class Agent:
    """One process's engines and calls. Make it with `Agent.open(settings)`."""

    def __init__(
        self,
        settings: Settings,
        parts: CallParts,
        ticker: Ticker,
        metrics: Metrics,
        recordings: Recordings,
        lag: LagGate | None = None,
    ) -> None:
        self.settings = settings
        self.lag = lag if lag is not None else LagGate(settings.server.max_lag_ms)
        self.ticker = ticker
        self.metrics = metrics
        self.draining = False
        self._parts = parts
        self._recordings = recordings
        self._calls: dict[str, Call] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @classmethod
    @asynccontextmanager
    async def open(cls, settings: Settings, *, metrics: Metrics | None = None) -> AsyncIterator[Agent]:
        """Load engines and make the phrases; ends every call on the way out.

        Args:
            metrics: where calls are counted; its own by default, with nothing of the process beside them.

        Raises ConfigError and EnvironmentFault, each with what to do.
        """
        check_media(settings.media, settings.server.max_calls)
        async with AsyncExitStack() as stack:
            metrics = metrics if metrics is not None else Metrics()
            # Before the engines: a folder that cannot be written is told at once.
            recordings = await stack.enter_async_context(Recordings(settings.recording))
            # One pool for both engines: its priorities (a final before a clause before a partial) hold across them.
            threads = settings.asr.threads or os.cpu_count() or 1
            prepare = favour_engine_thread if settings.media.priority == "auto" else None
            pool = await stack.enter_async_context(WorkerPool(threads, name="engine", prepare=prepare))
            vad = VadEngine(models.require("silero-vad", settings.models) / MODEL_FILE, prepare=prepare)
            parts = await open_parts(stack, settings, metrics, pool=pool, vad=vad)
            lag = LagGate(settings.server.max_lag_ms)

            def on_lag(seconds: float) -> None:
                metrics.ticker_lag(seconds)
                lag.add(seconds)

            ticker = await stack.enter_async_context(Ticker(on_lag=on_lag))
            agent = cls(settings, parts, ticker, metrics, recordings, lag)
            try:
                yield agent
            finally:
                await agent.end_calls("server stopped")

    @property
    def ready(self) -> bool:
        """True while new calls are taken."""
        return not self.not_ready_reason

    @property
    def not_ready_reason(self) -> str:
        """Why no new call is taken now; empty when ready."""
        if self.draining:
            return "draining"
        if len(self._calls) >= self.settings.server.max_calls:
            return f"all {self.settings.server.max_calls} lines are busy"
        # Without a call of its own a process is not what makes the clock late, and refusing would help nobody.
        if self._calls and self.lag.late:
            return f"the media clock is late (99th percentile {self.lag.p99_ms:.0f} ms)"
        return ""

    @property
    def calls(self) -> Mapping[str, Call]:
        """Live calls by id."""
        return MappingProxyType(self._calls)

    def start_call(self, *, port: MediaPort, session: Session, observer: Observer, record: bool = False) -> Call:
        """Begin a call on `port`; it runs in a task the agent owns. `record`: the client asks for a recording.

        Raises CallRefused, and ProtocolError for a language that the recogniser does not know, or when recording is
        asked for and off.
        """
        if self.not_ready_reason:
            raise CallRefused(self.not_ready_reason, retry_after_s=RETRY_AFTER_S)
        call = self._recordings.call(self._parts, port=port, session=session, observer=observer, asked=record)
        self._calls[call.id] = call
        self._tasks[call.id] = asyncio.create_task(self._run(call), name=f"{call.id} run")
        return call

    async def _run(self, call: Call) -> None:
        try:
            await call.run()
        except Exception as exc:
            log.exception("a call failed", extra={"call_id": call.id})
            self.metrics.error("call", exc)
        finally:
            del self._calls[call.id], self._tasks[call.id]

    async def end_calls(self, reason: str) -> None:
        """Hang every call up and wait until all of them is gone."""
        tasks = list(self._tasks.values())
        for call in self._calls.values():
            call.hangup(reason)
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_DEADLINE_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def open_parts(
    stack: AsyncExitStack, settings: Settings, metrics: Metrics, *, pool: WorkerPool, vad: VadEngine
) -> CallParts:
    """What calls share, on engines that work in `pool`; all of it is closed by `stack`.

    Raises ConfigError and EnvironmentFault, each with what to do.
    """
    nlu = create_nlu(settings.nlu)
    close = getattr(nlu, "close", None)
    if close is not None:
        stack.push_async_callback(close)
    await stack.enter_async_context(vad)
    recognizer: Recognizer
    voice: Synthesizer | None = None
    # Judged in the recogniser's process, the sound of a turn needs no second hop and no model here.
    heard_there = bool(settings.core.url) and settings.core.evidence
    if settings.core.url:
        core = await stack.enter_async_context(open_core_client(settings))
        recognizer, voice = RemoteRecognizer(core, listen=heard_there), RemoteSynthesizer(core)
    else:
        recognizer = await create_recognizer(settings, pool)
    stack.push_async_callback(recognizer.close)
    synthesizer: Synthesizer = await create_synthesizer(settings, pool, primary=voice)
    stack.push_async_callback(synthesizer.close)
    cache: VoiceCache | None = None
    if settings.cache.enabled:
        cache = await stack.enter_async_context(VoiceCache.open(settings, synthesizer, pool=pool, metrics=metrics))
        synthesizer = cache
    turn_model = None if heard_there else await load_turn_model(settings, pool)

    def turn_sound() -> TurnSound | None:
        fused = settings.listening.endpoint == "fused" and not heard_there
        return TurnSound(turn_model, pool) if fused else None

    phrases = PhraseBook(settings.phrases, synthesizer, settings.tts.language)
    greetings = greetings_of(nlu, settings)
    if cache is not None:
        cache.publish(greetings)
    await phrases.make(configured_voices(settings, synthesizer), Style(settings.tts.rate), greetings=greetings)
    return CallParts(
        settings=settings,
        nlu=nlu,
        recognizer=recognizer,
        synthesizer=synthesizer,
        vad=vad,
        phrases=phrases,
        clips=load_clips(settings.clips, synthesizer.info.sample_rate_hz),
        metrics=metrics,
        voices=lambda: synthesizer.info.voices,
        load=lambda: pool.load,
        turn_sound=turn_sound,
        foresight=cache,
    )
