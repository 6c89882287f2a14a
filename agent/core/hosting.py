"""One stream of an edge, served by an engine of this process: a caller's turn to read, or clauses to speak."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Protocol, cast

import numpy as np

from agent.asr.protocol import Recognizer
from agent.core.codec import MAX_PCM_BYTES
from agent.core.messages import (
    Ack,
    Audio,
    Cancel,
    Evidence,
    Fault,
    FaultCode,
    Final,
    Message,
    Open,
    Partial,
    Read,
    SpeechOut,
    Text,
    Urge,
)
from agent.core.urgency import Urgency, urgency
from agent.errors import EngineError, EngineOverloaded, ProtocolError, UnsupportedLanguage, UnsupportedVoice
from agent.listening.silero import VadEngine
from agent.listening.sound import TurnSound
from agent.media.frames import HEARING_SAMPLES
from agent.tts.protocol import Speech, Style, Synthesizer, Voice

__all__ = ["Host", "HostedStream", "RecognitionStream", "SynthesisStream", "fault_of"]

MAX_TASKS = 8
"""Readings or clauses of one stream that may be under way: a call has one or two."""

CREDITS = 8
"""Frames that may be on the way unacknowledged (160 ms); what a slow core answers here is of `credits`."""

ACK_EVERY = 2
"""Frames an acknowledgement; one that is missing is noticed within 40 ms and not each frame costs a message."""

ROOM_DEADLINE_S = 5.0

log = logging.getLogger(__name__)


class Host(Protocol):
    """What a stream needs of the session it belongs to."""

    def send(self, message: Message) -> None:
        """To the edge. Raises EngineError when that is not possible."""

    async def room(self, deadline_s: float) -> None:
        """Wait until more than a frame can be sent. Raises EngineError."""


class HostedStream(Protocol):
    """A stream under way."""

    def take(self, message: Message) -> None:
        """A message of the edge that names this stream."""

    def tick(self) -> None:
        """Called every 20 ms: tell what is new."""

    async def close(self) -> None:
        """Drop all work. Idempotent."""


class _Tasks:
    """The tasks of one stream by generation."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._running: dict[int, asyncio.Task[None]] = {}

    def start(self, generation: int, work: Coroutine[Any, Any, None]) -> bool:
        """False when there are too many, or the generation is already running; `work` is closed then."""
        if len(self._running) >= MAX_TASKS or generation in self._running:
            work.close()
            return False
        task = asyncio.create_task(work, name=f"{self._name}.{generation}")
        self._running[generation] = task
        task.add_done_callback(lambda done: self._ended(generation, done))
        return True

    def cancel(self, generation: int) -> None:
        """End this generation and those before it."""
        for number, task in self._running.items():
            if number <= generation:
                task.cancel()

    async def close(self) -> None:
        tasks = tuple(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _ended(self, generation: int, task: asyncio.Task[None]) -> None:
        self._running.pop(generation, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a stream's work failed", exc_info=error)


class RecognitionStream:
    """A turn of a caller.

    Args:
        opened: what the edge asked for.
        recognizer: of the shard.
        host: the session.
        vad: tells speech from other sound if the edge asked to listen; None where none is loaded.
        sound: judges the sound of the turn beside each final, if the edge asked to listen.
        credits: how many frames may be on the way.

    Raises UnsupportedLanguage and EngineError of the engine.
    """

    def __init__(
        self,
        opened: Open,
        recognizer: Recognizer,
        host: Host,
        *,
        vad: VadEngine | None = None,
        sound: TurnSound | None = None,
        credits: Callable[[], int] = lambda: CREDITS,
    ) -> None:
        self._number = opened.stream
        self._host = host
        self._credits = credits
        self._stream = recognizer.stream(language=opened.language, hints=opened.hints)
        self._sequence = 0
        self._acked = 0
        self._told_revision = 0
        self._tasks = _Tasks(f"asr {opened.stream}")
        self._speech: float | None = None
        self._speech_told: float | None = None
        self._spare = np.zeros(0, np.int16)
        self._sound = sound if opened.listen else None
        self._vad = vad.open(self._on_probability, self._on_vad_failure) if vad is not None and opened.listen else None

    def take(self, message: Message) -> None:
        """Audio, Read or Cancel."""
        match message:
            case Audio(sequence=sequence, pcm=pcm):
                self._sequence = sequence
                samples = np.frombuffer(pcm, "<i2").astype(np.int16, copy=False)
                self._stream.push(samples)
                if self._sound is not None:
                    self._sound.push(samples)
                if self._vad is not None:
                    self._listen(samples)
            case Read(generation=generation):
                if not self._tasks.start(generation, self._read(generation)):
                    self._fault(generation, FaultCode.OVERLOADED, f"{MAX_TASKS} readings of this turn are under way")
            case Cancel(generation=generation):
                self._tasks.cancel(generation)
            case _:
                self._fault(0, FaultCode.BAD_MESSAGE, f"{type(message).__name__} is not for recognition")

    def tick(self) -> None:
        """Acknowledge, tell a newer partial and the detector's newest answer."""
        if self._sequence - self._acked >= ACK_EVERY or (self._sequence > self._acked and self._sequence == 1):
            self._acked = self._sequence
            self._host.send(Ack(self._number, self._sequence, self._credits()))
        read = self._stream.partial()
        if read.revision != self._told_revision:
            self._told_revision = read.revision
            self._host.send(Partial(self._number, self._sequence, read))
        if self._speech != self._speech_told:
            self._speech_told = self._speech
            self._host.send(Evidence(self._number, self._sequence, self._speech))

    async def close(self) -> None:
        """Drop the turn."""
        if self._vad is not None:
            self._vad.close()
        self._stream.close()
        await self._tasks.close()

    def _listen(self, samples: np.ndarray[Any, np.dtype[np.int16]]) -> None:
        assert self._vad is not None
        waiting = np.concatenate([self._spare, samples]) if len(self._spare) else samples
        whole = len(waiting) // HEARING_SAMPLES * HEARING_SAMPLES
        for at in range(0, whole, HEARING_SAMPLES):
            self._vad.push(waiting[at : at + HEARING_SAMPLES].copy())
        self._spare = waiting[whole:].copy()

    def _on_probability(self, probability: float, _end_sample: int) -> None:
        self._speech = probability

    def _on_vad_failure(self, _error: EngineError) -> None:
        # The edge hears by its own means; the engine has logged and counted it.
        self._speech = None

    async def _read(self, generation: int) -> None:
        judging = None if self._sound is None else asyncio.create_task(self._sound.judge(), name="turn's sound")
        try:
            read = await self._stream.final()
            if judging is not None:
                read = replace(read, sound=await judging)
        except EngineError as exc:
            self._fault(generation, fault_of(exc), str(exc))
            return
        finally:
            if judging is not None:
                judging.cancel()
        self._told_revision = max(self._told_revision, read.revision)
        _send(self._host, Final(self._number, generation, read))

    def _fault(self, generation: int, code: FaultCode, text: str) -> None:
        _send(self._host, Fault(self._number, generation, code, text))


class SynthesisStream:
    """Clauses to speak.

    Args:
        opened: what the edge asked for.
        synthesizer: of the shard.
        host: the session.
    """

    def __init__(self, opened: Open, synthesizer: Synthesizer, host: Host) -> None:
        self._number = opened.stream
        self._synthesizer = synthesizer
        self._host = host
        self._tasks = _Tasks(f"tts {opened.stream}")
        self._urgencies: dict[int, Urgency] = {}

    def take(self, message: Message) -> None:
        """Text, Urge or Cancel."""
        match message:
            case Text(generation=generation):
                if not self._tasks.start(generation, self._speak(message)):
                    self._fault(generation, FaultCode.OVERLOADED, f"{MAX_TASKS} clauses of this stream are under way")
            case Urge(generation=generation, priority=priority):
                if generation in self._urgencies:
                    self._urgencies[generation].priority = priority
            case Cancel(generation=generation):
                self._tasks.cancel(generation)
            case _:
                self._fault(0, FaultCode.BAD_MESSAGE, f"{type(message).__name__} is not for synthesis")

    def tick(self) -> None:
        """Speech is sent as it is made."""

    async def close(self) -> None:
        """Drop what is being made."""
        await self._tasks.close()

    async def _speak(self, asked: Text) -> None:
        urgent = self._urgencies[asked.generation] = Urgency(asked.priority)
        urgency.set(urgent)
        voice, style = Voice(asked.voice, asked.language), Style(asked.rate, asked.instruction)
        try:
            # An engine's stream is an async generator; closing it ends the engine's work here.
            pieces = cast("Any", self._synthesizer.stream(asked.text, voice, style))
            async with aclosing(pieces):
                await self._send_all(asked, pieces)
        except EngineError as exc:
            self._fault(asked.generation, fault_of(exc), str(exc))
        finally:
            self._urgencies.pop(asked.generation, None)

    async def _send_all(self, asked: Text, pieces: AsyncIterator[Speech]) -> None:
        async for piece in pieces:
            data = piece.pcm.astype("<i2", copy=False).tobytes()
            at = 0
            while len(data) - at > MAX_PCM_BYTES:
                await self._host.room(ROOM_DEADLINE_S)
                part = data[at : at + MAX_PCM_BYTES]
                self._host.send(SpeechOut(self._number, asked.generation, part, more=True))
                at += MAX_PCM_BYTES
            await self._host.room(ROOM_DEADLINE_S)
            self._host.send(SpeechOut(self._number, asked.generation, data[at:], piece.words, piece.source))
        self._host.send(SpeechOut(self._number, asked.generation, b"", last=True))

    def _fault(self, generation: int, code: FaultCode, text: str) -> None:
        _send(self._host, Fault(self._number, generation, code, text))


def fault_of(error: EngineError) -> FaultCode:
    """How an engine's error is told to the edge."""
    match error:
        case UnsupportedLanguage():
            return FaultCode.UNSUPPORTED_LANGUAGE
        case UnsupportedVoice():
            return FaultCode.UNSUPPORTED_VOICE
        case EngineOverloaded():
            return FaultCode.OVERLOADED
        case _:
            return FaultCode.FAILED


def _send(host: Host, message: Message) -> None:
    """Send an answer; an edge that is gone or takes nothing needs none."""
    try:
        host.send(message)
    except EngineError as exc:
        log.debug("an answer could not be sent: %s", type(exc).__name__)
    except ProtocolError as exc:
        log.warning("an answer is too long to be sent: %s", exc)
