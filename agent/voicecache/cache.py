"""The voice cache: speech that was made before comes at once; what is likely next is made before it is asked for.

`VoiceCache` is itself a `Synthesizer`: where a call's clauses went to the engine, they may go here.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from agent.asr.protocol import EngineInfo
from agent.config import Settings
from agent.core.fairqueue import Priority
from agent.core.pool import WorkerPool
from agent.core.urgency import urgency
from agent.errors import EngineError
from agent.media.codec import Codec
from agent.media.codecs import make_encoder
from agent.media.encoded import EncodedSpeech, encode_speech
from agent.media.resample import resample
from agent.observe.metrics import Metrics
from agent.tts.protocol import Speech, Style, Synthesizer, Voice
from agent.tts.shaping import audible
from agent.voicecache.disk import DiskThread, DiskTier
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.flight import Flights
from agent.voicecache.foresight import Foresight
from agent.voicecache.journal import Journal, TurnRecord
from agent.voicecache.key import SpeechKey, speech_key
from agent.voicecache.learned import read_learned, restore_learned, write_learned
from agent.voicecache.memory import MemoryTier
from agent.voicecache.prefetcher import Job, Prefetcher
from agent.voicecache.privacy import Privacy
from agent.voicecache.situation import Situation, slots_of
from agent.voicecache.tiers import Tiers

__all__ = ["Opening", "VoiceCache", "cache_folder"]

MIN_LEASE_S = 0.001
"""Less than this left of Redis's deadline is not worth a question."""

SYNC_EVERY_S = 30.0
"""Between two times that learning is shared and written: what a killed process loses at most."""

MAX_SPENT = 4_096
"""Openings made ahead whose use is waited for; older ones count as wasted."""

MAX_ENCODINGS = 32
"""Stretches that are being encoded in the background."""

FIRST_GUESS_S = 0.05
LEARN_RATE = 0.1

MAX_WARM_VOICES = 3

_CUT = re.compile(r"(?:[,;:.!?…—]+[\"'”’)\]]*(?=\s)|[，。！？；：、…]+[”’」』）》]*)")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Opening:
    """Cached speech for the beginning of a text."""

    end: int
    """`text[:end]` is what it says; `text[end:]` is left to the engine."""
    speech: CachedSpeech


