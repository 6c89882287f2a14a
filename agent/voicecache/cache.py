"""The voice cache: speech that was made before comes at once; what is likely next is made before it is asked for.

`VoiceCache` is itself a `Synthesizer`: where a call's clauses went to the engine, they go here.
"""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from agent.asr.protocol import EngineInfo
from agent.config import Settings
from agent.core.fairqueue import Priority
from agent.core.pool import WorkerPool
from agent.errors import EngineError, EnvironmentFault
from agent.events import CacheUse
from agent.observe.metrics import Metrics
from agent.speech.normalize import normalize
from agent.speech.phrases import PHRASES, PhraseBook, configured_languages
from agent.tts.protocol import Speech, Style, Synthesizer, Voice
from agent.voicecache.disk import DiskThread, DiskTier
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.flight import Flights
from agent.voicecache.foresight import Foresight
from agent.voicecache.key import normalised
from agent.voicecache.learning import Learning
from agent.voicecache.maker import Maker
from agent.voicecache.packets import PacketMaker
from agent.voicecache.prefetcher import Job, Prefetcher
from agent.voicecache.privacy import Privacy
from agent.voicecache.situation import Situation, label, slots_of
from agent.voicecache.store import SpeechStore
from agent.voicecache.tasks import OwnedTasks
from agent.voicecache.tiers import Tiers

__all__ = ["VoiceCache", "cache_folder", "open_tiers", "speech_folder"]

FIRST_GUESS_S = 0.05
LEARN_RATE = 0.1
"""Of the running mean of what a first piece takes, from which `saved` is counted."""

MAX_WARM_VOICES = 3
MAX_WARMED = 64

log = logging.getLogger(__name__)


def cache_folder(settings: Settings) -> Path:
    """Where the tier on disk, the journal and what was learned are kept."""
    return settings.cache.folder or settings.models.cache_dir / "voice"


def speech_folder(settings: Settings) -> Path:
    """Where the tier on disk is kept."""
    return cache_folder(settings) / "speech"


@asynccontextmanager
async def open_tiers(
    settings: Settings, metrics: Metrics, now: Callable[[], float] = time.monotonic
) -> AsyncIterator[Tiers]:
    """The tiers behind memory, as the settings have them; what waits is written on the way out.

    Raises ConfigError and EnvironmentFault, each with what to do. A Redis that does not answer, and a default folder
    that cannot be written to, are only logged.
    """
    cache = settings.cache
    thread = DiskThread()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(thread.close)
        disk = None
        if cache.disk_mb:
            try:
                disk = await thread.run(DiskTier, speech_folder(settings), cache.disk_mb * 1_000_000)
            except EnvironmentFault as exc:
                if cache.folder is not None:
                    raise
                # Nobody asked for this folder, and calls can do without it.
                log.warning("speech is kept in memory only: %s", exc)
        redis = None
        if cache.redis_url:
            # Here, so that nobody who shares nothing loads the library.
            from agent.voicecache.shared import RedisTier

            redis = RedisTier(cache, metrics, now)
            stack.push_async_callback(redis.close)
            if not await redis.ping():
                log.warning("the Redis of cache.redis_url does not answer: speech is not shared until it does")
        tiers = Tiers(disk, thread, redis, metrics, now)
        tiers.start()
        stack.push_async_callback(tiers.close)
        yield tiers


