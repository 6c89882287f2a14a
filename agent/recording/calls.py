"""Calls that are recorded, and calls that are not: the one door through which the agent starts both."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from agent import __version__
from agent.call import Call
from agent.config import RecordingSettings
from agent.errors import ConfigError, MediaError, ProtocolError
from agent.events import Observer
from agent.media.frames import FRAME_MS
from agent.media.port import MediaPort, ResumablePort
from agent.media.tap import StreamInfo, Tappable
from agent.nlu.hook import Action, Session
from agent.parts import CallParts
from agent.recording.announce import Announcing
from agent.recording.files import Plan
from agent.recording.recorder import CallRecorder
from agent.recording.sealed import parse_key
from agent.recording.timeline import FORMAT
from agent.recording.writer import Recording, RecordingWriter

__all__ = ["RecordedCall", "Recordings", "announced"]

log = logging.getLogger(__name__)

MB = 1_000_000
FORMAT_VERSION = 1


class RecordedCall(Call):
    """A call that also writes down what its client asks for, and closes its recording whatever ends it."""

    def __init__(
        self, parts: CallParts, recorder: CallRecorder, *, port: MediaPort, session: Session, now: Callable[[], float]
    ) -> None:
        super().__init__(parts, port=port, session=session, observer=recorder.observe, now=now)
        self._recorder = recorder
        self._acting = False

    async def run(self) -> None:
        """See `Call.run`."""
        try:
            await super().run()
        finally:
            self._recorder.close(self.end_reason or "internal error")

    def attach_port(self, port: ResumablePort) -> None:
        """See `Call.attach_port`; the recording goes on with the new port."""
        before = self.port
        super().attach_port(port)
        if isinstance(before, Tappable) and isinstance(port, Tappable):
            port.tap, before.tap = before.tap, None

    def type_text(self, text: str) -> None:
        """See `Call.type_text`."""
        self._recorder.command("type", text=text)
        super().type_text(text)

    def press(self, digit: str) -> None:
        """See `Call.press`."""
        self._recorder.command("press", digit=digit)
        super().press(digit)

    def cancel_reply(self) -> None:
        """See `Call.cancel_reply`."""
        self._recorder.command("cancel")
        super().cancel_reply()

    def respond(self, data: Mapping[str, object] | None = None) -> None:
        """See `Call.respond`."""
        self._recorder.command("respond", **({"data": dict(data)} if data else {}))
        super().respond(data)

    def configure(
        self, *, voice: str | None = None, language: str | None = None, silence_ms: int | None = None
    ) -> None:
        """See `Call.configure`."""
        if not self._acting:
            self._recorder.command("configure", voice=voice, language=language, silence_ms=silence_ms)
        super().configure(voice=voice, language=language, silence_ms=silence_ms)

    def on_action(self, action: Action) -> None:
        """See `Call.on_action`; what the hook does, it will do again in a replay."""
        self._acting = True
        try:
            super().on_action(action)
        finally:
            self._acting = False


class Recordings:
    """Makes calls, recorded as the settings say. `async with` checks the folder and runs the writer.

    Raises (on entering):
        ConfigError: the folder cannot be written, or the key is none.
    """

    def __init__(self, settings: RecordingSettings) -> None:
        self.settings = settings
        self._key: bytes | None = None
        self._writer = RecordingWriter()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        if self.settings.mode != "off":
            if self.settings.key is not None:
                self._key = parse_key(self.settings.key.get_secret_value())
            _check_folder(self.settings.folder)
            await self._stack.enter_async_context(self._writer)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def call(
        self,
        parts: CallParts,
        *,
        port: MediaPort,
        session: Session,
        observer: Observer,
        asked: bool = False,
        now: Callable[[], float] = time.monotonic,
    ) -> Call:
        """A call on `port`, recorded if the mode and `asked` say so; it does not run yet.

        Raises:
            ProtocolError: recording was asked for and is off here.
        """
        mode = self.settings.mode
        if mode == "off" and asked:
            raise ProtocolError(
                "record: this server does not record (recording.mode)", field="record", code="recording_off"
            )
        if mode == "off" or (mode == "asked" and not asked):
            return Call(parts, port=port, session=session, observer=observer)
        recorder = CallRecorder(
            session.id,
            observer,
            now=now,
            max_slots=int(self.settings.max_hours * 3_600_000 / FRAME_MS),
            on_error=lambda _reason: parts.metrics.error("recording", MediaError),
        )
        if not isinstance(port, Tappable):
            recorder.failed("this kind of call cannot be recorded")
            return Call(parts, port=port, session=session, observer=observer)
        plan = self._plan(session, port.stream_info, recorder.started)
        recorder.begin(Recording(self._writer, plan, recorder.failed))
        port.tap = recorder
        parts = announced(parts, self.settings.announcement)
        log.info("call is recorded", extra={"call_id": session.id})
        return RecordedCall(parts, recorder, port=port, session=session, now=now)

    def _plan(self, session: Session, info: StreamInfo, clock: float) -> Plan:
        head: dict[str, Any] = {
            "version": FORMAT_VERSION,
            "call": session.id,
            "started": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "channel": session.channel,
            "language": session.language,
            "rejoinder": __version__,
        }
        stream = {
            "caller": session.caller,
            "transport": info.transport,
            "rate_hz": info.rate_hz,
            "encoding": info.encoding,
            "payload_type": info.payload_type,
            "events": {str(number): clock for number, clock in info.events.items()},
            "announcement": self.settings.announcement,
            "clock": clock,
        }
        return Plan(
            self.settings.folder,
            session.id,
            self.settings.format,
            info.rate_hz,
            {"format": FORMAT, **head, "audio": f"{session.id}.{self.settings.format}"},
            {**head, **stream},
            self._key,
            self.settings.min_free_mb * MB,
        )


def announced(parts: CallParts, announcement: str) -> CallParts:
    """Parts whose hook says `announcement` first; the same ones when it is empty."""
    if not announcement.strip():
        return parts
    settings = parts.settings
    greet = settings.conversation.greet
    conversation = settings.conversation.model_copy(update={"greet": True})
    return replace(
        parts,
        nlu=Announcing(parts.nlu, announcement, greet=greet),
        settings=settings.model_copy(update={"conversation": conversation}),
    )


def _check_folder(folder: Path) -> None:
    """Make the folder and a file in it. Raises ConfigError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".check-", dir=folder)
        os.close(handle)
        Path(name).unlink()
    except OSError as exc:
        raise ConfigError(
            f"recording.folder: cannot write to {folder}: {exc.strerror}; choose another, or set recording.mode to off"
        ) from exc
