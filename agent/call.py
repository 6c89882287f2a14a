"""One conversation: joins media, listening, turn-taking, the hook and the voice, and owns every task of the call."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Mapping

from agent.conversation import protocol as turns
from agent.conversation.history import History
from agent.conversation.machine import TurnMachine
from agent.errors import CallGone, HookError, MediaError, NotInterruptible, ProtocolError
from agent.events import (
    CallEnded,
    CallEvent,
    CallFault,
    CallResumed,
    CallSuspended,
    ClientData,
    DtmfPressed,
    DtmfSent,
    FloorChanged,
    MediaResumed,
    MediaStalled,
    Observer,
    SpeechStarted,
    TransferRequested,
)
from agent.foreseeing import Foreseeing
from agent.hearing import Hearing
from agent.line import CallClock, Line
from agent.listening.endpoint import SilenceEndpoint
from agent.listening.fused import create_endpoint
from agent.manner import Manner
from agent.media.dtmf import DIGITS
from agent.media.frames import Pcm
from agent.media.port import MediaPort, ResumablePort
from agent.nlu.hook import Action, Dtmf, Listen, Send, Session, SwitchLanguage, SwitchVoice, Transfer
from agent.outcome import outcome_of
from agent.parts import CallParts
from agent.speaking import Speaking
from agent.tts.protocol import Style, Voice

__all__ = ["Call", "CallParts"]

log = logging.getLogger(__name__)

TASKS_DEADLINE_S = 3.0
"""A call's tasks are given this long to end: a hook's clean-up and a voice engine's goodbye have a second each."""

MAX_FRAME_FAULTS = 50
"""A call of which this many frames in a row (one second) fail is beyond help and is ended."""

MAX_TYPED_CHARS = 4_000


