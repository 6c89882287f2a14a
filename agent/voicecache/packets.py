"""Packets of stored speech: encoded once for each encoding, in the pool, and kept beside the samples."""

from __future__ import annotations

import asyncio
import logging

from agent.config import MediaSettings
from agent.core.fairqueue import Priority
from agent.core.pool import WorkerPool
from agent.media.codec import Codec
from agent.media.codecs import make_encoder
from agent.media.encoded import EncodedSpeech, encode_speech
from agent.media.resample import resample
from agent.voicecache.entry import CachedSpeech
from agent.voicecache.key import SpeechKey
from agent.voicecache.store import SpeechStore

__all__ = ["PacketMaker"]

MAX_ENCODINGS = 32
"""Stretches that are being encoded for their next use."""

log = logging.getLogger(__name__)


class PacketMaker:
    """Encodes what `store` holds.

    Args:
        pool: where the work is done.
        media: settings of the encoders.
    """

    def __init__(self, store: SpeechStore, pool: WorkerPool, media: MediaSettings) -> None:
        self._store = store
        self._pool = pool
        self._media = media
        self._under_way: dict[tuple[SpeechKey, str], asyncio.Task[EncodedSpeech]] = {}
        self._coder_keys: dict[Codec, str] = {}

    def ready(self, speech: CachedSpeech, codec: Codec) -> EncodedSpeech | None:
        """The packets, if they are there; else they will be at the next use, and a call encodes this one itself."""
        newest = self._store.newest(speech)
        coded = newest.encoded(self._coder_key(codec))
        if coded is None and len(self._under_way) < MAX_ENCODINGS:
            self._encode(newest, codec, Priority.IDLE)
        return coded

    async def make(self, speech: CachedSpeech, codec: Codec) -> EncodedSpeech:
        """The packets, once they are there. Raises EngineError, MediaError."""
        newest = self._store.newest(speech)
        coded = newest.encoded(self._coder_key(codec))
        if coded is not None:
            return coded
        # Shielded: others may wait for the same packets.
        return await asyncio.shield(self._encode(newest, codec, Priority.NORMAL))

    async def close(self) -> None:
        """Drop what is under way."""
        tasks = tuple(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _coder_key(self, codec: Codec) -> str:
        name = self._coder_keys.get(codec)
        if name is None:
            encoder = make_encoder(codec, self._media)
            name = self._coder_keys[codec] = encoder.key
            encoder.close()
        return name

    def _encode(self, speech: CachedSpeech, codec: Codec, priority: Priority) -> asyncio.Task[EncodedSpeech]:
        which = (speech.key, self._coder_key(codec))
        task = self._under_way.get(which)
        if task is None:
            task = asyncio.create_task(self._encode_and_keep(speech, codec, priority), name="encode-speech")
            self._under_way[which] = task
            task.add_done_callback(lambda task: self._ended(which, task))
        return task

    async def _encode_and_keep(self, speech: CachedSpeech, codec: Codec, priority: Priority) -> EncodedSpeech:
        coded = await self._pool.run(self._in_thread, speech, codec, owner=("encode", speech.key), priority=priority)
        if speech.key in self._store:
            self._store.keep(self._store.newest(speech).with_packets(coded))
        return coded

    def _in_thread(self, speech: CachedSpeech, codec: Codec) -> EncodedSpeech:
        encoder = make_encoder(codec, self._media)
        try:
            same = speech.sample_rate_hz == codec.sample_rate_hz
            pcm = speech.pcm if same else resample(speech.pcm, speech.sample_rate_hz, codec.sample_rate_hz)
            return encode_speech(pcm, encoder)
        finally:
            encoder.close()

    def _ended(self, which: tuple[SpeechKey, str], task: asyncio.Task[EncodedSpeech]) -> None:
        del self._under_way[which]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("speech was not encoded: %s", type(error).__name__)
