"""A Recognizer whose engine is in a core: audio goes there as it comes, readings come back.

The turn's audio is kept here until the turn is over. When the core is lost in mid-turn and comes back, or another takes
its place, the stream is opened again and gets all of it: a recogniser that reads whole turns needs the whole turn.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from agent.asr.protocol import EngineInfo, Hypothesis
from agent.core.client import CoreClient, CoreStream, error_of
from agent.core.codec import MAX_PCM_BYTES
from agent.core.messages import Ack, Audio, Cancel, Evidence, Fault, Final, Message, Partial, Read
from agent.errors import ConfigError, CoreLost, EngineError, EngineOverloaded, UnsupportedLanguage
from agent.language import primary_language

__all__ = ["RemoteRecognizer", "RemoteRecognizerStream"]

FINAL_DEADLINE_S = 2.5
"""Below the three seconds after which the turn machine gives a final up, so that the reason is known."""

AWAY_DEADLINE_S = 0.5
"""A final that is asked for while the core is away waits this long for it."""

RETRY_S = 0.25
"""A stream that the core refused is asked for again, with all its audio, this much later."""

MAX_KEPT_BYTES = 60 * 16_000 * 2
"""A turn of a minute (`conversation.max_turn_s`); of a longer one the newest is kept."""

MAX_TAG_CHARS = 35
"""Of a language tag (BCP 47 section 4.4.1): a client's may be anything that begins like a language."""

log = logging.getLogger(__name__)


class RemoteRecognizer:
    """All ASR shards of a core as one recogniser.

    Args:
        client: the line to the core; its owner closes it.
        listen: have the core judge speech and the end of the turn by sound too.

    Raises ConfigError when the core has no ASR shard.
    """

    def __init__(self, client: CoreClient, *, listen: bool = False) -> None:
        self._client = client
        self._listen = listen
        self._streams: weakref.WeakSet[RemoteRecognizerStream] = weakref.WeakSet()
        if not self._shards():
            served = ", ".join(client.models)
            raise ConfigError(f"core.url: the core at {client.address} serves {served}, but no asr: shard")

    @property
    def info(self) -> EngineInfo:
        """The first shard's, with the languages of all."""
        engines = [self._client.models[shard].engine for shard in self._shards().values()]
        first = engines[0]
        languages = tuple(dict.fromkeys(tag for engine in engines for tag in engine.languages))
        return EngineInfo(first.name, first.version, first.sample_rate_hz, languages, first.streams)

    def stream(self, *, language: str, hints: Sequence[str] = ()) -> RemoteRecognizerStream:
        """Open a segment; also while the core is away. Raises UnsupportedLanguage."""
        shard = self._shards().get(primary_language(language))
        if shard is None:
            known = ", ".join(self._shards())
            raise UnsupportedLanguage(f"language: the core reads {known}; got {language!r}")
        stream = RemoteRecognizerStream(
            self._client, shard, language[:MAX_TAG_CHARS], tuple(hints), listen=self._listen
        )
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        """Close every stream. Idempotent."""
        for stream in list(self._streams):
            stream.close()

    def _shards(self) -> dict[str, str]:
        """Shard by primary language."""
        names = [name for name in self._client.models if name.startswith("asr:")]
        return {primary_language(name.partition(":")[2]): name for name in names}


