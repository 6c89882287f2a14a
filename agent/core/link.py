"""A link: the ordered, two-way line of messages between one edge process and one core process.

Everything that all links share is here: greeting, batches, bounded room, heartbeat, and the one time that a link is
lost. A transport adds how a batch of bytes goes out and comes in. Nothing here knows streams, calls or engines.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from agent.core.codec import MAX_BATCH_BYTES, decode, encode
from agent.core.heartbeat import BEAT_S, Beat, Heartbeat
from agent.core.messages import Ack, Audio, Evidence, Fault, FaultCode, Hello, Message, Ping, Pong
from agent.errors import CoreLost, EngineOverloaded, EnvironmentFault, ProtocolError

__all__ = ["Link", "LinkState", "LinkStatistics"]

MAX_OUTBOX_BYTES = 2 * MAX_BATCH_BYTES
"""Half a minute of one call's audio, a third of a second of a hundred calls': a peer this far behind is no help."""

FULL_SHARE = 0.5
"""Whoever waits for room gets it when the outbox is less full than this."""

SILENCE_S = 2.0
"""A peer's event loop may stand still for a second while an engine loads; a dead process or host is noticed sooner, by
its socket or by the transport's keepalive."""

MAX_UNREAD = 1024
"""Messages kept between the greeting and `start`."""

_BULK = (Audio, Ack, Evidence)
"""May wait for the batch of the tick; a caller waits for all else."""

log = logging.getLogger(__name__)


class LinkState(Enum):
    GREETING = "greeting"
    OPEN = "open"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LinkStatistics:
    """Counts since the link's beginning."""

    sent: int = 0
    received: int = 0
    batches_sent: int = 0
    batches_received: int = 0
    bytes_sent: int = 0
    refused: int = 0
    """Messages for which there was no room."""


