"""What a call tells its recording, tick by tick. Event loop only: it gathers, and hands over twice a second."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from agent.events import CallEnded, CallEvent, CallFault, Observer
from agent.media.frames import Pcm
from agent.recording.clock import PacerClock
from agent.recording.files import Batch
from agent.recording.lanes import Slot
from agent.recording.packets import Kind, record, tick_record
from agent.recording.timeline import event_line, line
from agent.recording.writer import Recording

__all__ = ["CallRecorder"]

log = logging.getLogger(__name__)

BATCH_SLOTS = 25
BATCH_BYTES = 64 * 1024
"""Handed over earlier when packets or events are many, as before the first tick."""


class CallRecorder:
    """Implements MediaTap for one call and watches its events.

    Args:
        call_id: for logs.
        observer: the call's real one.
        now: the call's monotonic clock.
        max_slots: the recording ends after this many ticks.
        on_error: told of a failure, for the metrics.
    """

    def __init__(
        self,
        call_id: str,
        observer: Observer,
        *,
        now: Callable[[], float],
        max_slots: int,
        on_error: Callable[[str], None],
    ) -> None:
        self.call_id = call_id
        self._observer = observer
        self._now = now
        self._started = now()
        self._max_slots = max_slots
        self._on_error = on_error
        self._recording: Recording | None = None
        self._slots: list[Slot] = []
        self._packets = bytearray()
        self._events = bytearray()
        self._clock = PacerClock()
        self._ended = False
        self._over = False
        """The call has told its end."""

    @property
    def started(self) -> float:
        """When the call began, on its clock."""
        return self._started

    def begin(self, recording: Recording) -> None:
        """Take everything from here on, and let the files be opened now."""
        self._recording = recording
        self._hand_over()

    # -- MediaTap

    def on_packet(self, data: bytes, now: float) -> None:
        """A packet of the caller."""
        if not self._ended:
            self._packets += record(Kind.PACKET, now, data)
            self._hand_over_if_due()

    def on_tick(self, tick: int, now: float, agent: Pcm | None, caller: Sequence[Pcm]) -> None:
        """Both frames of a tick."""
        if self._ended:
            return
        gap = self._clock.advance(tick)
        self._packets += tick_record(tick, now)
        self._slots.append(Slot(agent, tuple(caller), gap))
        self._hand_over_if_due()
        if self._clock.slots >= self._max_slots:
            log.warning("a recording reached recording.max_hours", extra={"call_id": self.call_id})
            self._finish("recording.max_hours")

    # -- the call

    def observe(self, event: CallEvent) -> None:
        """Write an event down and pass it on."""
        try:
            if not self._ended:
                at_ms = (self._now() - self._started) * 1000
                self._events += event_line(event, t_ms=self._clock.t_ms, at_ms=at_ms)
                if isinstance(event, CallEnded):
                    self.close(event.reason)
                else:
                    self._hand_over_if_due()
        finally:
            self._over = self._over or isinstance(event, CallEnded)
            self._observer(event)

    def command(self, do: str, **values: object) -> None:
        """Something the client asked for, which a replay must ask for again."""
        if not self._ended:
            self._packets += record(Kind.COMMAND, self._now(), line({"do": do, **values}))
            self._hand_over_if_due()

    def close(self, reason: str) -> None:
        """The call is over. Idempotent."""
        if not self._ended:
            self._packets += record(Kind.END, self._now(), line({"reason": reason}))
            self._finish(reason)

    def failed(self, reason: str) -> None:
        """The recording ended too early: say so, and let the call go on."""
        self._ended = True
        self._slots.clear()
        log.warning("a recording was dropped: %s", reason, extra={"call_id": self.call_id})
        self._on_error(reason)
        if not self._over:
            self._observer(CallFault("recording", f"the recording was dropped: {reason}"))

    def _finish(self, reason: str) -> None:
        self._ended = True
        self._hand_over()
        if self._recording is not None:
            self._recording.end(reason)

    def _hand_over_if_due(self) -> None:
        if len(self._slots) >= BATCH_SLOTS or len(self._packets) + len(self._events) >= BATCH_BYTES:
            self._hand_over()

    def _hand_over(self) -> None:
        batch = Batch(tuple(self._slots), bytes(self._packets), bytes(self._events))
        self._slots.clear()
        self._packets.clear()
        self._events.clear()
        if self._recording is not None:
            self._recording.put(batch)