class VoiceCache:
    """Make one with `VoiceCache.open`.

    Methods that are not `async` take microseconds (`on_turn` and `on_partial` up to a millisecond or two) and are
    called on the event loop. Texts are as the engine reads them (`Clause.spoken`) but for `on_turn`, `on_partial` and
    `on_reply`, which take them as the hook and the recogniser wrote them (`Clause.text`).
    """

    def __init__(
        self,
        settings: Settings,
        synthesizer: Synthesizer,
        pool: WorkerPool,
        metrics: Metrics,
        tiers: Tiers,
        *,
        now: Callable[[], float] = time.monotonic,
        hour: Callable[[], int] = lambda: datetime.now().astimezone().hour,
    ) -> None:
        cache = settings.cache
        self._settings = cache
        self._synthesizer = synthesizer
        self._metrics = metrics
        self._now = now
        self._hour = hour
        self._public = _phrases(settings, synthesizer)
        """Whatever the policy."""
        self._privacy = Privacy(cache.private, cache.public_words)
        self._tasks = OwnedTasks()
        self._store = SpeechStore(cache.memory_mb * 1_000_000, tiers, metrics)
        self._maker = Maker(
            synthesizer, self._store, metrics, cache.share_wait_ms / 1000, self._tasks, self._as_piece, now
        )
        self._flights = Flights(self._load_changed)
        self._prefetcher = Prefetcher(self._ahead, lambda: self._flights.urgent > 0, cache.cpu_s_per_hour, now)
        self.foresight = Foresight(
            cache,
            self._privacy,
            want=self._prefetcher.want,
            ready=lambda job: self.ready(job.text, job.voice, job.style),
            note=lambda call, record: self._tasks.begin(self._learning.note(call, record), "voice-journal"),
        )
        self._learning = Learning(cache_folder(settings), self.foresight, tiers, metrics)
        self.packets = PacketMaker(self._store, pool, settings.media)
        """Stored speech as packets."""
        self._warmed: set[Voice] = set()
        self._first_s = FIRST_GUESS_S

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: Settings,
        synthesizer: Synthesizer,
        *,
        pool: WorkerPool,
        metrics: Metrics,
        now: Callable[[], float] = time.monotonic,
    ) -> AsyncIterator[VoiceCache]:
        """Open the tiers and begin to work; writes what waits and what was learned on the way out.

        Args:
            synthesizer: the engine, with its fallbacks; not closed here.
            pool: where packets are encoded.

        Raises ConfigError and EnvironmentFault, each with what to do. A Redis that does not answer is only logged.
        """
        async with open_tiers(settings, metrics, now) as tiers:
            voice_cache = cls(settings, synthesizer, pool, metrics, tiers, now=now)
            await voice_cache._start()
            try:
                yield voice_cache
            finally:
                await voice_cache._stop()

    # -- asking for speech ---------------------------------------------------------------------------------------------

    @property
    def info(self) -> EngineInfo:
        """The engine's."""
        return self._synthesizer.info

    @property
    def memory_bytes(self) -> int:
        """What the tier in memory holds."""
        return self._store.memory_bytes

    def lookup(self, text: str, voice: Voice, style: Style) -> CachedSpeech | None:
        """The clause, if it is in memory; counts as a request of it. Never raises."""
        try:
            return self._store.hit(self._maker.key(text, voice, style))
        except EngineError:
            return None

    def ready(self, text: str, voice: Voice, style: Style) -> bool:
        """Whether `lookup` would find it; counts as nothing."""
        try:
            return self._maker.key(text, voice, style) in self._store
        except EngineError:
            return False

    def use(self, text: str, voice: Voice, style: Style) -> CacheUse:
        """What asking for it now would be: `predicted` is the first use of what was made ahead. Counts as nothing."""
        try:
            key = self._maker.key(text, voice, style)
        except EngineError:
            return "miss"
        if key not in self._store:
            return "miss"
        return "predicted" if self._store.unspent(key) else "hit"

    async def stored(self, text: str, voice: Voice, style: Style) -> bool:
        """Whether any tier has the clause and tells in time; it is in memory then. Raises EngineError."""
        key = self._maker.key(text, voice, style)
        if key not in self._store and (speech := await self._store.tiers.get(key)) is not None:
            self._store.keep(speech, write=False)
        return key in self._store

    def publish(self, texts: Iterable[str]) -> None:
        """The operator's own words, as the engine reads them: nobody's secret, so that they may leave memory."""
        self._public.update(normalised(text) for text in texts)

    def keeps(self, text: str, voice: Voice) -> bool:
        """Whether the clause may leave memory."""
        return not self._private(text, voice)

    async def speech(
        self,
        text: str,
        voice: Voice,
        style: Style,
        *,
        priority: Priority = Priority.NORMAL,
        private: bool = False,
    ) -> AsyncGenerator[Speech]:
        """The clause in one piece if any tier has it, else as the engine makes it, which is stored on the way.

        Whoever asks for what is being made already gets the same pieces. Closing it ends the work unless others wait.

        Args:
            private: must never leave memory, whatever the policy.

        Raises EngineError, UnsupportedLanguage, UnsupportedVoice.
        """
        began = self._now()
        key = self._maker.key(text, voice, style)
        if (ready := self._store.hit(key)) is not None:
            self._metrics.cache_saved(self._first_s)
            yield self._as_piece(ready)
            return
        private = private or self._private(text, voice)
        joined = key in self._flights
        if joined:
            self._metrics.cache_request("joined", "hit")
        first = True
        pieces = self._flights.follow(key, lambda: self._maker.make(key, text, voice, style, private), priority)
        async with aclosing(pieces):
            async for piece in pieces:
                if first and not joined and priority <= Priority.NORMAL:
                    self._first_s += LEARN_RATE * (self._now() - began - self._first_s)
                first = False
                yield piece

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """`Synthesizer.stream`: the same as `speech`."""
        async with aclosing(self.speech(text, voice, style)) as pieces:
            async for piece in pieces:
                yield piece

    async def privately(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """`Discreet.privately`: kept in memory at most."""
        async with aclosing(self.speech(text, voice, style, private=True)) as pieces:
            async for piece in pieces:
                yield piece

    async def warm(self, voice: Voice) -> None:
        """Let the engine load what this voice needs, where it can be told to. Raises EngineError."""
        warm = getattr(self._synthesizer, "warm", None)
        if warm is not None:
            await warm(voice)

    async def close(self) -> None:
        """Nothing: `open` closes it, and the engine is whoever's made it."""

    async def settled(self) -> None:
        """Wait until what is likely is made, as far as it may be, and all that was made is written or could not be."""
        await self._prefetcher.settled()
        await self._tasks.settled()
        await self._store.tiers.settled()

    # -- the dialogue --------------------------------------------------------------------------------------------------

    def on_call(self, call: str, voice: Voice, style: Style, *, caller: str | None = None, queue: str = "") -> None:
        """A call began, or goes on with another voice."""
        hour = self._hour()
        self.foresight.on_call(call, voice, style, hour=hour, caller=caller, queue=queue)
        for likely, _ in self.foresight.voices.rank(hour=hour, queue=queue, limit=MAX_WARM_VOICES):
            if likely not in self._warmed and len(self._warmed) < MAX_WARMED:
                self._warmed.add(likely)
                self._tasks.begin(self._warm_quietly(likely), "warm-voice")

    def on_turn(
        self,
        call: str,
        *,
        said: str = "",
        state: Mapping[str, object] | None = None,
        expected: tuple[str, ...] = (),
        intent: str = "",
    ) -> None:
        """The agent has said `said` (its last clause); what comes next is predicted and made ahead from now on.

        Args:
            state: the session's: its `state` names where the dialogue stands, `intent` what the caller wanted, and its
                short values are what openings may mention.
            expected: the hook's `expect`.
        """
        if not self._settings.predict:
            return
        state = state or {}
        self.foresight.on_turn(
            call,
            Situation(
                label(state.get("state")),
                said,
                label(intent or state.get("intent")),
                tuple(expected),
                slots_of(state),
            ),
        )

    def on_partial(self, call: str, text: str) -> None:
        """The caller's running turn reads like this now."""
        if self._settings.predict:
            self.foresight.on_partial(call, text)

    def on_reply(
        self, call: str, text: str, *, heard: str = "", private: bool = False, ready: bool | None = None
    ) -> None:
        """The agent answers `heard`, beginning with the clause `text`.

        Args:
            ready: whether its speech was in memory when it was asked for; None: it is asked for after this.
        """
        if self._settings.predict:
            self._prefetcher.forget(call)
            self.foresight.on_reply(call, text, heard=heard, private=private, ready=ready)

    def on_end(self, call: str) -> None:
        """The call is over."""
        self._prefetcher.forget(call)
        self.foresight.on_end(call)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        await self._learning.start()
        if self._settings.predict and self._settings.cpu_s_per_hour:
            self._prefetcher.start()

    async def _stop(self) -> None:
        await self._prefetcher.close()
        await self._flights.close()
        await self.packets.close()
        await self._tasks.close()
        await self._learning.close()

    def _private(self, text: str, voice: Voice) -> bool:
        return normalised(text) not in self._public and self._privacy.private(text, voice.language)

    def _as_piece(self, speech: CachedSpeech) -> Speech:
        return replace(speech.speech(), packets=lambda codec: self.packets.ready(speech, codec))

    async def _ahead(self, job: Job) -> None:
        """Make a likely opening. Raises EngineError, InterruptedError when somebody who waits for it took it over."""
        key = self._maker.key(job.text, job.voice, job.style)
        if key in self._store:
            return
        private = self._private(job.text, job.voice)
        pieces = self._flights.follow(
            key, lambda: self._maker.make(key, job.text, job.voice, job.style, private), Priority.IDLE
        )
        async with aclosing(pieces):
            async for _ in pieces:
                pass
        self._store.made_ahead(key)

    def _load_changed(self) -> None:
        self._prefetcher.load_changed()

    async def _warm_quietly(self, voice: Voice) -> None:
        with suppress(EngineError):
            await self.warm(voice)


def _phrases(settings: Settings, synthesizer: Synthesizer) -> set[str]:
    """The operator's own phrases, as the engine reads them: nobody's secret in any language."""
    book = PhraseBook(settings.phrases, synthesizer, settings.tts.language)
    return {
        normalised(normalize(book.text(name, language), language))
        for language in configured_languages(settings)
        for name in PHRASES
    }
