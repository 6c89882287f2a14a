"""An edge's line to its core: opens streams, hands their messages out, and comes back when the core does.

One core by one address. Which address, when there are several (registry, rendezvous hashing, breaker), is not decided
here: whoever decides holds one CoreClient an address.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Protocol, Self

from agent.core.address import CoreAddress
from agent.core.link import Link
from agent.core.linking import LinkOptions, connect
from agent.core.messages import Close, Fault, FaultCode, GoAway, Hello, Message, Model, Open
from agent.errors import (
    CoreLost,
    EngineError,
    EngineOverloaded,
    EnvironmentFault,
    RejoinderError,
    UnsupportedLanguage,
    UnsupportedVoice,
)

__all__ = ["CoreClient", "CoreStream", "StreamOwner", "error_of"]

GREETING_DEADLINE_S = 3.0
BACK_OFF_FIRST_S = 0.05
BACK_OFF_MAX_S = 2.0
"""A core that is started anew is found this soon; half of each wait is drawn, so that edges do not come all at once."""

LEAVING_RETRY_S = 0.5
"""A core that asked for no new streams still listens while it drains: its successor is looked for at this pace."""

log = logging.getLogger(__name__)


class StreamOwner(Protocol):
    """Whose stream it is. Both are called on the event loop and must not block."""

    def on_message(self, message: Message) -> None:
        """A message that names the stream."""

    def on_lost(self, error: EngineError) -> None:
        """The stream is over: its link is lost, or the core refused it."""


class CoreStream:
    """A stream that is open on a link. Make one with `CoreClient.open`."""

    def __init__(self, number: int, line: _Line, owner: StreamOwner) -> None:
        self.number = number
        self._line = line
        self._owner = owner

    def send(self, message: Message) -> None:
        """Send a message that names this stream. Raises CoreLost, EngineOverloaded."""
        self._line.link.send(message)

    def close(self) -> None:
        """Nothing of it is wanted any more. Idempotent; the owner hears no more."""
        if self._line.streams.pop(self.number, None) is not None:
            try:
                self._line.link.send(Close(self.number))
            except EngineError as exc:
                log.debug("a stream was closed on a link that is gone: %s", type(exc).__name__)
            self._line.ended()


class _Line:
    """A link with the streams that are open on it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.streams: dict[int, StreamOwner] = {}
        self.leaving = False
        """The core asked for no new streams."""
        self.over = asyncio.Event()
        """Set when it is lost, or leaving and without streams."""

    def start(self, on_down: Callable[[], None]) -> None:
        """`on_down` is called when no more streams may be opened, before any owner hears of it."""
        self._on_down = on_down
        self.link.start(self._on_batch, self._on_lost)

    def ended(self) -> None:
        if self.leaving and not self.streams:
            self.over.set()

    def _on_batch(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if isinstance(message, GoAway):
                log.info("the core asks for no new streams", extra={"link": self.link.name, "reason": message.reason})
                self.leaving = True
                self._on_down()
                self.ended()
                continue
            number = getattr(message, "stream", 0)
            owner = self.streams.get(number)
            if owner is None:
                continue
            if isinstance(message, Fault) and message.generation == 0:
                del self.streams[number]
                owner.on_lost(error_of(message))
                self.ended()
            else:
                owner.on_message(message)

    def _on_lost(self, reason: str) -> None:
        log.warning("the core is gone: %s", reason, extra={"link": self.link.name})
        owners = tuple(self.streams.values())
        self.streams.clear()
        # First of all: whoever asks again at once, on hearing of it, must find no link.
        self.over.set()
        self._on_down()
        for owner in owners:
            owner.on_lost(CoreLost(f"{self.link.name}: {reason}"))


class CoreClient:
    """Keeps a link to the core at one address; an async context manager.

    The first link must succeed; later ones are tried again and again while the core is away.

    Args:
        address: where the core is.
        options: of the link.
        name: what the core shall call this edge in its logs.

    Raises:
        EnvironmentFault: no core answers there, it speaks another protocol, or it serves nothing.
        ConfigError: a certificate is unusable.
    """

    def __init__(self, address: CoreAddress, options: LinkOptions, *, name: str) -> None:
        self.address = address
        self._options = options
        self._name = name
        self._line: _Line | None = None
        self._models: dict[str, Model] = {}
        self._next = 1
        self._keeper: asyncio.Task[None] | None = None
        self._endings: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._linked = asyncio.Event()

    async def __aenter__(self) -> Self:
        try:
            await self._link()
        except CoreLost as exc:
            raise EnvironmentFault(f"core.url: {exc}; start `rejoinder core`, or correct the address") from exc
        self._keeper = asyncio.create_task(self._keep(), name="core keeper")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks = [task for task in (self._keeper, *self._endings) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._line is not None:
            await self._line.link.close()
            self._line = None

    @property
    def models(self) -> Mapping[str, Model]:
        """What the core serves, by shard; while it is away, what it served."""
        return self._models

    @property
    def linked(self) -> bool:
        """Whether streams can be opened now."""
        return self._linked.is_set()

    async def wait_linked(self, deadline_s: float) -> None:
        """Wait for the core to be there. Raises CoreLost."""
        try:
            async with asyncio.timeout(deadline_s):
                await self._linked.wait()
        except TimeoutError:
            raise CoreLost(f"{self.address}: the core is away") from None

    def open(
        self, shard: str, owner: StreamOwner, *, language: str = "", hints: Sequence[str] = (), listen: bool = False
    ) -> CoreStream:
        """Begin a stream. Raises CoreLost while the core is away, EngineOverloaded when the link is full."""
        line = self._line
        if line is None or line.leaving or line.over.is_set():
            raise CoreLost(f"{self.address}: the core is away")
        number = self._next
        # Numbers come round after years; none is used twice on a link before.
        self._next = number % 0xFFFF_FFFF + 1
        line.link.send(Open(number, shard, language, tuple(hints), listen))
        line.streams[number] = owner
        return CoreStream(number, line, owner)

    async def _link(self) -> None:
        link = await connect(self.address, self._options)
        try:
            hello = await link.greet(Hello(self._name), GREETING_DEADLINE_S)
            if not hello.models:
                raise EnvironmentFault(f"core.url: {self.address} is no core, or serves no shard")
        except BaseException:
            await link.close()
            raise
        self._changed = changed = asyncio.Event()
        line = _Line(link)

        def down() -> None:
            changed.set()
            if self._line is line:
                self._linked.clear()

        self._line = line
        self._models = {model.shard: model for model in hello.models}
        self._linked.set()
        line.start(down)
        log.info("linked to the core", extra={"link": link.name, "shards": ", ".join(self._models)})

    async def _keep(self) -> None:
        """Replace the link each time it is lost or its core goes away."""
        while True:
            await self._changed.wait()
            line, self._line = self._line, None
            self._linked.clear()
            if line is not None:
                task = asyncio.create_task(self._see_off(line), name="core link ending")
                self._endings.add(task)
                task.add_done_callback(self._endings.discard)
            leaving = line is not None and line.leaving
            wait_s = LEAVING_RETRY_S if leaving else BACK_OFF_FIRST_S
            while True:
                await asyncio.sleep(wait_s * random.uniform(0.5, 1.0))
                wait_s = min(wait_s * 2, BACK_OFF_MAX_S)
                try:
                    await self._link()
                    break
                except RejoinderError as exc:
                    log.info("the core is still away: %s", exc)

    async def _see_off(self, line: _Line) -> None:
        try:
            await line.over.wait()
        finally:
            await line.link.close()


def error_of(fault: Fault) -> EngineError:
    """What a Fault means to whoever asked."""
    match fault.code:
        case FaultCode.OVERLOADED:
            return EngineOverloaded(fault.text)
        case FaultCode.UNSUPPORTED_LANGUAGE:
            return UnsupportedLanguage(fault.text)
        case FaultCode.UNSUPPORTED_VOICE:
            return UnsupportedVoice(fault.text)
        case _:
            return EngineError(fault.text)
