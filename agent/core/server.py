"""The core: serves engines to the edges that are linked to it. Knows no transport and loads no model."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agent.asr.protocol import EngineInfo, Recognizer
from agent.core.coremetrics import CoreMetrics
from agent.core.hosting import CREDITS, HostedStream, RecognitionStream, SynthesisStream, fault_of
from agent.core.link import Link
from agent.core.messages import Close, Fault, FaultCode, GoAway, Hello, Message, Model, Open
from agent.errors import EngineError, ProtocolError, RejoinderError
from agent.listening.silero import VadEngine
from agent.listening.sound import TurnSound
from agent.media.frames import FRAME_MS
from agent.tts.protocol import Synthesizer

__all__ = ["CoreServer", "Shard"]

MAX_LINKS = 64
"""Edges of one core."""

GREETING_DEADLINE_S = 5.0
TICK_S = FRAME_MS / 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Shard:
    """An engine under the name that edges ask for it by, and how many streams it can carry."""

    name: str
    engine: Recognizer | Synthesizer
    capacity: int

    @property
    def info(self) -> EngineInfo:
        """The engine's."""
        return self.engine.info

    @property
    def model(self) -> Model:
        """As it is told in a Hello."""
        return Model(self.name, self.engine.info, self.capacity)


class CoreServer:
    """Takes links (`accept`), serves their streams, and drains.

    Args:
        name: told to edges, for their logs.
        shards: by name: `asr:LANGUAGE`, `tts:VOICE`.
        metrics: counts.
        vad: for edges that ask for evidence beside the words.
        turn_sound: makes what judges the sound of a turn, for the same edges.
        credits: frames a stream may have on the way, asked for with each acknowledgement.
    """

    def __init__(
        self,
        name: str,
        shards: Mapping[str, Shard],
        metrics: CoreMetrics,
        *,
        vad: VadEngine | None = None,
        turn_sound: Callable[[], TurnSound | None] = lambda: None,
        credits: Callable[[], int] = lambda: CREDITS,
    ) -> None:
        self.hello = Hello(name, tuple(shard.model for shard in shards.values()))
        self.shards = shards
        self.metrics = metrics
        self.vad = vad
        self.turn_sound = turn_sound
        self.credits = credits
        self.draining = False
        self._sessions: dict[_Session, asyncio.Task[None]] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self._open: dict[str, int] = dict.fromkeys(shards, 0)
        for shard in shards.values():
            metrics.capacity(shard.name, shard.capacity)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = list(self._sessions.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def streams(self) -> int:
        """Streams that are open, of all edges and shards."""
        return sum(self._open.values())

    def serving(self, service: str) -> bool | None:
        """Whether a shard, or with an empty name the core, takes new streams; None for an unknown name."""
        if service and service not in self.shards:
            return None
        if self.draining:
            return False
        return not service or self._open[service] < self.shards[service].capacity

    def accept(self, link: Link) -> None:
        """Serve a new link, which is owned from here on."""
        session = _Session(self, link)
        self._sessions[session] = asyncio.create_task(self._run(session), name=f"core {link.name}")

    async def drain(self, patience_s: float, hurry: asyncio.Event) -> None:
        """Take no new streams and wait until those there are have ended, at most `patience_s` or until `hurry`."""
        self.draining = True
        for session in self._sessions:
            session.go_away("the core is stopping", patience_s)
        waits = {asyncio.create_task(event.wait()) for event in (self._empty, hurry)}
        try:
            await asyncio.wait(waits, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def full(self) -> bool:
        """Whether no further link is taken."""
        return len(self._sessions) > MAX_LINKS

    def opened(self, shard: str) -> None:
        """A stream began."""
        self._open[shard] += 1
        self._empty.clear()
        self.metrics.streams(shard, self._open[shard])

    def closed(self, shard: str) -> None:
        """A stream ended."""
        self._open[shard] -= 1
        self.metrics.streams(shard, self._open[shard])
        if not self.streams:
            self._empty.set()

    def room(self, shard: str) -> bool:
        """Whether one more stream can be carried."""
        return self._open[shard] < self.shards[shard].capacity

    async def _run(self, session: _Session) -> None:
        try:
            await session.run()
        except RejoinderError as exc:
            log.warning("an edge was turned away: %s", exc)
        finally:
            del self._sessions[session]
            self.metrics.links(len(self._sessions))


class _Session:
    """One edge's streams. Host of them all."""

    def __init__(self, core: CoreServer, link: Link) -> None:
        self._core = core
        self._link = link
        self._streams: dict[int, tuple[str, HostedStream]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._lost = asyncio.Event()
        self._greeted = False
        self._timer: asyncio.TimerHandle | None = None

    async def run(self) -> None:
        """Greet, serve until the link is lost, clean up. Raises CoreLost and EnvironmentFault of the greeting."""
        try:
            await self._link.welcome(self._core.hello, GREETING_DEADLINE_S)
            if self._core.full():
                self._tell(Fault(0, 0, FaultCode.OVERLOADED, f"{MAX_LINKS} edges are linked already"))
                return
            self._greeted = True
            self._core.metrics.links(len(self._core._sessions))
            log.info("an edge is linked", extra={"link": self._link.name, "edge": self._link.peer.name})
            self._link.start(self._on_batch, self._on_lost)
            if self._core.draining:
                self.go_away("the core is stopping", 0.0)
            await self._lost.wait()
        finally:
            if self._timer is not None:
                self._timer.cancel()
            streams = list(self._streams.values())
            self._streams.clear()
            await asyncio.gather(*self._closing, *(stream.close() for _, stream in streams), return_exceptions=True)
            for shard, _ in streams:
                self._core.closed(shard)
            await self._link.close()

    def go_away(self, reason: str, grace_s: float) -> None:
        """Ask the edge to open nothing new here."""
        if self._greeted:
            self._tell(GoAway(reason, round(grace_s * 1000)))

    def send(self, message: Message) -> None:
        """See Host."""
        self._link.send(message)

    async def room(self, deadline_s: float) -> None:
        """See Host."""
        await self._link.room(deadline_s)

    def _on_lost(self, reason: str) -> None:
        log.info("an edge is gone", extra={"link": self._link.name, "reason": reason})
        self._lost.set()

    def _on_batch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, Open):
                self._open(message)
                continue
            number = getattr(message, "stream", 0)
            found = self._streams.get(number)
            if found is None:
                # Late messages of a stream that was refused or has ended.
                continue
            if isinstance(message, Close):
                self._close(number)
            else:
                found[1].take(message)

    def _open(self, asked: Open) -> None:
        core = self._core
        shard = core.shards.get(asked.shard)
        code, text = FaultCode.OVERLOADED, ""
        if shard is None:
            code, text = FaultCode.UNKNOWN_SHARD, f"no shard {asked.shard!r}; there is {', '.join(core.shards)}"
        elif asked.stream in self._streams:
            code, text = FaultCode.BAD_MESSAGE, f"stream {asked.stream} is open already"
        elif core.draining:
            text = "the core is stopping"
        elif not core.room(asked.shard):
            text = f"{asked.shard}: all {shard.capacity} streams are in use"
        else:
            try:
                self._streams[asked.stream] = (asked.shard, self._begin(asked, shard))
            except EngineError as exc:
                code, text = fault_of(exc), str(exc)
            else:
                core.opened(asked.shard)
                self._arm()
        if text:
            core.metrics.refused(asked.shard if shard is not None else "unknown", code)
            self._tell(Fault(asked.stream, 0, code, text))

    def _begin(self, asked: Open, shard: Shard) -> HostedStream:
        if asked.shard.startswith("asr:"):
            recognizer: Recognizer = shard.engine  # type: ignore[assignment]  # named so by whoever built the shard
            core = self._core
            sound = core.turn_sound() if asked.listen else None
            return RecognitionStream(asked, recognizer, self, vad=core.vad, sound=sound, credits=core.credits)
        synthesizer: Synthesizer = shard.engine  # type: ignore[assignment]
        return SynthesisStream(asked, synthesizer, self)

    def _close(self, number: int) -> None:
        shard, stream = self._streams.pop(number)
        task = asyncio.create_task(stream.close(), name=f"close {number}")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)
        self._core.closed(shard)

    def _tell(self, message: Message) -> None:
        try:
            self._link.send(message)
        except EngineError as exc:
            log.info("an edge could not be told", extra={"link": self._link.name, "reason": str(exc)})

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        began = time.monotonic()
        for _, stream in tuple(self._streams.values()):
            try:
                stream.tick()
            except (EngineError, ProtocolError) as exc:
                # No room for news, or too long: the next tick has newer ones.
                log.debug("news could not be sent: %s", type(exc).__name__)
        self._core.metrics.tick(time.monotonic() - began)
        if self._streams and not self._lost.is_set():
            self._arm()
