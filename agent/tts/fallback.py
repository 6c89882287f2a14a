"""One synthesiser over several: when an engine fails in a clause, the next one speaks the rest of it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from agent.asr.protocol import EngineInfo, Word
from agent.errors import (
    ConfigError,
    EngineError,
    EngineOverloaded,
    RejoinderError,
    UnsupportedLanguage,
    UnsupportedVoice,
)
from agent.language import primary_language
from agent.tts.plain import plain_text, speakable, word_spans
from agent.tts.protocol import CUT_SHORT, Speech, Style, Synthesizer, Voice
from agent.tts.shaping import audible

__all__ = ["Cause", "FallbackSynthesizer"]

FIRST_PIECE_DEADLINE_S = 2.0
"""A hundred times what the embedded voice needs; a caller takes a longer silence for a dead line."""

NEXT_PIECE_DEADLINE_S = 4.0
"""Pieces come faster than they are played, so a gap this long is already heard."""

ALLOWANCE_S = 1.0
ALLOWANCE_PER_CHAR_S = 0.5
"""An engine that speaks longer than 1 s + 0.5 s a character is babbling: English is 0.07 s a character, Mandarin 0.25,
a lone digit of a number up to 0.45."""

BACK_OFF_FIRST_S = 1.0
BACK_OFF_MAX_S = 60.0
"""A broken engine is left alone this long, doubling, so that each clause does not pay for finding out again."""

ABANDON_DEADLINE_S = 0.2
"""How long a cancelled engine may take to give up before it is left to end alone."""

log = logging.getLogger(__name__)


class Cause(StrEnum):
    """Why an engine was given up for a clause."""

    ERROR = "error"
    OVERLOADED = "overloaded"
    SILENT = "silent"
    OVERLONG = "overlong"
    STALLED = "stalled"
    UNSUPPORTED = "unsupported"


class _GaveUp(Exception):
    def __init__(self, cause: Cause, detail: str) -> None:
        super().__init__(detail)
        self.cause = cause


@dataclass(slots=True)
class _Health:
    failures: int = 0
    retry_at: float = 0.0

    def failed(self, now: float) -> None:
        self.retry_at = now + min(BACK_OFF_FIRST_S * 2 ** min(self.failures, 10), BACK_OFF_MAX_S)
        self.failures += 1

    def worked(self) -> None:
        self.failures = 0
        self.retry_at = 0.0


class FallbackSynthesizer:
    """Speaks with the first engine that can, in the order given.

    An engine that has the voice asked for goes first; the others stand in with their default voice for the language.
    An engine is given up within a clause when it raises, makes no sound for text that has letters, speaks longer than
    1 s + 0.5 s a character, or takes longer than a deadline for a piece. What was already yielded is never said
    again: the next engine begins at the first word that was not.

    Args:
        engines: at least one, of one sample rate. Owned: `close` closes them.
        first_deadline_s: for the first piece, by engine name; 2 s for those not in it.
        next_deadline_s: for each later piece.
        default_names: voice names that stand for each engine's default voice, beside the empty name.
        now: a monotonic clock in seconds.

    Raises ConfigError if there is no engine, or their sample rates differ.
    """

    def __init__(
        self,
        engines: Sequence[Synthesizer],
        *,
        first_deadline_s: Mapping[str, float] | None = None,
        next_deadline_s: float = NEXT_PIECE_DEADLINE_S,
        default_names: Collection[str] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        if not engines:
            raise ConfigError("tts: no engine was given")
        rates = {engine.info.sample_rate_hz for engine in engines}
        if len(rates) > 1:
            raise ConfigError(f"tts: engines speak at different rates: {sorted(rates)} Hz")
        self._engines = tuple(engines)
        self._first_deadline_s = dict(first_deadline_s or {})
        self._next_deadline_s = next_deadline_s
        self._default_names = frozenset(default_names) | {""}
        self._now = now
        self._health = [_Health() for _ in engines]
        self._abandoned: set[asyncio.Task[Speech | None]] = set()
        self.failovers: Counter[tuple[str, Cause]] = Counter()
        """How often which engine was given up, by cause."""

    @property
    def info(self) -> EngineInfo:
        """The first engine's, with the languages and voices of all."""
        first = self._engines[0].info
        languages = dict.fromkeys(tag for engine in self._engines for tag in engine.info.languages)
        voices = dict.fromkeys(name for engine in self._engines for name in engine.info.voices)
        return EngineInfo(
            first.name, first.version, first.sample_rate_hz, tuple(languages), first.streams, tuple(voices)
        )

    def engine_for(self, voice: Voice) -> EngineInfo:
        """The engine that speaks this voice while all are well; speech of another `source` is a stand-in's.

        Raises UnsupportedLanguage or UnsupportedVoice if no engine has it.
        """
        return self._engines[self._preferred(voice)[0]].info

    async def warm(self, voice: Voice) -> None:
        """Let the engine of this voice load what it needs, where it can be told to."""
        warm = getattr(self._engines[self._preferred(voice)[0]], "warm", None)
        if warm is not None:
            await warm(voice)

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        """See `Synthesizer.stream`. Each piece tells its `source`.

        Raises UnsupportedLanguage or UnsupportedVoice if no engine has it; EngineError if all of them failed.
        """
        order = self._order(voice)
        rest = plain_text(text)
        began_s = 0.0
        last = "nothing to say"
        for index in order:
            if not speakable(rest):
                break
            engine = self._engines[index]
            as_voice = self._voice_for(engine, voice)
            said = 0
            spans = word_spans(rest)
            length_s = 0.0
            try:
                # aclosing, so that a cancelled clause ends the engine's work here and not when it is collected.
                async with contextlib.aclosing(self._attempt(engine, rest, as_voice, style)) as pieces:
                    async for piece in pieces:
                        yield _shifted(piece, began_s, engine.info.identity)
                        length_s += len(piece.pcm) / engine.info.sample_rate_hz
                        said += len(piece.words)
            except _GaveUp as exc:
                self.failovers[engine.info.name, exc.cause] += 1
                if exc.cause not in (Cause.OVERLOADED, Cause.UNSUPPORTED):
                    self._health[index].failed(self._now())
                log.warning("voice engine %s given up in a clause: %s", engine.info.name, exc.cause)
                last = f"{engine.info.name}: {exc}"
                began_s += length_s
                rest = rest[spans[said][0] :] if said < len(spans) else ""
                if length_s and not said:
                    # Sound without word times: no telling where it stopped, and nothing may be said twice.
                    yield _cut_short()
                    return
                continue
            self._health[index].worked()
            return
        if speakable(rest):
            raise EngineError(f"no voice engine could speak: {last}")
        if began_s:
            # All words were said, but the engine did not end by itself.
            yield _cut_short()

    async def close(self) -> None:
        """Close all engines, whatever any of them raises."""
        for task in tuple(self._abandoned):
            task.cancel()
        results = await asyncio.gather(*(engine.close() for engine in self._engines), return_exceptions=True)
        for engine, result in zip(self._engines, results, strict=True):
            if isinstance(result, BaseException):
                log.warning("voice engine %s failed to close: %s", engine.info.name, type(result).__name__)

    def _preferred(self, voice: Voice) -> list[int]:
        speaks = [i for i, engine in enumerate(self._engines) if _speaks(engine.info, voice.language)]
        if not speaks:
            raise UnsupportedLanguage(f"no voice engine speaks {voice.language!r}")
        if voice.name not in self._default_names and voice.name not in self.info.voices:
            raise UnsupportedVoice(f"no voice engine has {voice.name!r}; there is {', '.join(self.info.voices)}")
        speaks.sort(key=lambda i: voice.name not in self._engines[i].info.voices)
        return speaks

    def _order(self, voice: Voice) -> list[int]:
        speaks = self._preferred(voice)
        now = self._now()
        ready = [i for i in speaks if self._health[i].retry_at <= now]
        # One in its back-off is still better than silence, after the others.
        return ready + [i for i in speaks if i not in ready]

    @staticmethod
    def _voice_for(engine: Synthesizer, voice: Voice) -> Voice:
        return voice if voice.name in engine.info.voices else Voice("", voice.language)

    async def _attempt(
        self, engine: Synthesizer, text: str, voice: Voice, style: Style
    ) -> AsyncGenerator[Speech, None]:
        """One engine's audible pieces; raises _GaveUp."""
        budget_s = (ALLOWANCE_S + ALLOWANCE_PER_CHAR_S * len(text)) / min(style.rate, 1.0)
        name = engine.info.name
        heard = False
        deadline_s = self._first_deadline_s.get(name, FIRST_PIECE_DEADLINE_S)
        pieces = aiter(engine.stream(text, voice, style))
        running: asyncio.Task[Speech | None] | None = None
        try:
            while True:
                running = asyncio.create_task(_next(pieces), name=f"tts-{name}")
                done, _ = await asyncio.wait({running}, timeout=deadline_s)
                if not done:
                    raise _GaveUp(Cause.STALLED, f"no piece within {deadline_s:g} s")
                if running.cancelled():
                    # Not ours: an engine that cancels itself must not look like a caller who interrupts.
                    raise _GaveUp(Cause.ERROR, "it cancelled itself")
                piece = running.result()
                running = None
                if piece is None:
                    break
                budget_s -= len(piece.pcm) / engine.info.sample_rate_hz
                if budget_s < 0:
                    raise _GaveUp(Cause.OVERLONG, "more speech than the text can hold")
                if audible(piece.pcm):
                    heard = True
                    yield piece
                deadline_s = self._next_deadline_s
        except (_GaveUp, asyncio.CancelledError, GeneratorExit):
            raise
        except (UnsupportedLanguage, UnsupportedVoice) as exc:
            raise _GaveUp(Cause.UNSUPPORTED, str(exc)) from exc
        except EngineOverloaded as exc:
            raise _GaveUp(Cause.OVERLOADED, str(exc)) from exc
        except Exception as exc:
            # A foreign exception's text may quote what was to be said, and ends up in logs.
            what = str(exc) if isinstance(exc, RejoinderError) else type(exc).__name__
            raise _GaveUp(Cause.ERROR, what) from exc
        finally:
            await self._end(pieces, running)
        if not heard:
            raise _GaveUp(Cause.SILENT, "no sound for text with letters")

    async def _end(self, pieces: AsyncIterator[Speech], running: asyncio.Task[Speech | None] | None) -> None:
        if running is not None and not running.done():
            running.cancel()
            self._abandoned.add(running)
            running.add_done_callback(self._collect)
            await asyncio.wait({running}, timeout=ABANDON_DEADLINE_S)
            if not running.done():
                # It ignores cancellation; its iterator cannot be closed while it runs.
                return
        aclose = getattr(pieces, "aclose", None)
        if aclose is None:
            return
        try:
            async with asyncio.timeout(ABANDON_DEADLINE_S):
                await aclose()
        except Exception as exc:
            log.warning("a voice engine failed to stop: %s", type(exc).__name__)

    def _collect(self, task: asyncio.Task[Speech | None]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.info("an abandoned voice engine ended with %s", type(error).__name__)


async def _next(pieces: AsyncIterator[Speech]) -> Speech | None:
    try:
        return await anext(pieces)
    except StopAsyncIteration:
        return None


def _speaks(info: EngineInfo, language: str) -> bool:
    wanted = primary_language(language)
    return any(primary_language(tag) == wanted for tag in info.languages)


def _cut_short() -> Speech:
    return Speech(np.zeros(0, np.int16), (), CUT_SHORT)


def _shifted(piece: Speech, by_s: float, source: str) -> Speech:
    words = tuple(Word(w.text, w.start_s + by_s, w.end_s + by_s) for w in piece.words) if by_s else piece.words
    return Speech(piece.pcm, words, source)
