"""The same engines without threads and without time: each answers at once, or after a time that was stated.

Detector, recogniser and voice compute on the loop's own thread, so that results come in one order only. A hook may wait
for the world outside; what waits is counted, so that the clock can stand still meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

import numpy.typing as npt

from agent.asr.protocol import EngineInfo, Hypothesis, Recognizer, RecognizerStream
from agent.core.pool import Priority, WorkerPool
from agent.listening.graph import VadGraph
from agent.listening.silero import VadEngine, _Job
from agent.nlu.hook import Action, Nlu, Turn
from agent.nlu.spread import spread
from agent.nlu.threads import SHARED
from agent.replay.loop import VirtualLoop
from agent.tts.protocol import Discreet, Speech, Style, Synthesizer, Voice

__all__ = ["ComputeModel", "InlinePool", "InlineVad", "Waiting", "timed_nlu", "timed_recognizer", "timed_synthesizer"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ComputeModel:
    """How long things take in a replay, in seconds of its clock. Zero: results are there at once."""

    asr_final_s: float = 0.0
    hook_first_s: float = 0.0
    """Until a hook's first piece; a hook that waits for a clock of its own adds to it."""
    voice_first_s: float = 0.0
    """Until a clause's first sound."""


class InlinePool(WorkerPool):
    """A pool that runs each job at once, on the loop's thread."""

    def __init__(self) -> None:
        super().__init__(1, name="replay")

    def start(self) -> None:
        """Nothing to start."""

    async def run(
        self,
        fn: Callable[..., T],
        *args: Any,
        owner: Hashable,  # noqa: ARG002
        priority: Priority = Priority.NORMAL,  # noqa: ARG002
        deadline_s: float | None = None,  # noqa: ARG002
    ) -> T:
        """`fn(*args)`; raises what it raises."""
        return fn(*args)


class InlineVad(VadEngine):
    """A detector that judges each window when it is handed over."""

    _graph: VadGraph

    async def __aenter__(self) -> InlineVad:
        self._graph = self._load(self._file)
        self.running = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running = False

    def _queue_window(self, job: _Job) -> None:
        self._run(self._graph, [job])
        job.stream._settle(job)


class Waiting:
    """What of a call is waiting for hooks and voices."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.hooks = 0
        self.voices = 0

    def outside(self) -> bool:
        """Whether that is for the world outside. A hook that only sleeps has neither a socket nor a thread."""
        return self.voices > 0 or (self.hooks > 0 and (self._loop.has_channels or SHARED.busy > 0))


class _TimedNlu:
    def __init__(self, nlu: Nlu, waiting: Waiting, model: ComputeModel) -> None:
        self._nlu = nlu
        self._waiting = waiting
        self._model = model

    async def reply(self, turn: Turn) -> AsyncIterator[str | Action]:
        first = True
        async with aclosing(spread(self._nlu.reply(turn))) as items:
            while True:
                self._waiting.hooks += 1
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                finally:
                    self._waiting.hooks -= 1
                if first and self._model.hook_first_s:
                    await asyncio.sleep(self._model.hook_first_s)
                first = False
                yield item

    def __getattr__(self, name: str) -> Any:
        return getattr(self._nlu, name)


class _TimedSynthesizer:
    def __init__(self, synthesizer: Synthesizer, waiting: Waiting, model: ComputeModel) -> None:
        self._synthesizer = synthesizer
        self._waiting = waiting
        self._model = model

    @property
    def info(self) -> EngineInfo:
        return self._synthesizer.info

    def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        return self._timed(self._synthesizer.stream(text, voice, style))

    async def _timed(self, speech: AsyncIterator[Speech]) -> AsyncIterator[Speech]:
        first = True
        pieces = aiter(speech)
        while True:
            self._waiting.voices += 1
            try:
                piece = await anext(pieces)
            except StopAsyncIteration:
                return
            finally:
                self._waiting.voices -= 1
            if first and self._model.voice_first_s:
                await asyncio.sleep(self._model.voice_first_s)
            first = False
            yield piece

    async def close(self) -> None:
        await self._synthesizer.close()


class _TimedDiscreet(_TimedSynthesizer):
    """One that can be told not to store what it says."""

    def privately(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        assert isinstance(self._synthesizer, Discreet)
        return self._timed(self._synthesizer.privately(text, voice, style))


class _TimedRecognizer:
    def __init__(self, recognizer: Recognizer, model: ComputeModel) -> None:
        self._recognizer = recognizer
        self._model = model

    @property
    def info(self) -> EngineInfo:
        return self._recognizer.info

    def stream(self, *, language: str, hints: Sequence[str] = ()) -> RecognizerStream:
        return _TimedStream(self._recognizer.stream(language=language, hints=hints), self._model.asr_final_s)

    async def close(self) -> None:
        await self._recognizer.close()


class _TimedStream:
    def __init__(self, stream: RecognizerStream, final_s: float) -> None:
        self._stream = stream
        self._final_s = final_s

    def push(self, pcm: npt.NDArray[Any]) -> None:
        self._stream.push(pcm)

    def partial(self) -> Hypothesis:
        return self._stream.partial()

    async def final(self) -> Hypothesis:
        if self._final_s:
            await asyncio.sleep(self._final_s)
        return await self._stream.final()

    def close(self) -> None:
        self._stream.close()


def timed_nlu(nlu: Nlu, waiting: Waiting, model: ComputeModel) -> Nlu:
    """The hook, counted while it is waited for."""
    return _TimedNlu(nlu, waiting, model)


def timed_synthesizer(synthesizer: Synthesizer, waiting: Waiting, model: ComputeModel) -> Synthesizer:
    """The voice, counted while it is waited for."""
    kind = _TimedDiscreet if isinstance(synthesizer, Discreet) else _TimedSynthesizer
    return kind(synthesizer, waiting, model)


def timed_recognizer(recognizer: Recognizer, model: ComputeModel) -> Recognizer:
    """The recogniser, whose finals take the stated time."""
    return _TimedRecognizer(recognizer, model)
