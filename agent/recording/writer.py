"""The thread that writes recordings: disks and encoders are slow, and no call may wait for them.

Each recording may have `MAX_PENDING_BYTES` on the way. One that has more, or whose file cannot be written, ends there;
its owner is told why, its files are closed as far as they got, and the call goes on.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from agent.errors import MediaError
from agent.recording.files import Batch, Plan, RecordingFiles

__all__ = ["MAX_PENDING_BYTES", "Recording", "RecordingWriter"]

log = logging.getLogger(__name__)

MAX_PENDING_BYTES = 2 << 20
"""About 20 s of a call, 9 s of one in 48 kHz PCM: a disk that is further behind will not catch up."""

STOP_DEADLINE_S = 8.0


@dataclass(frozen=True, slots=True)
class _End:
    reason: str


class Recording:
    """One recording's way to the thread. Event loop only, but for what begins with an underscore.

    Args:
        on_failed: called once on the event loop with the reason when the recording ends too early.
    """

    def __init__(self, writer: RecordingWriter, plan: Plan, on_failed: Callable[[str], None]) -> None:
        self.plan = plan
        self.failed = False
        self._writer = writer
        self._on_failed = on_failed
        self._lock = threading.Lock()
        self._pending = 0
        self._files: RecordingFiles | None = None
        self._broken = False
        """The thread's own: nothing more can be written."""
        self._over = False

    def put(self, batch: Batch) -> None:
        """Hand over a batch. Dropped once the recording has failed or ended."""
        if self.failed or self._over:
            return
        with self._lock:
            full = self._pending + batch.size_bytes > MAX_PENDING_BYTES
            if not full:
                self._pending += batch.size_bytes
        if full:
            self.fail(f"the disk is slow: {MAX_PENDING_BYTES >> 20} MiB are waiting to be written")
        else:
            self._writer._put(self, batch)

    def end(self, reason: str) -> None:
        """Finish the files. Idempotent."""
        if not self._over:
            self._over = True
            self._writer._put(self, _End(reason))

    def fail(self, reason: str) -> None:
        """Give the recording up: what was written stays. Idempotent."""
        if not self.failed:
            self.failed = True
            self._on_failed(reason)
            self.end(reason)

    # The thread.

    def _work(self, item: Batch | _End) -> None:
        """Write one item; tells the loop when that fails."""
        try:
            if not self._broken and not self.failed:
                if self._files is None:
                    self._files = RecordingFiles(self.plan)
                    self._writer._open.add(self)
                if isinstance(item, Batch):
                    self._files.write(item)
            if isinstance(item, _End):
                self._finish(item.reason)
        except (OSError, MediaError) as exc:
            self._break((exc.strerror or type(exc).__name__) if isinstance(exc, OSError) else str(exc))
        except Exception as exc:  # one recording's fault must not end the others
            log.exception("a recording failed", extra={"call_id": self.plan.name})
            self._break(type(exc).__name__)
        finally:
            if isinstance(item, Batch):
                with self._lock:
                    self._pending -= item.size_bytes

    def _break(self, reason: str) -> None:
        self._broken = True
        self._writer._post(self.fail, reason)
        self._finish(reason)

    def _finish(self, reason: str) -> None:
        files, self._files = self._files, None
        self._writer._open.discard(self)
        if files is None:
            return
        try:
            files.close(reason)
        except (OSError, MediaError) as exc:
            # Each file ends after something whole all the same.
            log.warning("a recording could not be finished: %s", type(exc).__name__, extra={"call_id": self.plan.name})


class RecordingWriter:
    """One thread for all recordings of a process. `async with` starts it, and at the end writes what is left."""

    def __init__(self) -> None:
        # Not bounded itself: each recording bounds what it has here.
        self._items: queue.SimpleQueue[tuple[Recording, Batch | _End] | None] = queue.SimpleQueue()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._open: set[Recording] = set()
        """The thread's own: recordings with files that are not finished."""
        self._thread = threading.Thread(target=self._run, name="recording", daemon=True)

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._items.put(None)
        await asyncio.to_thread(self._thread.join, STOP_DEADLINE_S)
        if self._thread.is_alive():
            log.error("recordings were not written to their end within %.0f s", STOP_DEADLINE_S)

    def _put(self, recording: Recording, item: Batch | _End) -> None:
        self._items.put((recording, item))

    def _post(self, callback: Callable[[str], None], reason: str) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(callback, reason)
        except RuntimeError:
            log.debug("the event loop ended before the recording's thread")

    def _run(self) -> None:
        # An ordinary thread: media and engines go before it (agent/media/priority.py).
        while (entry := self._items.get()) is not None:
            recording, item = entry
            recording._work(item)
        for recording in list(self._open):
            recording._finish("server stopped")
