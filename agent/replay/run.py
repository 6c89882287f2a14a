"""Runs a recorded call again: the same packets at the same moments, through the whole stack, as fast as it computes.

What comes out depends on the packets, the settings, the hook and the models, and on nothing else: not on the machine's
speed, and not on chance, unless a hook brings chance in.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from agent import models
from agent.app import open_parts
from agent.asr.rereading import RereadingRecognizer
from agent.call import Call
from agent.config import Settings
from agent.errors import MediaError, NotInterruptible, ProtocolError
from agent.events import CallEvent
from agent.listening.silero import MODEL_FILE
from agent.media.frames import Pcm
from agent.media.tap import MediaTap
from agent.nlu.hook import Channel, Session
from agent.observe.metrics import Metrics
from agent.parts import CallParts
from agent.recording.calls import announced
from agent.recording.clock import PacerClock
from agent.recording.packets import Kind, PacketLog, Record
from agent.recording.timeline import event_line, read_timeline
from agent.replay.engines import (
    ComputeModel,
    InlinePool,
    InlineVad,
    Waiting,
    timed_nlu,
    timed_recognizer,
    timed_synthesizer,
)
from agent.replay.loop import VirtualLoop
from agent.replay.port import Replayed, open_port

__all__ = ["OVER", "replay", "replay_call"]

log = logging.getLogger(__name__)

OVER = "recording ended"
"""Why a replayed call ends that would have gone on beyond its recording."""

OURS = frozenset({"agent hung up", "transferred", "idle", "maximum call time", "internal error"})
"""Ends that a replay must come to by itself."""

END_DEADLINE_S = 30.0

MAX_BEFORE_S = 3600.0
"""Between a call's beginning and the first thing in its log; a few milliseconds in truth."""

AT_ONCE = ComputeModel()


def replay(
    log_: PacketLog, settings: Settings, *, model: ComputeModel = AT_ONCE, tap: MediaTap | None = None
) -> list[dict[str, Any]]:
    """Replay a call on the engines and the hook of `settings`; blocks. Returns a timeline's rows.

    Args:
        model: how long engines take on the call's clock.
        tap: sees the replayed frames.

    Raises ConfigError and EnvironmentFault as the server does, MediaError when the log cannot be replayed.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_replay(log_, settings, model, tap))


async def _replay(
    log_: PacketLog, settings: Settings, model: ComputeModel, tap: MediaTap | None
) -> list[dict[str, Any]]:
    # What an earlier call left in the cache must not decide what is heard in this one.
    settings = settings.model_copy(update={"cache": settings.cache.model_copy(update={"enabled": False})})
    async with AsyncExitStack() as stack:
        pool = InlinePool()
        vad = InlineVad(models.require("silero-vad", settings.models) / MODEL_FILE)
        parts = await open_parts(stack, settings, Metrics(), pool=pool, vad=vad)
        return await replay_call(log_, parts, model=model, tap=tap)


async def replay_call(
    log_: PacketLog, parts: CallParts, *, model: ComputeModel = AT_ONCE, tap: MediaTap | None = None
) -> list[dict[str, Any]]:
    """Replay a call on given parts, inside a VirtualLoop. Raises MediaError."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    port = open_port(log_.head, parts.settings.media)
    if not log_.records:
        raise MediaError("packet log: nothing came in during this call")
    waiting = Waiting(loop)
    if isinstance(parts.recognizer, RereadingRecognizer):
        parts.recognizer.clock = loop.time
    parts = replace(
        parts,
        nlu=timed_nlu(parts.nlu, waiting, model),
        recognizer=timed_recognizer(parts.recognizer, model),
        synthesizer=timed_synthesizer(parts.synthesizer, waiting, model),
        # What was learned of the call when it took place must not be learned twice.
        foresight=None,
    )
    loop.outside = waiting.outside
    loop.freeze(_clock(log_))
    try:
        return await _Stage(log_, announced(parts, str(log_.head.get("announcement", ""))), port, loop, tap).run()
    finally:
        loop.thaw()


