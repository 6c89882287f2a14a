"""A call over a stream of audio and messages, whatever carries it and however it words them.

The shell only: bounded queues, back-pressure, deadlines and the order of things. What goes over the line is a `Wire`,
what it means is a `Dialect`; the PCM WebSocket, the Twilio shape and both bridges of Asterisk are pairs of these.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from agent.errors import NotInterruptible, ProtocolError, RejoinderError
from agent.events import CallEnded, CallEvent, OutputCleared, OutputPaused, TransferRequested
from agent.observe.logs import CallLogger, call_logger
from signaling.commands import ClientCommand
from signaling.departure import departure
from signaling.limits import TokenBucket
from signaling.outbox import BYTES_PER_SAMPLE, Outbox
from signaling.ports import PEER_CLOSED, CallLike, PcmPortLike
from signaling.realtime_session import MESSAGE_BURST, MESSAGES_PER_S, perform

__all__ = ["Audio", "Dialect", "StreamedCall", "Wire"]

AUDIO_MESSAGES_PER_S = 1_000.0
"""A message of a millisecond. In smaller ones a second of audio costs the event loop of all calls half a second."""

CRUMBS_S = 0.02
"""Such a client is read in strides of this length, not message by message."""

PROBE_S = 2.0
"""How often a client from which nothing is read is asked whether it is still there."""

KEEP_ALIVE_S = 0.5
"""Asterisk's AudioSocket application gives a call up after 2 s in which neither side has said anything."""

SEND_TIMEOUT_S = 5.0
CLOSE_TIMEOUT_S = 2.0
CALL_END_TIMEOUT_S = 8.0

MAX_UNHEARD_S = 2.0
"""More is never taken back: a peer that claims to lag further than this is not believed."""

TRANSFERRED = "transferred"

LAST_WORDS_S = 2.0
"""How long the end of a call waits until the other side says that it has played all. It plays as we send, in real time,
so that only its own buffer is left then."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Audio:
    """What the caller said: mono little-endian int16 at the port's rate."""

    pcm: bytes


class Wire(Protocol):
    """A transport that keeps messages whole and in order."""

    @property
    def transport(self) -> asyncio.BaseTransport | None:
        """What lies below, to notice that the other side has gone while nothing is read."""
        ...

    async def receive(self) -> bytes | str | None:
        """The next message, or None when the other side has left; raises ProtocolError on what is no message."""
        ...

    async def send(self, item: bytes | str) -> None:
        """Raises ConnectionError."""

    async def probe(self) -> None:
        """Ask for a sign of life; raises ConnectionError."""

    async def tell(self, error: ProtocolError) -> None:
        """Say what the other side did wrong, as far as the protocol has words for it. Never raises, ends in time."""

    async def close(self, error: ProtocolError | None = None) -> None:
        """Never raises, ends in time."""


class Dialect(Protocol):
    """What messages mean. Pure but for the state of its own protocol."""

    @property
    def held(self) -> bool:
        """True while the other side asks for no more audio."""
        ...

    @property
    def unplayed(self) -> int:
        """Samples that went out and that the other side is known not to have played; 0 where it does not tell."""
        ...

    def read(self, message: bytes | str) -> Audio | ClientCommand | None:
        """What a message says; None if that is nothing for the call. Raises ProtocolError naming the field."""
        ...

    def speak(self, pcm: bytes) -> Sequence[bytes | str]:
        """One outgoing frame as messages."""
        ...

    def tell(self, event: CallEvent) -> Sequence[str]:
        """The messages that say `event`; a clear or pause of the output begins with the order to drop audio."""
        ...

    def fault(self, code: str, message: str) -> Sequence[str]:
        """The messages that refuse one command; the call goes on."""
        ...

    def keep_alive(self) -> Sequence[bytes | str]:
        """What goes out when nothing else did for `KEEP_ALIVE_S`; nothing where silence is understood."""
        ...

    def ask_played(self) -> Sequence[bytes | str]:
        """What makes the other side tell when it has played all that was sent; nothing where it cannot."""
        ...

    def farewell(self) -> Sequence[bytes | str]:
        """What goes out last, once all was played."""
        ...


