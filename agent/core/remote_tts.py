"""A Synthesizer whose engine is in a core: a clause goes there, pieces of speech come back as they are made."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator

import numpy as np

from agent.asr.protocol import EngineInfo
from agent.core.client import CoreClient, CoreStream, error_of
from agent.core.messages import Cancel, Fault, Message, SpeechOut, Text, Urge
from agent.core.urgency import current_priority
from agent.errors import ConfigError, CoreLost, EngineError, UnsupportedVoice
from agent.tts.protocol import Speech, Style, Voice

__all__ = ["RemoteSynthesizer"]

PIECE_DEADLINE_S = 10.0
"""Beyond what any reader waits for a piece; theirs are shorter."""

MAX_WAITING_BYTES = 60 * 24_000 * 2
"""Speech of one clause that may wait to be taken: twice the longest clause."""

GENERATION = 1
"""A stream has one clause."""

log = logging.getLogger(__name__)


class RemoteSynthesizer:
    """All TTS shards of a core as one synthesiser.

    Args:
        client: the line to the core; its owner closes it.

    Raises ConfigError: the core has no TTS shard, or shards of different sample rates.
    """

    def __init__(self, client: CoreClient) -> None:
        self._client = client
        models = self._models()
        if not models:
            served = ", ".join(client.models)
            raise ConfigError(f"core.url: the core at {client.address} serves {served}, but no tts: shard")
        rates = sorted({engine.sample_rate_hz for engine in models.values()})
        if len(rates) > 1:
            raise ConfigError(f"core.url: the core's tts: shards speak at different rates: {rates} Hz")

    @property
    def info(self) -> EngineInfo:
        """The first shard's, with the languages and voices of all."""
        engines = list(self._models().values())
        first = engines[0]
        languages = tuple(dict.fromkeys(tag for engine in engines for tag in engine.languages))
        voices = tuple(dict.fromkeys(name for engine in engines for name in engine.voices))
        return EngineInfo(first.name, first.version, first.sample_rate_hz, languages, first.streams, voices)

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """Speak one clause; see `Synthesizer.stream`. Closing the iterator cancels the work in the core.

        Raises EngineError, CoreLost among them, UnsupportedVoice, UnsupportedLanguage.
        """
        clause = _Clause()
        stream = self._client.open(self._shard(voice), clause)
        priority = current_priority()
        try:
            asked = Text(
                stream.number,
                GENERATION,
                text,
                voice.name,
                voice.language,
                style.rate,
                style.instruction,
                priority,
            )
            stream.send(asked)
            while (piece := await clause.next(PIECE_DEADLINE_S)) is not None:
                yield piece
                if current_priority() is not priority:
                    priority = current_priority()
                    stream.send(Urge(stream.number, GENERATION, priority))
        finally:
            if not clause.over:
                _cancel(stream)
            stream.close()

    async def close(self) -> None:
        """Streams end with their iterators."""

    def _models(self) -> dict[str, EngineInfo]:
        return {name: model.engine for name, model in self._client.models.items() if name.startswith("tts:")}

    def _shard(self, voice: Voice) -> str:
        """The shard named for the voice, else any whose engine has it."""
        models = self._models()
        wanted = f"tts:{voice.name}"
        if wanted in models:
            return wanted
        for name, engine in models.items():
            if not voice.name or voice.name in engine.voices:
                return name
        raise UnsupportedVoice(f"the core has no voice {voice.name!r}; there is {', '.join(self.info.voices)}")


class _Clause:
    """What came of one clause and was not taken yet. Owner of its stream."""

    def __init__(self) -> None:
        self.over = False
        """The core has nothing more to send."""
        self._pieces: deque[Speech] = deque()
        self._parts: list[bytes] = []
        self._waiting_bytes = 0
        self._error: EngineError | None = None
        self._news = asyncio.Event()

    async def next(self, deadline_s: float) -> Speech | None:
        """The next piece; None at the end. Raises EngineError."""
        while not self._pieces:
            if self._error is not None:
                raise self._error
            if self.over:
                return None
            self._news.clear()
            try:
                async with asyncio.timeout(deadline_s):
                    await self._news.wait()
            except TimeoutError:
                raise CoreLost(f"no speech within {deadline_s:g} s") from None
        piece = self._pieces.popleft()
        self._waiting_bytes -= 2 * len(piece.pcm)
        return piece

    def on_message(self, message: Message) -> None:
        """See StreamOwner."""
        match message:
            case SpeechOut(pcm=pcm, more=True):
                self._add(pcm)
                self._parts.append(pcm)
            case SpeechOut(pcm=pcm, last=last):
                self._add(pcm)
                self._parts.append(pcm)
                data = b"".join(self._parts)
                self._parts.clear()
                if data or not last or message.source:
                    samples = np.frombuffer(data, "<i2").astype(np.int16)
                    self._pieces.append(Speech(samples, message.words, message.source))
                self.over = last
            case Fault():
                self.on_lost(error_of(message))
            case _:
                log.debug("unexpected %s on a synthesis stream", type(message).__name__)
        self._news.set()

    def on_lost(self, error: EngineError) -> None:
        """See StreamOwner."""
        self.over = True
        self._error = error
        self._news.set()

    def _add(self, pcm: bytes) -> None:
        self._waiting_bytes += len(pcm)
        if self._waiting_bytes > MAX_WAITING_BYTES:
            self.on_lost(EngineError("the core sends more speech than a clause can have"))


def _cancel(stream: CoreStream) -> None:
    try:
        stream.send(Cancel(stream.number, GENERATION))
    except EngineError as exc:
        log.debug("a clause was cancelled on a link that is gone: %s", type(exc).__name__)