class Link(ABC):
    """One end of a link; all methods belong to one event loop.

    `greet` or `welcome` first, then `start`, then `send` until it is lost or `close` is called.

    Args:
        name: what logs and errors call it: `shm:/run/rejoinder.sock`.
        batch_s: frames of audio are sent at most this often, as one batch; 0 sends them with the next pass of the
            event loop. Other messages never wait, and take waiting frames along.
        silence_s: see `SILENCE_S`.
    """

    def __init__(self, name: str, *, batch_s: float = 0.0, silence_s: float = SILENCE_S) -> None:
        self.name = name
        self.state = LinkState.GREETING
        self.peer = Hello("")
        """What the other side said of itself."""
        self._loop = asyncio.get_running_loop()
        self._batch_s = batch_s
        self._outbox: deque[bytes] = deque()
        self._outbox_bytes = 0
        self._flush: asyncio.Handle | None = None
        self._flush_soon = False
        self._flushed_at = 0.0
        self._room: asyncio.Future[None] | None = None
        self._greeted: asyncio.Future[Message] = self._loop.create_future()
        self._unread: list[Message] = []
        self._on_batch: Callable[[Sequence[Message]], None] | None = None
        self._on_lost: Callable[[str], None] | None = None
        self._lost_reason = ""
        self._heartbeat = Heartbeat(silence_s, self._loop.time())
        self._beat_timer: asyncio.TimerHandle | None = None
        self._sent = self._received_count = self._batches_sent = self._batches_received = 0
        self._bytes_sent = self._refused = 0

    @property
    def statistics(self) -> LinkStatistics:
        """A copy of the counts."""
        return LinkStatistics(
            self._sent,
            self._received_count,
            self._batches_sent,
            self._batches_received,
            self._bytes_sent,
            self._refused,
        )

    async def greet(self, hello: Hello, deadline_s: float) -> Hello:
        """The edge's side: say hello, and return what the core says of itself.

        Raises:
            EnvironmentFault: the core speaks another protocol.
            CoreLost: it refused, went away or did not answer in time. The link is closed then.
        """
        self.send(hello)
        return await self._hear_greeting(deadline_s)

    async def welcome(self, hello: Hello, deadline_s: float) -> Hello:
        """The core's side: hear the edge's hello, and answer it with `hello`.

        Raises:
            EnvironmentFault: the edge speaks another protocol; it has been told.
            CoreLost: it went away or said nothing in time. The link is closed then.
        """
        peer = await self._hear_greeting(deadline_s)
        self.send(hello)
        return peer

    def start(self, on_batch: Callable[[Sequence[Message]], None], on_lost: Callable[[str], None]) -> None:
        """Take messages from here on.

        Args:
            on_batch: called with the messages that came together, in order; must not block.
            on_lost: called once with the reason, when the link is lost by anything but `close`.
        """
        self._on_batch, self._on_lost = on_batch, on_lost
        self._beat_timer = self._loop.call_later(BEAT_S, self._beat)
        if self._unread:
            unread, self._unread = self._unread, []
            self._loop.call_soon(self._give, unread)
        if self.state is LinkState.LOST:
            self._loop.call_soon(on_lost, self._lost_reason)

    def send(self, message: Message) -> None:
        """Put a message on its way; never blocks.

        Raises:
            CoreLost: the link is lost or closed.
            EngineOverloaded: the other side does not keep up and there is no room; the message is not sent.
            ProtocolError: the message is larger than what may be sent.
        """
        if self.state in (LinkState.LOST, LinkState.CLOSED):
            raise CoreLost(f"{self.name}: {self._lost_reason or 'the link is closed'}")
        data = encode(message)
        if self._outbox_bytes + len(data) > MAX_OUTBOX_BYTES:
            self._refused += 1
            raise EngineOverloaded(f"{self.name}: {self._outbox_bytes} bytes wait for the other side")
        self._outbox.append(data)
        self._outbox_bytes += len(data)
        self._sent += 1
        self._schedule(soon=not isinstance(message, _BULK))

    async def room(self, deadline_s: float) -> None:
        """Wait until the outbox is at most half full: for whoever sends more than a frame now and then.

        Raises:
            EngineOverloaded: not within `deadline_s`.
            CoreLost: the link is lost or closed.
        """
        while self.state is LinkState.OPEN and self._outbox_bytes > MAX_OUTBOX_BYTES * FULL_SHARE:
            if self._room is None:
                self._room = self._loop.create_future()
            try:
                async with asyncio.timeout(deadline_s):
                    await asyncio.shield(self._room)
            except TimeoutError:
                raise EngineOverloaded(f"{self.name}: the other side takes nothing") from None
        if self.state is not LinkState.OPEN:
            raise CoreLost(f"{self.name}: {self._lost_reason or 'the link is closed'}")

    async def close(self) -> None:
        """Send what waits, as far as that goes at once, and let go. Idempotent; `on_lost` is not called."""
        if self.state in (LinkState.GREETING, LinkState.OPEN):
            self._run_flush()
            await self._drain()
        if self.state is not LinkState.CLOSED:
            self.state = LinkState.CLOSED
            self._release()
        await self._shut()

    # What a transport does.

    @abstractmethod
    def _transmit(self) -> None:
        """Send what is in the outbox by `_take`, as far as it goes without blocking; the rest when there is room."""

    @abstractmethod
    async def _shut(self) -> None:
        """Free everything. Idempotent; called after `close`, and by it after a loss."""

    async def _drain(self) -> None:
        """Give what was transmitted last a chance to leave."""
        await asyncio.sleep(0)

    @abstractmethod
    def _break(self) -> None:
        """The link is lost: stop reading and writing at once, so that the other side notices too."""

    # What a transport calls.

    def _waiting(self) -> bool:
        return bool(self._outbox)

    def _take(self, max_bytes: int = MAX_BATCH_BYTES) -> list[bytes]:
        """The oldest messages of the outbox, at most `max_bytes` with their lengths but at least one."""
        taken: list[bytes] = []
        size = 0
        while self._outbox:
            size += len(self._outbox[0]) + 4
            if taken and size > max_bytes:
                break
            taken.append(self._outbox.popleft())
        self._took(taken)
        return taken

    def _took(self, taken: Iterable[bytes]) -> None:
        size = sum(map(len, taken))
        self._outbox_bytes -= size
        self._bytes_sent += size
        self._batches_sent += 1
        if self._room is not None and self._outbox_bytes <= MAX_OUTBOX_BYTES * FULL_SHARE:
            self._room.set_result(None)
            self._room = None

    def _received(self, datas: Iterable[bytes | memoryview]) -> None:
        """Encoded messages came together."""
        try:
            messages = [decode(data) for data in datas]
        except ProtocolError as exc:
            self._fail_protocol(exc)
            return
        self._received_messages(messages)

    def _received_messages(self, messages: list[Message]) -> None:
        if self.state in (LinkState.LOST, LinkState.CLOSED) or not messages:
            return
        self._heartbeat.heard(self._loop.time())
        self._received_count += len(messages)
        self._batches_received += 1
        if self.state is LinkState.GREETING:
            messages = self._greeting(messages)
        if any(type(message) is Ping or type(message) is Pong for message in messages):
            messages = self._answer_pings(messages)
        if messages:
            self._give(messages)
        if self._flush is not None and self._flush_soon:
            # Answers to these messages leave now: another pass of the event loop is a system call and 20 us.
            self._run_flush()

    def _fail_protocol(self, exc: ProtocolError) -> None:
        """The other side sent what is no message: tell it, and end."""
        if self.state in (LinkState.LOST, LinkState.CLOSED):
            return
        code = FaultCode.VERSION if exc.code == FaultCode.VERSION else FaultCode.BAD_MESSAGE
        try:
            self.send(Fault(0, 0, code, str(exc)))
            self._run_flush()
        except EngineOverloaded:
            log.info("no room to tell the other side what is wrong", extra={"link": self.name})
        if not self._greeted.done():
            self._greeted.set_result(Fault(0, 0, code, str(exc)))
        self._fail(f"the other side sent no message ({exc})", linger=True)

    def _fail(self, reason: str, *, linger: bool = False) -> None:
        """The link is lost. `linger`: what was transmitted last may still leave."""
        if self.state in (LinkState.LOST, LinkState.CLOSED):
            return
        self.state = LinkState.LOST
        self._lost_reason = reason
        self._release()
        if not linger:
            self._break()
        if not self._greeted.done():
            self._greeted.set_result(Fault(0, 0, FaultCode.FAILED, reason))
        if self._on_lost is not None:
            self._loop.call_soon(self._on_lost, reason)

    # The rest is private to this class.

    async def _hear_greeting(self, deadline_s: float) -> Hello:
        try:
            async with asyncio.timeout(deadline_s):
                answer = await asyncio.shield(self._greeted)
        except TimeoutError:
            self._fail(f"no greeting within {deadline_s:g} s")
            await self.close()
            raise CoreLost(f"{self.name}: {self._lost_reason}") from None
        if isinstance(answer, Hello):
            self.peer = answer
            self.state = LinkState.OPEN
            return answer
        assert isinstance(answer, Fault)
        await self._drain()
        self._fail(answer.text)
        await self.close()
        if answer.code is FaultCode.VERSION:
            raise EnvironmentFault(f"{self.name}: {answer.text}")
        raise CoreLost(f"{self.name}: {answer.text}")

    def _greeting(self, messages: list[Message]) -> list[Message]:
        if self._greeted.done():
            return messages
        first, *rest = messages
        if isinstance(first, Hello | Fault):
            self._greeted.set_result(first)
            return rest
        self._fail_protocol(ProtocolError("hello: expected it first", field="hello", code="bad_message"))
        return []

    def _give(self, messages: Sequence[Message]) -> None:
        if self.state in (LinkState.LOST, LinkState.CLOSED):
            return
        if self._on_batch is not None:
            try:
                self._on_batch(messages)
            except Exception:
                # A fault of whoever takes the messages ends this link, and no other.
                log.exception("messages could not be handled", extra={"link": self.name})
                self._fail("messages could not be handled")
            return
        self._unread += messages
        if len(self._unread) > MAX_UNREAD:
            self._fail(f"{len(self._unread)} messages came before the link was started")

    def _answer_pings(self, messages: Sequence[Message]) -> list[Message]:
        for message in messages:
            if type(message) is Ping:
                self._send_if_room(Pong(message.number))
        return [message for message in messages if type(message) is not Ping and type(message) is not Pong]

    def _send_if_room(self, message: Message) -> None:
        try:
            self.send(message)
        except EngineOverloaded:
            # A peer that takes nothing is given up by its own silence.
            log.debug("no room for a heartbeat", extra={"link": self.name})

    def _beat(self) -> None:
        self._beat_timer = self._loop.call_later(BEAT_S, self._beat)
        match self._heartbeat.beat(self._loop.time()):
            case Beat.PING:
                self._send_if_room(Ping(0))
            case Beat.LOST:
                self._fail("the other side is silent")

    def _schedule(self, *, soon: bool) -> None:
        if self._flush is not None:
            if self._flush_soon or not soon:
                return
            self._flush.cancel()
        wait_s = 0.0 if soon else self._flushed_at + self._batch_s - self._loop.time()
        self._flush_soon = wait_s <= 0
        if self._flush_soon:
            self._flush = self._loop.call_soon(self._run_flush, not soon)
        else:
            self._flush = self._loop.call_later(wait_s, self._run_flush)

    def _run_flush(self, bulk: bool = True) -> None:
        if self._flush is not None:
            self._flush.cancel()
            self._flush = None
        if self.state not in (LinkState.GREETING, LinkState.OPEN):
            return
        if bulk:
            self._flushed_at = self._loop.time()
        if self._outbox:
            self._transmit()

    def _release(self) -> None:
        for handle in (self._flush, self._beat_timer):
            if handle is not None:
                handle.cancel()
        self._flush = self._beat_timer = None
        if self._room is not None:
            self._room.set_result(None)
            self._room = None
