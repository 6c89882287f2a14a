"""One synthesis: from the tiers behind memory, from another process that is making it, or from the engine."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import numpy as np

from agent.asr.protocol import EngineInfo
from agent.core.fairqueue import Priority
from agent.core.urgency import current_priority
from agent.observe.metrics import Metrics
from agent.tts.protocol import Speech, Style, Synthesizer, Voice
from agent.tts.shaping import tail_ms
from agent.voicecache.edges import cut_edges
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import SpeechKey, speech_key
from agent.voicecache.store import SpeechStore
from agent.voicecache.tasks import OwnedTasks

__all__ = ["Maker"]

MIN_LEASE_S = 0.001
"""Less than this left of Redis's deadline is not worth a question."""


class Maker:
    """Makes speech that is not in memory, and keeps what may be kept.

    Args:
        synthesizer: the engine, with its fallbacks.
        share_wait_s: how long another process's synthesis is waited for.
        tasks: owns what goes on after a synthesis.
        as_piece: stored speech as a piece.
        now: a monotonic clock in seconds.
    """

    def __init__(
        self,
        synthesizer: Synthesizer,
        store: SpeechStore,
        metrics: Metrics,
        share_wait_s: float,
        tasks: OwnedTasks,
        as_piece: Callable[[CachedSpeech], Speech] = CachedSpeech.speech,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._synthesizer = synthesizer
        self._store = store
        self._metrics = metrics
        self._share_wait_s = share_wait_s
        self._tasks = tasks
        self._as_piece = as_piece
        self._now = now

    def engine_for(self, voice: Voice) -> EngineInfo:
        """The engine that speaks this voice while all are well. Raises UnsupportedLanguage, UnsupportedVoice."""
        chosen = getattr(self._synthesizer, "engine_for", None)
        info: EngineInfo = self._synthesizer.info if chosen is None else chosen(voice)
        return info

    def key(self, text: str, voice: Voice, style: Style) -> SpeechKey:
        """The key of a clause. Raises UnsupportedLanguage, UnsupportedVoice."""
        return speech_key(text, voice, style, self.engine_for(voice))

    async def make(
        self, key: SpeechKey, text: str, voice: Voice, style: Style, private: bool
    ) -> AsyncGenerator[Speech]:
        """Its pieces. Only a synthesis that ends by itself, all of it by the engine of the key, is kept.

        Raises EngineError, UnsupportedLanguage, UnsupportedVoice.
        """
        began = self._now()
        tiers = self._store.tiers
        # Private speech never went to the other tiers, so it cannot be there.
        stored = None if private else await tiers.get(key)
        # Work for later takes no lease: nobody must wait for what waits itself behind all other work.
        redis = None if private or current_priority() > Priority.NORMAL else tiers.redis
        lease = None
        if stored is None and redis is not None:
            left_s = redis.deadline_s - (self._now() - began)
            lease = await redis.lease(key, left_s) if left_s > MIN_LEASE_S else None
            if lease is not None and not lease.ours:
                stored = await redis.await_other(key, self._share_wait_s)
        if stored is not None:
            self._store.keep(stored, write=False)
            yield self._as_piece(stored)
            return
        try:
            pieces: list[Speech] = []
            async with aclosing(self._engine(text, voice, style)) as made:
                async for piece in made:
                    pieces.append(piece)
                    yield piece
            speech = self._entry(key, text, voice, style, pieces, private)
            self._metrics.cache_request("engine", "stored" if speech is not None else "refused")
            if speech is not None and self._store.keep(speech, lease):
                # Given back once it is written.
                lease = None
        finally:
            if lease is not None and lease.ours and redis is not None:
                self._tasks.begin(redis.release(lease), "release-lease")

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
        self, key: SpeechKey, text: str, voice: Voice, style: Style, pieces: Sequence[Speech], private: bool
    ) -> CachedSpeech | None:
        """What is to be kept; None when it is not what the key promises."""
        wanted = self.engine_for(voice)
        if not pieces or any(piece.source not in ("", wanted.identity) for piece in pieces):
            # Another engine stood in for all or a part of it, or a part was lost: good for this caller only.
            return None
        rate_hz = wanted.sample_rate_hz
        words = [word for piece in pieces for word in piece.words]
        pcm, moved = cut_edges(
            np.concatenate([piece.pcm for piece in pieces]), words, rate_hz, tail_ms(text, style.rate)
        )
        if not len(pcm):
            return None
        pcm.flags.writeable = False
        return CachedSpeech(key, text, voice.name, voice.language, wanted.identity, rate_hz, pcm, moved, private)