def _clock(log_: PacketLog) -> float:
    """When the call began, on its clock."""
    first = log_.records[0].at
    clock = log_.head.get("clock", first)
    if not isinstance(clock, int | float) or not first - MAX_BEFORE_S <= clock <= first + MAX_BEFORE_S:
        raise MediaError(f"packet log: its head does not say when the call began: {clock!r}")
    return float(clock)


def _session(head: Mapping[str, Any]) -> Session:
    channel, caller = head.get("channel", "websocket"), head.get("caller")
    if channel not in get_args(Channel) or not isinstance(caller, str | None):
        raise MediaError(f"packet log: its head does not describe the call: channel {channel!r}, caller {caller!r}")
    return Session(
        id=str(head.get("call", "replay")),
        channel=channel,
        language=str(head.get("language", "en")),
        caller=caller,
    )


class _Stage:
    """One replayed call."""

    def __init__(
        self, log_: PacketLog, parts: CallParts, port: Replayed, loop: VirtualLoop, tap: MediaTap | None
    ) -> None:
        self._log = log_
        self._port = port
        self._loop = loop
        self._rows: list[bytes] = []
        session = _session(log_.head)
        self._watch = _Watch(tap)
        self._started = loop.time()
        port.tap = self._watch
        self._call = Call(parts, port=port, session=session, observer=self._observe, now=loop.time)

    async def run(self) -> list[dict[str, Any]]:
        running = asyncio.create_task(self._call.run(), name="replay")
        try:
            await self._play()
            self._call.hangup(OVER)
            async with asyncio.timeout(END_DEADLINE_S):
                await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        return _parse(self._rows)

    def _observe(self, event: CallEvent) -> None:
        at_ms = (self._loop.time() - self._started) * 1000
        self._rows.append(event_line(event, t_ms=self._watch.clock.t_ms, at_ms=at_ms))

    async def _play(self) -> None:
        for record in self._log.records:
            if record.at > self._loop.time():
                await self._until(record.at)
            if self._call.end_reason is not None:
                return
            self._feed(record)

    async def _until(self, at: float) -> None:
        reached: asyncio.Future[None] = self._loop.create_future()
        self._loop.script(at, partial(reached.set_result, None))
        await reached

    def _feed(self, record: Record) -> None:
        match record.kind:
            case Kind.PACKET:
                self._port.packet(record.data, record.at)
            case Kind.TICK:
                self._port.run_tick(record.tick, record.at)
            case Kind.COMMAND:
                self._perform(record.body)
            case Kind.END:
                reason = str(record.body.get("reason", OVER))
                self._call.hangup(OVER if reason in OURS else reason)

    def _perform(self, command: Mapping[str, Any]) -> None:
        call = self._call
        try:
            match command.get("do"):
                case "type":
                    call.type_text(str(command["text"]))
                case "press":
                    call.press(str(command["digit"]))
                case "cancel":
                    call.cancel_reply()
                case "respond":
                    call.respond(command.get("data"))
                case "configure":
                    call.configure(
                        voice=command["voice"], language=command["language"], silence_ms=command["silence_ms"]
                    )
                case other:
                    raise MediaError(f"packet log: there is no command {other!r}")
        except KeyError as exc:
            raise MediaError(f"packet log: a command lacks {exc}") from exc
        except (NotInterruptible, ProtocolError):
            # It was refused in the call too, or is now: the caller is told, and the call goes on.
            log.debug("a recorded command was refused")


class _Watch:
    """Keeps the recording's clock, and lets whoever looks on see the frames."""

    def __init__(self, tap: MediaTap | None) -> None:
        self.clock = PacerClock()
        self._tap = tap

    def on_packet(self, data: bytes, now: float) -> None:
        if self._tap is not None:
            self._tap.on_packet(data, now)

    def on_tick(self, tick: int, now: float, agent: Pcm | None, caller: Sequence[Pcm]) -> None:
        self.clock.advance(tick)
        if self._tap is not None:
            self._tap.on_tick(tick, now, agent, caller)


def _parse(rows: list[bytes]) -> list[dict[str, Any]]:
    head = b'{"format": "rejoinder.events", "version": 1}\n'
    return read_timeline(head + b"".join(rows))[1]