class Call:
    """One caller's conversation. Use `await run()`; everything else may be called on the event loop while it runs.

    Args:
        parts: shared engines and settings.
        port: the caller's audio; the call attaches to it, and closes it at the end.
        session: who is calling.
        observer: told everything that happens.
        now: monotonic clock in seconds.

    Raises ProtocolError if the recogniser does not know the session's language: the caller would talk to the deaf.
    """

    def __init__(
        self,
        parts: CallParts,
        *,
        port: MediaPort,
        session: Session,
        observer: Observer,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.parts = parts
        self._manner = Manner(parts, session.language)
        self.id = session.id
        self.history = History()
        self.end_reason: str | None = None
        self._observer = observer
        self._now = CallClock(now or asyncio.get_running_loop().time)
        self._line = Line(port, self, session.id)
        self._began_at = asyncio.get_running_loop().time()
        self._machine = TurnMachine(
            parts.settings.conversation,
            parts.settings.listening,
            create_endpoint(parts.settings.listening),
            language=session.language,
        )
        self._hearing = Hearing(
            parts.settings.listening,
            parts.recognizer,
            parts.vad,
            self._machine,
            self,
            language=session.language,
            now=self._now,
            sound=parts.turn_sound(),
        )
        self._foreseeing = Foreseeing(parts.foresight, getattr(parts.nlu, "expect", None), session.id)
        self._speaking = Speaking(
            parts, self._line, self._hearing, self.history, session, self, self._foreseeing, now=self._now
        )
        self._events: deque[turns.Event] = deque()
        """What the turn machine is still to be told; more than one only while its commands are carried out."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._floor = self._machine.floor
        self._frame_faults = 0

    @property
    def session(self) -> Session:
        """Who is calling, and the hook's memory of the call."""
        return self._speaking.session

    @property
    def language(self) -> str:
        """BCP 47 tag the caller is heard and answered in."""
        return self._hearing.language

    @property
    def voice(self) -> str:
        """Name of the voice that speaks."""
        return self._manner.voice.name

    @property
    def speaking_as(self) -> tuple[Voice, Style]:
        """Voice and style of the next clause."""
        return self._manner.voice, self._manner.style

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The whole call, from the greeting to the last task's end. Never raises but on cancellation."""
        channel = self.session.channel
        self.parts.metrics.call_started(channel)
        log.info("call started", extra={"call_id": self.id, "channel": channel})
        try:
            self.emit(FloorChanged(self._floor))
            self._foreseeing.speaks_as(*self.speaking_as, self.session.caller)
            self._line.open()
            self.feed(turns.CallStarted())
            await self._ended.wait()
        finally:
            self.end_reason = self.end_reason or "server stopped"
            continues = self._machine.continues
            self._machine.end()
            try:
                await self._close(continues)
            finally:
                # Also when a part fails to close, or the close is cancelled: somebody waits for the end.
                self.parts.metrics.call_ended(channel, outcome_of(self.end_reason))
                log.info("call ended", extra={"call_id": self.id, "reason": self.end_reason})
                self._closed.set()

    async def wait_ended(self) -> str:
        """Wait until everything of the call is gone; returns the reason."""
        await self._closed.wait()
        assert self.end_reason is not None
        return self.end_reason

    def hangup(self, reason: str) -> None:
        """End the call now. Idempotent."""
        if self.end_reason is None:
            self.end_reason = reason
            self._ended.set()

    async def _close(self, continues: str) -> None:
        try:
            self._foreseeing.ended()
            self._speaking.close()
            await self._hearing.last_words(continues)
            self._let_go()
        finally:
            # Whatever of the above fails: no task and no port may outlive the call.
            for task in self._tasks:
                task.cancel()
            await self._end_tasks()

    def _let_go(self) -> None:
        self._hearing.close()
        self.on_replaced(self.port)

    async def _end_tasks(self) -> None:
        try:
            if self._tasks:
                await asyncio.wait(self._tasks, timeout=TASKS_DEADLINE_S)
            if self._tasks:
                log.error("tasks did not end in time", extra={"call_id": self.id, "tasks": len(self._tasks)})
        finally:
            assert self.end_reason is not None
            # While the port still carries messages: this is the last one the client gets.
            self.emit(CallEnded(self.end_reason))
            await self._line.close()

    def on_replaced(self, port: MediaPort) -> None:
        """A port is about to be closed: count its frames."""
        self.parts.metrics.port(port.stats())

    def spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        """Run `work` in a task that ends with the call; its failure ends the call."""
        task = asyncio.create_task(work, name=f"{self.id} {name}")
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("task %s failed", task.get_name(), exc_info=error, extra={"call_id": self.id})
            self.parts.metrics.error("call", error)
            self.hangup("internal error")

    # -- the client ----------------------------------------------------------------------------------------------------

    def type_text(self, text: str) -> None:
        """A typed message: a turn of its own. Raises ProtocolError when it is empty or too long."""
        text = text.strip()
        if not text or len(text) > MAX_TYPED_CHARS:
            raise ProtocolError(
                f"expected 1 to {MAX_TYPED_CHARS} characters of text", field="text", code="invalid_value"
            )
        self.feed(turns.Typed(text))

    def press(self, digit: str) -> None:
        """A key press: 0-9 * # A-D. Raises ProtocolError."""
        if len(digit) != 1 or digit.upper() not in DIGITS:
            raise ProtocolError("expected one of 0-9 * # A-D", field="digit", code="invalid_value")
        self.on_dtmf(digit.upper())

    def cancel_reply(self) -> None:
        """Stop speaking; nothing happens if the agent is silent.

        Raises NotInterruptible when the hook wants this to be heard in full, or these are the call's last words.
        """
        if self._speaking.guarded or self._machine.state is turns.State.CLOSING:
            raise NotInterruptible("the reply cannot be interrupted")
        self.feed(turns.ClientCancelled())

    def respond(self, data: Mapping[str, object] | None = None) -> None:
        """Ask the hook again without a new turn of the caller (kind `event`). `data`: what has happened."""
        self.feed(turns.RespondAgain(data or {}))

    def configure(
        self, *, voice: str | None = None, language: str | None = None, silence_ms: int | None = None
    ) -> None:
        """Change settings of the running call. Raises ProtocolError naming the field; nothing is changed then."""
        self._manner.check(voice=voice, language=language, silence_ms=silence_ms)
        self._manner.change(voice=voice, language=language)
        self._foreseeing.speaks_as(*self.speaking_as, self.session.caller)
        if language is not None:
            self._hearing.language = self._machine.language = language
        if silence_ms is not None:
            # Whoever names a silence wants that silence, whatever is being said.
            self._machine.end_of_turn = SilenceEndpoint(silence_ms)

    # -- media (MediaSink) ---------------------------------------------------------------------------------------------

    def on_audio(self, pcm: Pcm) -> None:
        """One 20 ms frame from the caller; also the call's tick."""
        if self._ended.is_set():
            return
        try:
            self._speaking.watch()
            self._hearing.take(pcm)
            self.feed(turns.Tick())
            self._frame_faults = 0
        except Exception as exc:
            # The shared ticker must not lose this call over one bad frame, nor this call drag others down.
            self._frame_faults += 1
            log.exception("a frame failed", extra={"call_id": self.id})
            self.parts.metrics.error("call", exc)
            if self._frame_faults >= MAX_FRAME_FAULTS:
                self.hangup("internal error")

    def on_dtmf(self, digit: str) -> None:
        """A finished key press from the media path."""
        if not self._ended.is_set():
            self.emit(DtmfPressed(digit))
            self.feed(turns.DigitPressed(digit))

    def on_stalled(self, silence_s: float) -> None:
        """Nothing comes from the caller's side; the call waits, since a route may come back."""
        if not self._ended.is_set():
            log.info("no audio from the caller", extra={"call_id": self.id, "silence_s": round(silence_s, 1)})
            self.emit(MediaStalled(silence_s))

    def on_resumed(self, silence_s: float) -> None:
        """The caller's audio is back."""
        if not self._ended.is_set():
            log.info("the caller's audio is back", extra={"call_id": self.id, "silence_s": round(silence_s, 1)})
            self.emit(MediaResumed(silence_s))

    # -- the line (LineHost) -------------------------------------------------------------------------------------------

    @property
    def port(self) -> MediaPort:
        """The caller's audio as it is connected now."""
        return self._line.port

    @property
    def suspended(self) -> bool:
        """True while the connection is lost and the caller may come back."""
        return self._line.suspended

    def allow_resume(self) -> float:
        """Let this call outlive its connection; returns for how many seconds, 0.0 when that is switched off."""
        seconds = self.parts.settings.conversation.resume_s
        self._line.allow_resume(seconds)
        return seconds

    def forbid_resume(self, reason: str) -> None:
        """From here on a lost connection ends the call; one that is suspended now is ended, for `reason`."""
        self._line.forbid_resume(reason)

    def attach_port(self, port: ResumablePort) -> None:
        """The caller comes back over `port`, also while the old connection is still there; that one is closed.

        The call owns the port from here on. Raises CallGone, and MediaError when the port cannot play its speech.
        """
        age_s = asyncio.get_running_loop().time() - self._began_at
        # The turn machine's own limit runs on a clock that stands still while the caller is away.
        if self._ended.is_set() or age_s >= self.parts.settings.conversation.max_call_s:
            raise CallGone("the call is over")
        self._line.replace(port)

    def on_suspended(self, reason: str, unheard_s: float) -> None:
        """The connection is gone: everything waits, and what nobody heard is taken back."""
        self._now.stop()
        log.info("call suspended", extra={"call_id": self.id, "reason": reason})
        # What was said before the break is read, and belongs to the turn.
        self._hearing.fall_silent()
        self._speaking.suspend(unheard_s)
        self.emit(CallSuspended(reason, self.parts.settings.conversation.resume_s))

    def on_reconnected(self) -> None:
        """The caller is back: what was broken off goes on by `conversation.resume_policy`."""
        away_s = self._now.go_on()
        log.info("call resumed", extra={"call_id": self.id, "away_s": round(away_s, 1)})
        self.emit(CallResumed(away_s))
        self._speaking.reconnect()

    def on_port_fault(self, error: Exception) -> None:
        """A port failed to close; the log has it."""
        self.parts.metrics.error("media", error)

    # -- turn-taking ---------------------------------------------------------------------------------------------------

    def feed(self, event: turns.Event) -> None:
        """Give the turn machine an event, and do what it says."""
        self._events.append(event)
        if isinstance(event, turns.PartialHeard):
            self._foreseeing.heard(f"{self._machine.continues} {event.text}".strip())
        if len(self._events) > 1:
            # Its commands are being carried out: what comes of them is told after the last of them.
            return
        try:
            while self._events:
                for command in self._machine.on(self._events[0], self._now()):
                    self._do(command)
                self._events.popleft()
        finally:
            self._events.clear()
        if self._machine.floor != self._floor:
            self._floor = self._machine.floor
            self.emit(FloorChanged(self._floor))

    def _do(self, command: turns.Command) -> None:
        match command:
            case turns.RequestFinal(final_id):
                self.spawn(self._hearing.read_final(final_id), "final")
            case turns.ResetEar():
                self._hearing.forget()
                self._speaking.release_item()
            case turns.Ask():
                self._speaking.ask(command)
            case turns.Speculate():
                self._speaking.speculate(command, again=bool(self._machine.continues))
            case turns.DropSpeculation(revision):
                self._speaking.drop(revision)
            case turns.Say():
                self._speaking.say(command)
            case turns.PauseReply():
                self._speaking.pause()
            case turns.ResumeReply(cause):
                self._speaking.resume(cause)
            case turns.StopReply(_, cause):
                self._speaking.stop(cause)
            case turns.EndCall(reason):
                self.hangup(reason)

    def unanswered_item(self) -> str:
        """The caller's item whose answer is not audible yet."""
        return self._speaking.unanswered_item

    def on_action(self, action: Action) -> None:
        """An action's place was reached."""
        match action:
            case Transfer(to):
                self.emit(TransferRequested(to))
            case Dtmf(digits):
                try:
                    self.port.send_dtmf(digits)
                except MediaError as exc:
                    self.fault("media", exc)
                else:
                    self.emit(DtmfSent(digits))
            case SwitchLanguage(tag):
                try:
                    self.configure(language=tag)
                except ProtocolError as exc:
                    self.fault("nlu", exc)
            case SwitchVoice(voice, style):
                try:
                    self.configure(voice=voice)
                except ProtocolError as exc:
                    self.fault("nlu", exc)
                else:
                    before, self._manner.style = self._manner.style, Style(self._manner.style.rate, style or "")
                    if self._manner.style != before:
                        self._foreseeing.speaks_as(*self.speaking_as, self.session.caller)
            case Send(data):
                self.emit(ClientData(data))
            case Listen():
                self.feed(turns.Listened(action))
            case _:
                pass

    # -- telling -------------------------------------------------------------------------------------------------------

    def fault(self, part: str, error: BaseException) -> None:
        """A part failed and was covered: count, log and tell it."""
        self.parts.metrics.error(part, error)
        # A HookError says what is wrong with the hook and never quotes the caller; an engine's message might.
        what = str(error) if isinstance(error, HookError) else type(error).__name__
        at = error.at if isinstance(error, HookError) else ""
        log.warning("%s failed: %s", part, what, extra={"call_id": self.id, "part": part} | ({"at": at} if at else {}))
        self.emit(CallFault(part, str(error) or type(error).__name__, at))

    def emit(self, event: CallEvent) -> None:
        """Tell the observer."""
        if isinstance(event, SpeechStarted):
            self._speaking.speech_began(event.item_id, event.audio_ms / 1000)
        try:
            self._observer(event)
        except Exception:
            log.exception("the observer failed", extra={"call_id": self.id})