class RemoteRecognizerStream:
    """A RecognizerStream. Owner of a CoreStream, of several one after the other if cores are lost."""

    def __init__(
        self, client: CoreClient, shard: str, language: str, hints: tuple[str, ...], *, listen: bool = False
    ) -> None:
        self._client = client
        self._shard = shard
        self._language = language
        self._hints = hints
        self._listen = listen
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._stream: CoreStream | None = None
        self._refused: EngineError | None = None
        self._retry_at = 0.0
        self._sequence = 0
        self._generation = 0
        self._base = 0
        self._hypothesis = Hypothesis()
        self._finals: dict[int, asyncio.Future[Hypothesis]] = {}
        self._closed = False
        self.acked = 0
        """Newest frame that the core has taken in."""
        self.credits = 0
        """How many more it lets come, as it said last."""
        self.dropped = 0
        """Frames for which the link had no room; the next opening of the stream has them."""
        self.evidence: Evidence | None = None
        """The newest, if asked for."""

    @property
    def in_flight(self) -> int:
        """Frames that the core has not taken in."""
        return self._sequence - self.acked

    def push(self, pcm: npt.NDArray[np.int16]) -> None:
        """Add audio: int16 [n], 16 kHz mono; never blocks. After `close` it is dropped.

        Raises ValueError: `pcm` is not int16 [n].
        """
        if pcm.dtype != np.int16 or pcm.ndim != 1:
            raise ValueError(f"audio must be int16 [n], got {pcm.dtype} {list(pcm.shape)}")
        if self._closed or not len(pcm):
            return
        data = pcm.astype("<i2", copy=False).tobytes()
        parts = [data[at : at + MAX_PCM_BYTES] for at in range(0, len(data), MAX_PCM_BYTES)]
        self._kept += parts
        self._kept_bytes += len(data)
        while self._kept_bytes > MAX_KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft())
        if self._stream is not None:
            self._send(parts)
        elif asyncio.get_running_loop().time() >= self._retry_at:
            self._open()

    def partial(self) -> Hypothesis:
        """The newest reading."""
        return self._hypothesis

    async def final(self) -> Hypothesis:
        """Read everything pushed so far.

        Raises EngineError, CoreLost among them: the core failed, is away, or did not answer within 2.5 s.
        """
        if self._closed:
            raise EngineError("the stream is closed")
        if not self._kept:
            return self._hypothesis
        try:
            async with asyncio.timeout(FINAL_DEADLINE_S):
                while True:
                    try:
                        return await self._ask()
                    except CoreLost:
                        if self._closed:
                            raise
                        # A link that cannot send tells its end in the loop's next pass, and not without one.
                        await asyncio.sleep(0)
                        # Its successor, if there is one soon, gets the whole turn.
                        await self._client.wait_linked(AWAY_DEADLINE_S)
        except TimeoutError:
            raise CoreLost(f"{self._client.address}: no final within {FINAL_DEADLINE_S:g} s") from None

    async def _ask(self) -> Hypothesis:
        if self._stream is None:
            self._open()
        stream = self._stream
        if stream is None:
            raise self._refused or CoreLost(f"{self._client.address}: the core is away")
        self._generation += 1
        generation = self._generation
        answer: asyncio.Future[Hypothesis] = asyncio.get_running_loop().create_future()
        self._finals[generation] = answer
        try:
            stream.send(Read(stream.number, generation))
            return await answer
        finally:
            if not answer.done() or answer.cancelled():
                self._cancel(stream, generation)
            del self._finals[generation]

    def close(self) -> None:
        """Drop pending work. Idempotent."""
        self._closed = True
        self._kept.clear()
        self._kept_bytes = 0
        self._fail(EngineError("the stream is closed"))
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def on_message(self, message: Message) -> None:
        """See StreamOwner."""
        match message:
            case Partial(hypothesis=read):
                self._take(read)
            case Final(generation=generation, hypothesis=read):
                taken = self._take(read)
                answer = self._finals.get(generation)
                if answer is not None and not answer.done():
                    answer.set_result(taken)
            case Fault(generation=generation):
                answer = self._finals.get(generation)
                if answer is not None and not answer.done():
                    answer.set_exception(error_of(message))
            case Ack(sequence=sequence, credits=credits):
                self.acked, self.credits = sequence, credits
            case Evidence():
                self.evidence = message
            case _:
                log.debug("unexpected %s on a recognition stream", type(message).__name__)

    def on_lost(self, error: EngineError) -> None:
        """See StreamOwner."""
        self._stream = None
        self._refused = error
        self._retry_at = asyncio.get_running_loop().time() + (0.0 if isinstance(error, CoreLost) else RETRY_S)
        # A stream opened anew counts its readings from the beginning; what is told here must go on.
        self._base = self._hypothesis.revision
        self._fail(error)

    def _open(self) -> None:
        """Open the stream and send all that is kept; nothing happens while the core is away."""
        try:
            self._stream = self._client.open(
                self._shard, self, language=self._language, hints=self._hints, listen=self._listen
            )
        except CoreLost:
            return
        except EngineOverloaded as exc:
            self._refused = exc
            return
        self._refused = None
        self._sequence = self.acked = 0
        self._send(self._kept)

    def _send(self, parts: Sequence[bytes] | deque[bytes]) -> None:
        stream = self._stream
        assert stream is not None
        for part in parts:
            self._sequence += 1
            try:
                stream.send(Audio(stream.number, self._sequence, part))
            except EngineOverloaded:
                self.dropped += 1
            except CoreLost:
                # Told to `on_lost` in the next pass of the loop.
                return

    def _take(self, read: Hypothesis) -> Hypothesis:
        told = replace(read, revision=self._base + read.revision)
        if told.revision >= self._hypothesis.revision:
            self._hypothesis = told
        return told

    def _cancel(self, stream: CoreStream, generation: int) -> None:
        try:
            stream.send(Cancel(stream.number, generation))
        except EngineError as exc:
            log.debug("a reading was cancelled on a link that is gone: %s", type(exc).__name__)

    def _fail(self, error: EngineError) -> None:
        for answer in self._finals.values():
            if not answer.done():
                answer.set_exception(error)