class StreamedCall:
    """One connected client. `run` owns the tasks: reading, writing, noticing that it left, and the call's end."""

    def __init__(
        self,
        wire: Wire,
        dialect: Dialect,
        rate_hz: int,
        *,
        opening: Sequence[str] = (),
        leaves_on_transfer: bool = False,
    ) -> None:
        """Nothing happens before `run`.

        Args:
            rate_hz: of the audio both ways.
            opening: messages that go out first.
            leaves_on_transfer: the other side cannot be told where to, it goes on by itself once we have left.
        """
        self._wire = wire
        self._dialect = dialect
        self._leaves_on_transfer = leaves_on_transfer
        self._call: CallLike | None = None
        self._port: PcmPortLike | None = None
        self._outbox = Outbox(rate_hz)
        for text in opening:
            self._outbox.put_message(text)
        self._wake = asyncio.Event()
        self._bucket = TokenBucket(MESSAGES_PER_S, MESSAGE_BURST)
        self._audio = TokenBucket(AUDIO_MESSAGES_PER_S, AUDIO_MESSAGES_PER_S / 4)
        self._over = False
        self._held = asyncio.Event()
        """Set while the port has no room, so that nothing is read."""
        self._news = asyncio.Event()
        """Set by each message that was no audio: it may say what was played, or that audio is wanted again."""
        self._log: CallLogger | logging.Logger = logger

    # Called by the port and the call, on the event loop.

    def send_audio(self, pcm: bytes) -> None:
        """The port's outgoing frames."""
        if not self._over:
            self._outbox.put_audio(pcm)
            self._wake.set()

    def on_event(self, event: CallEvent) -> None:
        """The call's observer."""
        if isinstance(event, OutputPaused) and self._port is not None:
            # What waits here or unplayed at the other side is dropped by what follows, so it was not heard.
            unheard = self._outbox.audio_bytes // BYTES_PER_SAMPLE + self._dialect.unplayed
            self._port.playout.rewind(min(unheard, int(MAX_UNHEARD_S * self._port.sample_rate_hz)))
        messages = self._dialect.tell(event)
        clears = isinstance(event, OutputCleared | OutputPaused)
        for index, text in enumerate(messages):
            if clears and index == 0:
                self._outbox.put_clear(text)
            else:
                self._outbox.put_message(text)
        if isinstance(event, CallEnded):
            self._over = True
        elif isinstance(event, TransferRequested) and self._leaves_on_transfer and self._call is not None:
            self._call.hangup(TRANSFERRED)
        self._wake.set()

    # The call.

    async def run(self, call: CallLike, port: PcmPortLike) -> None:
        """Until the client leaves, breaks the rules or falls behind, or the call ends. Leaves no task and no call.

        Whoever breaks the rules is told so first; the end of a call may take seconds.
        """
        self._log = call_logger(call.id, __name__)
        self._call, self._port = call, port
        reading = self._task(self._read(call, port), call, "read")
        reading.add_done_callback(lambda _: self._news.set())
        writing = self._task(self._write(), call, "write")
        leaving = self._task(self._leave(), call, "leave")
        ending: asyncio.Task[str] = asyncio.create_task(call.wait_ended(), name=f"{call.id} stream end")
        tasks: tuple[asyncio.Task[Any], ...] = (reading, writing, leaving, ending)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if ending in done or self._over:
                # All that was said before the end goes out first; the end of the call closes the outbox. It is told
                # before all of the call is gone.
                self._over = True
                self._wake.set()
                await asyncio.wait((writing,), timeout=SEND_TIMEOUT_S)
                if writing.done() and writing.exception() is None:
                    await self._part(reading)
            for task in (reading, writing):
                if task.done() and (error := task.exception()) is not None:
                    raise error
        except ProtocolError as error:
            writing.cancel()
            await self._wire.tell(error)
            call.hangup(PEER_CLOSED)
            await self._wire.close(error)
        finally:
            call.hangup(PEER_CLOSED)
            for task in (reading, writing, leaving):
                task.cancel()
            await asyncio.wait((reading, writing, leaving), timeout=CLOSE_TIMEOUT_S)
            for task in (reading, writing, leaving):
                if task.done() and not task.cancelled():
                    # Retrieved, so that a second failure is not reported as one that nobody saw.
                    task.exception()
            await asyncio.wait((ending,), timeout=CALL_END_TIMEOUT_S)
            if not ending.done():
                self._log.error("the call did not end in time")
                ending.cancel()
            await port.close()
            if self._outbox.dropped_frames:
                self._log.info("a slow client lost audio", extra={"dropped_frames": self._outbox.dropped_frames})

    @staticmethod
    def _task(work: Coroutine[Any, Any, None], call: CallLike, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(work, name=f"{call.id} stream {name}")

    async def _part(self, reading: asyncio.Task[None]) -> None:
        """Let the other side play what it has, then say goodbye."""
        try:
            async with asyncio.timeout(LAST_WORDS_S):
                for item in self._dialect.ask_played():
                    await self._wire.send(item)
                while self._dialect.unplayed and not reading.done():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            self._log.debug("the other side did not say that it has played all")
        except ConnectionError:
            return
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                for item in self._dialect.farewell():
                    await self._wire.send(item)
        except (TimeoutError, ConnectionError):
            self._log.debug("the other side left before the goodbye")

    async def _read(self, call: CallLike, port: PcmPortLike) -> None:
        clock = asyncio.get_running_loop().time
        while (message := await self._wire.receive()) is not None:
            said = self._dialect.read(message) if message else None
            if isinstance(said, Audio):
                port.feed(said.pcm)
                self._held.set()
                await port.ready()
                if (wait_s := self._audio.take(clock())) > 0:
                    # Whoever cuts audio into crumbs waits like one who sends too much of it.
                    await asyncio.sleep(max(wait_s, CRUMBS_S))
                self._held.clear()
                continue
            self._news.set()
            self._wake.set()
            if self._bucket.take(clock()) > 0:
                raise ProtocolError(
                    f"more than {MESSAGES_PER_S:.0f} text or empty messages a second", code="rate_limited"
                )
            if said is not None:
                self._obey(call, said)

    async def _leave(self) -> None:
        """Returns when the client has gone and reading cannot tell, since a flood of its own is in the way."""
        with departure(self._wire.transport) as gone:
            while True:
                await self._held.wait()
                try:
                    async with asyncio.timeout(PROBE_S):
                        await gone.wait()
                except TimeoutError:
                    if self._held.is_set():
                        await self._probe()
                    continue
                if self._held.is_set():
                    return
                await asyncio.sleep(0)

    async def _probe(self) -> None:
        # The end of a stream comes behind all data that the client's kernel still holds and we do not take; but to a
        # socket that no program has any more its kernel answers at once (RFC 9293 section 3.10.7.4).
        try:
            async with asyncio.timeout(SEND_TIMEOUT_S):
                await self._wire.probe()
        except (TimeoutError, ConnectionError):
            self._log.debug("a probe could not be sent")

    def _obey(self, call: CallLike, command: ClientCommand) -> None:
        try:
            perform(command, call)
        except ProtocolError:
            raise
        except RejoinderError as error:
            code = "not_interruptible" if isinstance(error, NotInterruptible) else "not_possible"
            for text in self._dialect.fault(code, str(error)):
                self._outbox.put_message(text)
            self._wake.set()

    async def _write(self) -> None:
        while True:
            item = None if self._dialect.held and not self._over else self._outbox.pop()
            if self._outbox.overrun:
                raise ProtocolError("this client reads more slowly than the agent speaks", code="too_slow")
            if item is None:
                if self._over:
                    return
                parts = await self._nothing()
            else:
                parts = (item,) if isinstance(item, str) else self._dialect.speak(item)
            try:
                async with asyncio.timeout(SEND_TIMEOUT_S):
                    for part in parts:
                        await self._wire.send(part)
            except TimeoutError as exc:
                raise ProtocolError("this client does not read", code="too_slow") from exc
            except ConnectionError:
                return

    async def _nothing(self) -> Sequence[bytes | str]:
        """Wait for something to send; returns what is sent for lack of it."""
        self._wake.clear()
        sign = self._dialect.keep_alive()
        try:
            async with asyncio.timeout(KEEP_ALIVE_S if sign else None):
                await self._wake.wait()
        except TimeoutError:
            return sign
        return ()
