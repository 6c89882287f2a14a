"""A call's connection: the port it has now, the loss of it, and another in its place.

A call that may be resumed outlives its port. While it is suspended no frame comes, nothing leaves, and the call's own
clock stands still; what was said stays in the playout, which is handed to the next port. What an earlier port still
reports changes nothing.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import Protocol

from agent.errors import CallGone, MediaError
from agent.media.frames import Pcm
from agent.media.port import MediaPort, ResumablePort

__all__ = ["CallClock", "Line", "LineHost"]

log = logging.getLogger(__name__)

PORT_DEADLINE_S = 2.5
"""A port is given this long to close; it promises 2 s."""

CONNECT_S = 10.0
"""A caller who comes back in the last second still gets this long to connect."""

GOODBYE = "peer closed"
LEFT_S = 10.0
"""A client that said goodbye has a network: it is back in seconds, as a page that is loaded anew, or not at all."""

NOT_RESUMED = "not resumed"
"""Why a suspended call ends when nobody came back."""


class CallClock:
    """A monotonic clock in seconds that can be stopped: a caller who is away is neither idle nor slow."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._away_s = 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        return (self._now() if self._stopped_at is None else self._stopped_at) - self._away_s

    def stop(self) -> None:
        """Stand still. Idempotent."""
        if self._stopped_at is None:
            self._stopped_at = self._now()

    def go_on(self) -> float:
        """Run again from where it stood; returns how long it stood, in seconds."""
        if self._stopped_at is None:
            return 0.0
        stood_s = self._now() - self._stopped_at
        self._away_s += stood_s
        self._stopped_at = None
        return stood_s


class LineHost(Protocol):
    """The call's side. All are called on the event loop."""

    def on_audio(self, pcm: Pcm) -> None:
        """As MediaSink's."""

    def on_dtmf(self, digit: str) -> None:
        """As MediaSink's."""

    def on_stalled(self, silence_s: float) -> None:
        """As MediaSink's."""

    def on_resumed(self, silence_s: float) -> None:
        """As MediaSink's."""

    def on_suspended(self, reason: str, unheard_s: float) -> None:
        """The connection is gone; of what was sent, the last `unheard_s` seconds reached nobody for all we know."""

    def on_reconnected(self) -> None:
        """The first frame over another connection is about to be delivered."""

    def on_replaced(self, port: MediaPort) -> None:
        """`port` will be closed and has counted its last packet."""

    def on_port_fault(self, error: Exception) -> None:
        """A port failed to close in a way that no port should; it was logged."""

    def hangup(self, reason: str) -> None:
        """End the call."""


class _Sink:
    """What one port reports, for as long as it is the line's."""

    def __init__(self, line: Line) -> None:
        self.line = line

    def on_audio(self, pcm: Pcm) -> None:
        if self.line.sink is self:
            self.line.heard(pcm)

    def on_dtmf(self, digit: str) -> None:
        if self.line.sink is self:
            self.line.host.on_dtmf(digit)

    def on_stalled(self, silence_s: float) -> None:
        if self.line.sink is self:
            self.line.host.on_stalled(silence_s)

    def on_resumed(self, silence_s: float) -> None:
        if self.line.sink is self:
            self.line.host.on_resumed(silence_s)

    def on_closed(self, reason: str) -> None:
        if self.line.sink is self:
            self.line.lost(reason)


class Line:
    """One call's connection. Owns its ports: those given up are closed at once, the last by `close`.

    Args:
        port: the first one.
        host: the call.
        call_id: for the log.
    """

    def __init__(self, port: MediaPort, host: LineHost, call_id: str) -> None:
        self.port = port
        self.playout = port.playout
        """What the agent says, whatever port reads it."""
        self.host = host
        self.sink: _Sink | None = None
        self.suspended = False
        self._call_id = call_id
        self._resume_s = 0.0
        self._deadline = 0.0
        self._ends_with = NOT_RESUMED
        self._timer: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._closed = False

    def open(self) -> None:
        """Begin to deliver."""
        self._attach(self.port)

    def allow_resume(self, seconds: float) -> None:
        """From here on a lost connection suspends the call for this long (`LEFT_S` after a goodbye); 0 ends it."""
        self._resume_s = seconds

    def forbid_resume(self, reason: str) -> None:
        """A lost connection ends the call again; a call that is suspended now ends with `reason`."""
        self._resume_s = 0.0
        if self.suspended:
            self.host.hangup(reason)

    def replace(self, port: ResumablePort) -> None:
        """Go on over `port`; the one before is closed.

        The call stays suspended until the new connection brings its first frame, and ends if none comes within the
        time that is left, or `CONNECT_S` if that is longer. Raises CallGone when the call can not be resumed (any
        more), and MediaError when the port reads speech at another rate; the port is the caller's to close then.
        """
        loop = asyncio.get_running_loop()
        if self._closed or self._resume_s <= 0:
            raise CallGone("the call is over, or was not made to be resumed")
        port.adopt(self.playout)
        if not self.suspended:
            self.lost("replaced")
        self.host.on_replaced(self.port)
        self._close_later(self.port)
        self._arm(max(self._deadline, loop.time() + CONNECT_S))
        self.port = port
        self._attach(port)

    def heard(self, pcm: Pcm) -> None:
        """A frame of the current port."""
        if self.suspended:
            self.suspended = False
            self._disarm()
            self.host.on_reconnected()
        self.host.on_audio(pcm)

    def lost(self, reason: str) -> None:
        """The current port is gone."""
        if self._resume_s <= 0:
            self.host.hangup(reason)
            return
        self.sink = None
        if self.suspended:
            # Another attempt that did not connect; the time that is left is not prolonged by it.
            return
        self.suspended = True
        goodbye = reason == GOODBYE
        self._ends_with = GOODBYE if goodbye else NOT_RESUMED
        self._deadline = asyncio.get_running_loop().time() + min(self._resume_s, LEFT_S if goodbye else math.inf)
        self._arm(self._deadline)
        self.host.on_suspended(reason, self.port.stats().peer_silence_s)

    async def close(self) -> None:
        """Close every port, the last one and those that are still closing; what fails is logged, never raised."""
        self._closed = True
        self.sink = None
        self._disarm()
        self._close_later(self.port)
        await asyncio.wait(set(self._closing))

    def _attach(self, port: MediaPort) -> None:
        self.sink = _Sink(self)
        port.attach(self.sink)

    def _arm(self, at: float) -> None:
        self._disarm()
        self._timer = asyncio.get_running_loop().call_at(at, self.host.hangup, self._ends_with)

    def _disarm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _close_later(self, port: MediaPort) -> None:
        task = asyncio.create_task(self._close_port(port), name=f"{self._call_id} port")
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _close_port(self, port: MediaPort) -> None:
        try:
            async with asyncio.timeout(PORT_DEADLINE_S):
                await port.close()
        except TimeoutError:
            log.error("the port did not close in time", extra={"call_id": self._call_id})
        except MediaError as exc:
            log.warning("port did not close well: %s", exc, extra={"call_id": self._call_id})
        except Exception as exc:
            log.exception("the port failed to close", extra={"call_id": self._call_id})
            self.host.on_port_fault(exc)
