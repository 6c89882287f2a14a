"""One conversation: joins media, listening, turn-taking, the hook and the voice, and owns every task of the call."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass

from agent.asr.protocol import Recognizer
from agent.config import Settings
from agent.conversation import protocol as turns
from agent.conversation.history import History
from agent.conversation.machine import TurnMachine
from agent.errors import CallGone, HookError, MediaError, ProtocolError
from agent.events import (
    AgentText,
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
    OutputCleared,
    OutputPaused,
    OutputResumed,
    PlayoutStarted,
    PlayoutStopped,
    ReplyFinished,
    ReplyStarted,
    ReplyStatus,
    TransferRequested,
    UserTranscript,
)
from agent.hearing import Hearing, new_item_id
from agent.language import primary_language
from agent.line import NOT_RESUMED, CallClock, Line
from agent.listening.endpoint import SilenceEndpoint
from agent.listening.silero import VadEngine
from agent.media.dtmf import DIGITS
from agent.media.frames import Pcm
from agent.media.port import MediaPort, ResumablePort
from agent.nlu.hook import Action, Dtmf, Listen, Nlu, Send, Session, SwitchLanguage, SwitchVoice, Transfer, Turn
from agent.observe.metrics import Metrics, Outcome
from agent.reply import Reply, ReplyResult
from agent.speech.phrases import PhraseBook
from agent.speech.speaker import Speaker
from agent.timings import timings_of
from agent.tts.protocol import Style, Synthesizer, Voice

__all__ = ["Call", "CallParts"]

log = logging.getLogger(__name__)

TASKS_DEADLINE_S = 3.0
"""A call's tasks are given this long to end: a hook's clean-up and a voice engine's goodbye have a second each."""

MAX_FRAME_FAULTS = 50
"""A call of which this many frames in a row (one second) fail is beyond help and is ended."""

MAX_TYPED_CHARS = 4_000

OUTCOMES: dict[str, Outcome] = {
    "transferred": "transferred",
    "caller hung up": "hung_up",
    "peer closed": "hung_up",
    "peer vanished": "lost",
    "not connected": "lost",
    NOT_RESUMED: "lost",
    "internal error": "failed",
    "server stopped": "drained",
}
"""End reasons that are not simply `completed`, as the metrics name them."""


@dataclass(frozen=True, slots=True)
class CallParts:
    """What all calls of a process share."""

    settings: Settings
    nlu: Nlu
    recognizer: Recognizer
    synthesizer: Synthesizer
    vad: VadEngine
    phrases: PhraseBook
    clips: Mapping[str, Pcm]
    """Recordings that `Play` names: int16 [n] mono at the synthesiser's rate."""
    metrics: Metrics
    voices: Callable[[], tuple[str, ...]]
    """Names of the voices that can be asked for."""