def cache_folder(settings: Settings) -> Path:
    """Where the tier on disk, the journal and what was learned are kept."""
    return settings.cache.folder or settings.models.cache_dir / "voice"


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
        self._settings = settings
        self._synthesizer = synthesizer
        self._pool = pool
        self._metrics = metrics
        self._tiers = tiers
        self._now = now
        self._hour = hour
        cache = settings.cache
        self._memory = MemoryTier(cache.memory_mb * 1_000_000, self._evicted)
        self._privacy = Privacy(cache.private, cache.public_words)
        self._flights = Flights(self._load_changed)
        self._prefetcher = Prefetcher(self._ahead, lambda: self._flights.urgent > 0, cache.cpu_s_per_hour, now)
        folder = cache_folder(settings)
        self._journal = Journal(folder / "calls")
        self._learned_file = folder / "learned.json"
        self._foresight = Foresight(
            cache, self._privacy, want=self._prefetcher.want, ready=self._is_ready, note=self._note
        )
        self._unspent: OrderedDict[SpeechKey, None] = OrderedDict()
        self._encoding: dict[tuple[SpeechKey, str], asyncio.Task[EncodedSpeech]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._warmed: set[Voice] = set()
        self._first_s = FIRST_GUESS_S
        self._keeper: asyncio.Task[None] | None = None
        self._coder_keys: dict[Codec, str] = {}

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
        cache = settings.cache
        thread = DiskThread()
        redis = None
        try:
            disk = None
            if cache.disk_mb:
                disk = await thread.run(DiskTier, cache_folder(settings) / "speech", cache.disk_mb * 1_000_000)
            if cache.redis_url:
                # Here, so that nobody who shares nothing loads the library.
                from agent.voicecache.shared import RedisTier

                redis = RedisTier(cache, metrics, now)
                if not await redis.ping():
                    log.warning("Redis at %s does not answer: speech is not shared until it does", cache.redis_url)
        except BaseException:
            await thread.close()
            raise
        voice_cache = cls(settings, synthesizer, pool, metrics, Tiers(disk, thread, redis, metrics, now), now=now)
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

    def key(self, text: str, voice: Voice, style: Style) -> SpeechKey:
        """The key of a clause. Raises UnsupportedLanguage, UnsupportedVoice where several engines stand behind it."""
        return speech_key(text, voice, style, self._engine_for(voice))

    def lookup(self, text: str, voice: Voice, style: Style) -> CachedSpeech | None:
        """The clause, if it is in memory; counts as a request of it. Never raises."""
        try:
            key = self.key(text, voice, style)
        except EngineError:
            return None
        return self._hit(key)

    def ready(self, text: str, voice: Voice, style: Style) -> bool:
        """Whether `lookup` would find it; counts as nothing."""
        return self._is_ready(Job(text, voice, style))

    def opening(self, text: str, voice: Voice, style: Style) -> Opening | None:
        """The longest beginning of `text` that is in memory: all of it, or up to one of its marks.

        Only at a mark, since a voice falls there: elsewhere the two halves would not sound like one sentence.
        """
        ends = [len(text), *sorted((m.end() for m in _CUT.finditer(text) if m.end() < len(text)), reverse=True)]
        for end in ends:
            if not self.ready(text[:end], voice, style):
                continue
            speech = self.lookup(text[:end], voice, style)
            if speech is not None:
                while end < len(text) and text[end].isspace():
                    end += 1
                return Opening(end, speech)
        return None

    async def fetch(self, text: str, voice: Voice, style: Style) -> CachedSpeech | None:
        """The clause from any tier, within the tiers' deadlines; None if none has it. Raises only when cancelled."""
        try:
            key = self.key(text, voice, style)
        except EngineError:
            return None
        speech = self._hit(key) or await self._tiers.get(key)
        if speech is not None and key not in self._memory:
            self._keep(speech)
        return speech

    async def speech(
        self,
        text: str,
        voice: Voice,
        style: Style,
        *,
        priority: Priority = Priority.LIVE,
        private: bool = False,
    ) -> AsyncGenerator[Speech]:
        """The clause in one piece if any tier has it, else as the engine makes it, which is stored on the way.

        Whoever asks for what is being made already gets the same pieces. Closing it ends the work unless others wait.

        Args:
            private: must never leave memory, whatever the policy.

        Raises EngineError, UnsupportedLanguage, UnsupportedVoice.
        """
        began = self._now()
        key = self.key(text, voice, style)
        if (ready := self._hit(key)) is not None:
            self._metrics.cache_saved(self._first_s)
            yield ready.speech()
            return
        private = self._privacy.private(text, voice.language, marked=private)
        joined = key in self._flights
        if joined:
            self._metrics.cache_request("joined", "hit")
        first = True
        pieces = self._flights.follow(key, lambda: self._make(key, text, voice, style, private), priority)
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

    async def warm(self, voice: Voice) -> None:
        """Let the engine load what this voice needs, where it can be told to. Raises EngineError."""
        warm = getattr(self._synthesizer, "warm", None)
        if warm is not None:
            await warm(voice)

    async def close(self) -> None:
        """Nothing: `open` closes it, and the engine is whoever's made it."""

    # -- packets -------------------------------------------------------------------------------------------------------

    def packets(self, speech: CachedSpeech, codec: Codec) -> EncodedSpeech | None:
        """The speech as packets of this encoding, if they are there; else they will be soon.

        Whoever asks at the next use gets them: this one is encoded by the call itself.
        """
        newest = self._memory.peek(speech.key) or speech
        coded = newest.encoded(self._coder_key(codec))
        if coded is None and len(self._encoding) < MAX_ENCODINGS:
            self._encode(newest, codec, Priority.IDLE)
        return coded

    async def encoded(
        self, speech: CachedSpeech, codec: Codec, *, priority: Priority = Priority.NORMAL
    ) -> EncodedSpeech:
        """The same, waiting for it; made in the pool, once whoever asks. Raises EngineError, MediaError."""
        newest = self._memory.peek(speech.key) or speech
        coded = newest.encoded(self._coder_key(codec))
        if coded is not None:
            return coded
        # Shielded: others may wait for the same packets.
        return await asyncio.shield(self._encode(newest, codec, priority))

    # -- the dialogue --------------------------------------------------------------------------------------------------

    def on_call(self, call: str, voice: Voice, style: Style, *, caller: str | None = None, queue: str = "") -> None:
        """A call began, or goes on with another voice."""
        hour = self._hour()
        self._foresight.on_call(call, voice, style, hour=hour, caller=caller, queue=queue)
        for likely, _ in self._foresight.voices.rank(hour=hour, queue=queue, limit=MAX_WARM_VOICES):
            if likely not in self._warmed and len(self._warmed) < 64:
                self._warmed.add(likely)
                self._begin(self._warm_quietly(likely), "warm-voice")

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
        if not self._settings.cache.predict:
            return
        state = state or {}
        named, wanted = state.get("state", ""), state.get("intent", "")
        self._foresight.on_turn(
            call,
            Situation(
                named if isinstance(named, str) else "",
                said,
                intent or (wanted if isinstance(wanted, str) else ""),
                tuple(expected),
                slots_of(state),
            ),
        )

    def on_partial(self, call: str, text: str) -> None:
        """The caller's running turn reads like this now."""
        if self._settings.cache.predict:
            self._foresight.on_partial(call, text)

    def on_reply(self, call: str, text: str, *, heard: str = "", private: bool = False) -> None:
        """The agent answers `heard`, beginning with the clause `text`. Call it before asking for its speech."""
        if self._settings.cache.predict:
            self._prefetcher.forget(call)
            self._foresight.on_reply(call, text, heard=heard, private=private)

    def on_end(self, call: str) -> None:
        """The call is over."""
        self._prefetcher.forget(call)
        self._foresight.on_end(call)

    # -- for the command line ------------------------------------------------------------------------------------------

    @property
    def foresight(self) -> Foresight:
        """What predicts, for reports."""
        return self._foresight

    async def settled(self) -> None:
        """Wait until all that was made is written, or could not be."""
        await self._tiers.settled()

    def keep(self, speech: CachedSpeech) -> None:
        """Take an entry that was made elsewhere."""
        self._keep(speech)
        self._tiers.put(speech)

    # -- inside --------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        self._tiers.start()
        values = await self._tiers.thread.run(read_learned, self._learned_file)
        until = restore_learned(values, self._foresight.predictor, self._foresight.voices)
        if self._tiers.redis is not None:
            self._tiers.redis.learned_until = until
            await self._sync()
        if self._settings.cache.predict and self._settings.cache.cpu_s_per_hour:
            self._prefetcher.start()
        self._keeper = asyncio.create_task(self._keep_in_step(), name="voice-cache-keeper")

    async def _stop(self) -> None:
        await self._prefetcher.close()
        await self._flights.close()
        assert self._keeper is not None
        tasks = [self._keeper, *self._tasks, *self._encoding.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._sync()
        await self._tiers.close()

    async def _keep_in_step(self) -> None:
        while True:
            await asyncio.sleep(SYNC_EVERY_S)
            await self._sync()

    async def _sync(self) -> None:
        """Share what was learned, learn what was shared, write both down."""
        redis = self._tiers.redis
        if redis is not None:
            await redis.teach(self._foresight.untaught())
            self._foresight.learn(await redis.learn())
        if not self._foresight.changed or self._tiers.disk is None:
            return
        self._foresight.changed = False
        values = {
            "predictor": self._foresight.predictor.dump(),
            "voices": self._foresight.voices.dump(),
            "learned_until": "0-0" if redis is None else redis.learned_until,
        }
        try:
            await self._tiers.thread.run(write_learned, self._learned_file, values)
        except OSError as exc:
            self._metrics.error("cache", exc)
            log.warning("what was learned was not written: %s", exc.strerror)

    def _engine_for(self, voice: Voice) -> EngineInfo:
        chosen = getattr(self._synthesizer, "engine_for", None)
        info: EngineInfo = self._synthesizer.info if chosen is None else chosen(voice)
        return info

    def _is_ready(self, job: Job) -> bool:
        try:
            return self.key(job.text, job.voice, job.style) in self._memory
        except EngineError:
            return False

    def _hit(self, key: SpeechKey) -> CachedSpeech | None:
        speech = self._memory.get(key)
        self._metrics.cache_request("memory", "miss" if speech is None else "hit")
        if speech is not None and key in self._unspent:
            del self._unspent[key]
            self._metrics.cache_prediction("used")
        return speech

    def _keep(self, speech: CachedSpeech) -> None:
        self._memory.put(speech)
        self._metrics.cache_bytes("memory", self._memory.size_bytes)

    def _evicted(self, key: SpeechKey) -> None:
        if key in self._unspent:
            del self._unspent[key]
            self._metrics.cache_prediction("wasted")

    async def _make(
        self, key: SpeechKey, text: str, voice: Voice, style: Style, private: bool
    ) -> AsyncGenerator[Speech]:
        """From the other tiers, from another process that is making it, or from the engine."""
        began = self._now()
        told = urgency.get()
        # Work for later takes no lease: nobody must wait for what waits itself behind all other work.
        shared = not private and told is not None and told.priority <= Priority.NORMAL
        redis = self._tiers.redis if shared else None
        # Private speech never went to the other tiers, so it cannot be there.
        stored = None if private else await self._tiers.get(key)
        lease = None
        if stored is None and redis is not None:
            left_s = redis.deadline_s - (self._now() - began)
            lease = await redis.lease(key, left_s) if left_s > MIN_LEASE_S else None
            if lease is not None and not lease.ours:
                stored = await redis.await_other(key, self._settings.cache.share_wait_ms / 1000)
        if stored is not None:
            self._keep(stored)
            yield stored.speech()
            return
        try:
            pieces: list[Speech] = []
            async with aclosing(self._engine(text, voice, style)) as made:
                async for piece in made:
                    pieces.append(piece)
                    yield piece
            speech = self._entry(key, text, voice, pieces, private)
            self._metrics.cache_request("engine", "stored" if speech is not None else "refused")
            if speech is not None:
                self._keep(speech)
                if self._tiers.put(speech, lease):
                    lease = None
        finally:
            if lease is not None and lease.ours and redis is not None:
                self._begin(redis.release(lease), "release-lease")

    async def _engine(self, text: str, voice: Voice, style: Style) -> AsyncGenerator[Speech]:
        pieces = self._synthesizer.stream(text, voice, style)
        try:
            async for piece in pieces:
                yield piece
        finally:
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()

    def _entry(
        self, key: SpeechKey, text: str, voice: Voice, pieces: list[Speech], private: bool
    ) -> CachedSpeech | None:
        """What is to be kept of a synthesis that ended by itself; None when it is not what the key promises."""
        wanted = self._engine_for(voice)
        if any(piece.source not in ("", wanted.identity) for piece in pieces):
            # Another engine stood in for all or a part of it: good for this caller, not for the next.
            return None
        if not any(audible(piece.pcm) for piece in pieces):
            return None
        pcm = np.concatenate([piece.pcm for piece in pieces])
        pcm.flags.writeable = False
        words = tuple(word for piece in pieces for word in piece.words)
        return CachedSpeech(
            key, text, voice.name, voice.language, wanted.identity, wanted.sample_rate_hz, pcm, words, private
        )

    async def _ahead(self, job: Job) -> None:
        """Make a likely opening. Raises EngineError, InterruptedError when somebody who waits for it took it over."""
        key = self.key(job.text, job.voice, job.style)
        if key in self._memory:
            return
        private = self._privacy.private(job.text, job.voice.language)
        pieces = self._flights.follow(
            key, lambda: self._make(key, job.text, job.voice, job.style, private), Priority.IDLE
        )
        async with aclosing(pieces):
            async for _ in pieces:
                pass
        if key in self._memory:
            self._unspent[key] = None
            while len(self._unspent) > MAX_SPENT:
                self._unspent.popitem(last=False)
                self._metrics.cache_prediction("wasted")

    def _load_changed(self) -> None:
        self._prefetcher.load_changed()

    def _coder_key(self, codec: Codec) -> str:
        name = self._coder_keys.get(codec)
        if name is None:
            encoder = make_encoder(codec, self._settings.media)
            name = self._coder_keys[codec] = encoder.key
            encoder.close()
        return name

    def _encode(self, speech: CachedSpeech, codec: Codec, priority: Priority) -> asyncio.Task[EncodedSpeech]:
        which = (speech.key, self._coder_key(codec))
        task = self._encoding.get(which)
        if task is None:
            task = asyncio.create_task(self._encode_and_keep(speech, codec, priority), name="encode-speech")
            self._encoding[which] = task
            task.add_done_callback(lambda task: self._encoded(which, task))
        return task

    async def _encode_and_keep(self, speech: CachedSpeech, codec: Codec, priority: Priority) -> EncodedSpeech:
        coded = await self._pool.run(
            self._encode_in_thread, speech, codec, owner=("encode", speech.key), priority=priority
        )
        newest = self._memory.peek(speech.key)
        if newest is not None:
            grown = newest.with_packets(coded)
            self._keep(grown)
            self._tiers.put(grown)
        return coded

    def _encode_in_thread(self, speech: CachedSpeech, codec: Codec) -> EncodedSpeech:
        encoder = make_encoder(codec, self._settings.media)
        try:
            same = speech.sample_rate_hz == codec.sample_rate_hz
            pcm = speech.pcm if same else resample(speech.pcm, speech.sample_rate_hz, codec.sample_rate_hz)
            return encode_speech(pcm, encoder)
        finally:
            encoder.close()

    def _encoded(self, which: tuple[SpeechKey, str], task: asyncio.Task[EncodedSpeech]) -> None:
        del self._encoding[which]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("speech was not encoded: %s", type(error).__name__)

    def _note(self, call: str, record: TurnRecord) -> None:
        if self._tiers.disk is not None:
            self._begin(self._write_note(call, record), "voice-journal")

    async def _write_note(self, call: str, record: TurnRecord) -> None:
        try:
            await self._tiers.thread.run(self._journal.add, call, record)
        except OSError as exc:
            self._metrics.error("cache", exc)

    async def _warm_quietly(self, voice: Voice) -> None:
        with suppress(EngineError):
            await self.warm(voice)

    def _begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("%s failed: %s", task.get_name(), type(error).__name__)