@dataclass(slots=True)
class _Speaking:
    """The reply that is running."""

    revision: int
    response_id: str
    item_id: str
    ask: turns.Ask | None
    speaker: Speaker
    reply: Reply
    task: asyncio.Task[None] | None = None
    audible_at: float | None = None
    final_ms: float | None = None
    user_item_id: str = ""
    """The caller's item it answers."""
    timings_sent: bool = False


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
        self._check_heard(session.language, "language")
        self.session = session
        self.id = session.id
        self._voice = Voice(parts.settings.tts.voice, self._spoken(session.language))
        self._style = Style(parts.settings.tts.rate)
        self.history = History()
        self.end_reason: str | None = None
        self._observer = observer
        self._now = CallClock(now or asyncio.get_running_loop().time)
        self._line = Line(port, self, session.id)
        self._began_at = asyncio.get_running_loop().time()
        self._machine = TurnMachine(
            parts.settings.conversation,
            parts.settings.listening,
            SilenceEndpoint(parts.settings.listening.endpoint_silence_ms),
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
        )
        self._speaking: _Speaking | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = asyncio.Event()
        self._closed = asyncio.Event()
        self._floor = self._machine.floor
        self._frame_faults = 0

    @property
    def language(self) -> str:
        """BCP 47 tag the caller is heard and answered in."""
        return self._hearing.language

    @property
    def voice(self) -> str:
        """Name of the voice that speaks."""
        return self._voice.name

    @property
    def speaking_as(self) -> tuple[Voice, Style]:
        """Voice and style of the next clause."""
        return self._voice, self._style

    # -- life ----------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """The whole call, from the greeting to the last task's end. Never raises but on cancellation."""
        channel = self.session.channel
        self.parts.metrics.call_started(channel)
        log.info("call started", extra={"call_id": self.id, "channel": channel})
        try:
            self.emit(FloorChanged(self._floor))
            self._line.open()
            self.feed(turns.CallStarted())
            await self._ended.wait()
        finally:
            self.end_reason = self.end_reason or "server stopped"
            self._machine.end()
            try:
                await self._close()
            finally:
                # Also when a part fails to close, or the close is cancelled: somebody waits for the end.
                self.parts.metrics.call_ended(channel, OUTCOMES.get(self.end_reason, "completed"))
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

    async def _close(self) -> None:
        try:
            self._let_go()
        finally:
            # Whatever of the above fails: no task and no port may outlive the call.
            for task in self._tasks:
                task.cancel()
            await self._end_tasks()

    def _let_go(self) -> None:
        self._hearing.close()
        self.on_replaced(self.port)
        if self._speaking is not None:
            self._finish_reply(self._speaking, "cancelled")

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
        stats = port.stats()
        count = self.parts.metrics.media_frames
        inbound = stats.inbound
        count("received", inbound.received)
        count("fec", inbound.fec)
        count("concealed", inbound.concealed)
        count("late", inbound.late)
        count("duplicate", inbound.duplicate)
        count("discarded", inbound.dropped)
        count("sent", stats.packets_sent)

    def _spawn(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
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
        """Stop speaking; nothing happens if the agent is silent."""
        self.feed(turns.ClientCancelled())

    def respond(self) -> None:
        """Ask the hook again without a new turn of the caller (kind `event`)."""
        self.feed(turns.RespondAgain())

    def configure(
        self, *, voice: str | None = None, language: str | None = None, silence_ms: int | None = None
    ) -> None:
        """Change settings of the running call. Raises ProtocolError naming the field; nothing is changed then."""
        voices = self.parts.voices()
        if voice is not None and voice not in voices:
            raise ProtocolError(f"expected one of {', '.join(voices)}", field="session.voice", code="invalid_value")
        if language is not None:
            self._check_heard(language, "session.language")
        if silence_ms is not None and not 100 <= silence_ms <= 5000:
            field = "session.turn_detection.silence_duration_ms"
            raise ProtocolError("expected 100 to 5000", field=field, code="invalid_value")
        if voice is not None:
            self._voice = Voice(voice, self._voice.language)
        if language is not None:
            self._hearing.language = self._machine.language = language
            self._voice = Voice(self._voice.name, self._spoken(language))
        if silence_ms is not None:
            self._machine.end_of_turn = SilenceEndpoint(silence_ms)

    def _check_heard(self, language: str, field: str) -> None:
        known = self.parts.recognizer.info.languages
        if primary_language(language) not in known:
            raise ProtocolError(f"expected one of {', '.join(known)}", field=field, code="invalid_value")

    def _spoken(self, language: str) -> str:
        """The language to speak to a caller of `language`: that one if a voice has it, else the configured one."""
        spoken = {primary_language(tag) for tag in self.parts.synthesizer.info.languages}
        return language if primary_language(language) in spoken else self.parts.settings.tts.language

    # -- media (MediaSink) ---------------------------------------------------------------------------------------------

    def on_audio(self, pcm: Pcm) -> None:
        """One 20 ms frame from the caller; also the call's tick."""
        if self._ended.is_set():
            return
        try:
            self._watch_playout()
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
        if (speaking := self._speaking) is not None:
            # Its times would be those of the network.
            speaking.timings_sent = speaking.timings_sent or speaking.audible_at is None
            speaking.speaker.hold(unheard_s)
        self.emit(CallSuspended(reason, self.parts.settings.conversation.resume_s))

    def on_reconnected(self) -> None:
        """The caller is back: what was broken off goes on by `conversation.resume_policy`."""
        away_s = self._now.go_on()
        log.info("call resumed", extra={"call_id": self.id, "away_s": round(away_s, 1)})
        self.emit(CallResumed(away_s))
        speaking = self._speaking
        if speaking is None:
            return
        speaking.speaker.release()
        policy = self.parts.settings.conversation.resume_policy
        # A reply of which nothing was heard is no broken one: it is the answer the caller came back for.
        if speaking.audible_at is None or policy == "continue":
            return
        if policy == "repeat":
            speaking.speaker.repeat_clause()
        else:
            self.feed(turns.ClientCancelled())

    def on_port_fault(self, error: Exception) -> None:
        """A port failed to close; the log has it."""
        self.parts.metrics.error("media", error)

    # -- turn-taking ---------------------------------------------------------------------------------------------------

    def feed(self, event: turns.Event) -> None:
        """Give the turn machine an event, and do what it says."""
        for command in self._machine.on(event, self._now()):
            self._do(command)
        if self._machine.floor != self._floor:
            self._floor = self._machine.floor
            self.emit(FloorChanged(self._floor))

    def _do(self, command: turns.Command) -> None:
        match command:
            case turns.RequestFinal(final_id):
                self._spawn(self._hearing.read_final(final_id), "final")
            case turns.ResetEar():
                self._hearing.forget()
            case turns.Ask():
                self._ask(command)
            case turns.Say(revision, phrase):
                self._start_reply(revision, None, phrase)
            case turns.PauseReply():
                self._line.playout.pause()
                if self._speaking is not None:
                    self.emit(OutputPaused(self._speaking.response_id))
            case turns.ResumeReply():
                self._line.playout.resume()
                if self._speaking is not None:
                    self.emit(OutputResumed(self._speaking.response_id))
                self.parts.metrics.interruption("backchannel")
            case turns.StopReply(_, cause):
                self._stop_reply(cause)
            case turns.EndCall(reason):
                self.hangup(reason)

    def _ask(self, ask: turns.Ask) -> None:
        spoken = ask.last_speech_at is not None or ask.again
        item_id = (self._hearing.item_id if spoken else "") or new_item_id()
        if ask.kind == "speech":
            self.emit(UserTranscript(item_id, ask.text, final=True))
        if ask.again and ask.kind in ("speech", "dtmf"):
            # The hook is told of the whole turn, so its beginning is no earlier contribution.
            self.history.retract_user()
        turn = Turn(
            session=self.session,
            kind=ask.kind,
            text=ask.text,
            confidence=ask.confidence,
            language=self.language,
            history=self.history.items,
            interrupted=self.history.take_interrupted(),
        )
        if ask.kind in ("speech", "dtmf"):
            self.history.user(ask.text)
        if spoken:
            self._hearing.item_id = ""
        self._hearing.shown = ""
        self._start_reply(ask.revision, ask, None, turn)
        assert self._speaking is not None
        self._speaking.timings_sent = self._line.suspended
        self._speaking.user_item_id = item_id

    def unanswered_item(self) -> str:
        """The caller's item whose answer is not audible yet."""
        speaking = self._speaking
        return speaking.user_item_id if speaking is not None and speaking.audible_at is None else ""

    # -- speaking ------------------------------------------------------------------------------------------------------

    def _start_reply(self, revision: int, ask: turns.Ask | None, phrase: str | None, turn: Turn | None = None) -> None:
        speaker = Speaker(self._line.playout, self.parts.synthesizer.info.sample_rate_hz)
        if self._line.suspended:
            speaker.hold()
        reply = Reply(
            self.parts.nlu,
            turn or Turn(session=self.session, kind="event", language=self.language, history=self.history.items),
            synthesizer=self.parts.synthesizer,
            phrases=self.parts.phrases,
            clips=self.parts.clips,
            speaker=speaker,
            settings=self.parts.settings.conversation,
            host=self,
            now=self._now,
        )
        ident = uuid.uuid4().hex[:16]
        speaking = _Speaking(revision, f"resp_{ident}", f"item_{ident}", ask, speaker, reply)
        speaking.final_ms = self._hearing.take_final_ms()
        self._speaking = speaking
        self.emit(ReplyStarted(speaking.response_id, speaking.item_id))
        speaking.task = self._spawn(self._run_reply(speaking, phrase), f"reply {revision}")

    async def _run_reply(self, speaking: _Speaking, phrase: str | None) -> None:
        work = speaking.reply.say_phrase(phrase) if phrase else speaking.reply.run()
        result: ReplyResult = await work
        if self._speaking is speaking:
            self._watch_playout()
            self._finish_reply(speaking, result.status)
            self.feed(turns.ReplyEnded(speaking.revision, result.hang_up))

    def _watch_playout(self) -> None:
        """Notice the first audible frame and what actions were reached; called once a tick."""
        speaking = self._speaking
        if speaking is None:
            return
        speaker = speaking.speaker
        if (
            speaking.audible_at is None
            and speaker.started_at_position is not None
            and self._line.playout.position > speaker.started_at_position
        ):
            speaking.audible_at = self._now()
            self.emit(PlayoutStarted(speaking.response_id))
            if self._hearing.item_id == speaking.user_item_id:
                # That turn has its answer now: what is being said belongs to a new one.
                self._hearing.item_id = ""
            self.feed(turns.ReplyAudible(speaking.revision))
        if not speaking.timings_sent and speaking.reply.clock.first_speech is not None:
            self._send_timings(speaking)
        speaker.tick()

    def _send_timings(self, speaking: _Speaking) -> None:
        if speaking.audible_at is None or speaking.timings_sent:
            return
        speaking.timings_sent = True
        timings = timings_of(speaking.response_id, speaking.ask, speaking.reply.clock, speaking)
        if timings is not None:
            self.parts.metrics.turn(self.session.channel, timings)
            self.emit(timings)

    def _stop_reply(self, cause: turns.StopCause) -> None:
        speaking = self._speaking
        if speaking is None:
            return
        speaking.speaker.stop()
        if cause != "dtmf" and cause != "limit":
            self.parts.metrics.interruption(cause)
        self.emit(OutputCleared(speaking.response_id))
        self._finish_reply(speaking, "cancelled")
        if speaking.task is not None:
            speaking.task.cancel()

    def _finish_reply(self, speaking: _Speaking, status: ReplyStatus) -> None:
        heard, unheard = speaking.speaker.heard()
        self._send_timings(speaking)
        self._speaking = None
        cancelled = status == "cancelled"
        if cancelled:
            speaking.speaker.stop()
        if heard or unheard or cancelled:
            self.history.agent(heard, unheard, interrupted=cancelled and bool(heard or unheard))
        if speaking.audible_at is not None:
            self.emit(PlayoutStopped(speaking.response_id))
        self.emit(ReplyFinished(speaking.response_id, speaking.item_id, status, heard, unheard))

    # -- reply host ----------------------------------------------------------------------------------------------------

    def on_clause(self, text: str) -> None:
        """A clause went to playout."""
        if self._speaking is not None:
            self.emit(AgentText(self._speaking.response_id, self._speaking.item_id, text))

    def on_closing(self, reason: str) -> None:
        """The reply ends the call."""
        if self._speaking is not None:
            self.feed(turns.ReplyCloses(self._speaking.revision, reason))

    @property
    def listened_to(self) -> bool:
        """False while the caller is away."""
        return not self._line.suspended

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
                    self._style = Style(self._style.rate, style or "")
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
        log.warning("%s failed: %s", part, what, extra={"call_id": self.id, "part": part})
        self.emit(CallFault(part, str(error) or type(error).__name__))

    def emit(self, event: CallEvent) -> None:
        """Tell the observer."""
        try:
            self._observer(event)
        except Exception:
            log.exception("the observer failed", extra={"call_id": self.id})
