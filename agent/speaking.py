"""What a call says: the reply that runs, the one begun ahead of its turn, and what becomes of both."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from agent.answer import Answer, SpeakingHost
from agent.conversation import protocol as turns
from agent.conversation.history import History
from agent.conversation.running import GOES_ON_S
from agent.errors import MediaError
from agent.events import (
    OutputCleared,
    OutputPaused,
    OutputResumed,
    PlayoutStarted,
    PlayoutStopped,
    ReplyFinished,
    ReplyStarted,
    ReplyStatus,
    UserTranscript,
)
from agent.foreseeing import Foreseeing
from agent.hearing import Hearing, new_item_id
from agent.line import Line
from agent.media.playout import Playout
from agent.nlu.hook import Session, Turn
from agent.parts import CallParts
from agent.reply import Reply, ReplyResult
from agent.speculation import NotPlain, Premise, copied_session
from agent.speech.speaker import Speaker
from agent.timings import timings_of

__all__ = ["Speaking"]

log = logging.getLogger(__name__)

MAX_SAID_CHARS = 200
"""Of a reply that was cut short: about a clause."""

ANSWERING = ("speech", "dtmf")
"""Kinds of turns that are contributions of the caller."""


@dataclass(slots=True)
class _Ahead:
    """An answer whose turn is not over, and what it was begun on."""

    answer: Answer
    session: Session
    premise: Premise


class Speaking:
    """One call's mouth.

    Args:
        parts: engines and settings.
        line: the connection; its playout takes what is said.
        hearing: whose items are answered.
        history: what was heard of it all.
        session: who is called; replaced by a copy with its own state when a reply begun ahead is adopted.
        host: the call.
        foreseeing: told how the dialogue goes.
        now: the call's clock in seconds.
    """

    def __init__(
        self,
        parts: CallParts,
        line: Line,
        hearing: Hearing,
        history: History,
        session: Session,
        host: SpeakingHost,
        foreseeing: Foreseeing,
        *,
        now: Callable[[], float],
    ) -> None:
        self.running: Answer | None = None
        """What the call says now."""
        self.session = session
        self.host = host
        self._ahead: _Ahead | None = None
        self._parts = parts
        self._line = line
        self._hearing = hearing
        self._history = history
        self._foreseeing = foreseeing
        self._now = now
        self._opened_at = now()
        self._spoken: tuple[str, float] = ("", 0.0)
        """The caller's newest item, and when it began, in seconds since the call began."""
        self._asked_item = ""
        """The item that was answered last."""

    @property
    def guarded(self) -> bool:
        """True while what is said must be heard in full."""
        return self.running is not None and self.running.guarded

    @property
    def unanswered_item(self) -> str:
        """The caller's item whose answer is not audible yet, or hardly; empty for none."""
        answer = self.running
        if answer is None:
            return ""
        return answer.user_item_id if answer.audible_at is None or self._now() < answer.audible_at + GOES_ON_S else ""

    def release_item(self) -> None:
        """What was heard over the answer meant nothing: what is said next is no part of the turn it answers."""
        answer = self.running
        if answer is not None and answer.audible_at is not None and self._hearing.item_id == answer.user_item_id:
            self._hearing.item_id = ""

    def _is_current(self, answer: Answer) -> bool:
        return self.running is answer

    def speech_began(self, item_id: str, at_s: float) -> None:
        """The caller's item begins, or goes on; `at_s` counts from the start of the call."""
        if self._spoken[0] != item_id:
            self._spoken = item_id, at_s

    def _since_start(self, at: float) -> float:
        return round(max(0.0, at - self._opened_at), 3)

    # -- what the turn machine says ------------------------------------------------------------------------------------

    def ask(self, ask: turns.Ask) -> None:
        """Ask the hook and speak its reply, or adopt the one that was begun ahead."""
        self._supersede()
        spoken = ask.last_speech_at is not None or ask.again
        known = (self._hearing.item_id if spoken else "") or (self._asked_item if ask.again else "")
        self._asked_item = item_id = known or new_item_id()
        if ask.kind == "speech":
            self.host.emit(UserTranscript(item_id, ask.text, final=True))
        if ask.again and ask.kind in ANSWERING:
            # The hook is told of the whole turn, so its beginning is no earlier contribution.
            self._history.retract_user()
        turn = Turn(
            session=self.session,
            kind=ask.kind,
            text=ask.text,
            confidence=ask.confidence,
            language=self.host.language,
            history=self._history.items,
            interrupted=self._history.take_interrupted(),
            data=ask.data,
        )
        answer = self._adopted(ask, turn) or self._begin(ask.revision, turn)
        answer.ask = ask
        answer.user_item_id = item_id
        # Times of a caller who is away would be those of the network.
        answer.timings_sent = self._line.suspended
        answer.guarded = ask.kind == "greeting" and not self._parts.settings.conversation.greeting_interruptible
        if ask.kind in ANSWERING:
            end_s = self._since_start(self._now() if ask.last_speech_at is None else ask.last_speech_at)
            began_s = self._spoken[1] if self._spoken[0] == item_id else end_s
            self._history.user(ask.text, at_s=min(began_s, end_s), end_s=end_s)
        if spoken:
            self._hearing.item_id = ""
        self._hearing.shown = ""
        self._start(answer)
        if answer.task is None:
            answer.task = self.host.spawn(self._run(answer), f"reply {ask.revision}")
        else:
            answer.tell_opening()
            answer.reply.commit()

    def say(self, say: turns.Say) -> None:
        """Speak a stored phrase."""
        self._supersede()
        turn = Turn(session=self.session, kind="event", language=self.host.language, history=self._history.items)
        answer = self._begin(say.revision, turn)
        self._start(answer)
        answer.task = self.host.spawn(self._say(answer, say.phrase, say.hang_up), f"reply {say.revision}")

    def speculate(self, guess: turns.Speculate, *, again: bool) -> None:
        """Begin the reply to a turn that is likely over, unless hook, load or state forbid it.

        Args:
            again: the turn goes on with one that was asked and not answered.
        """
        self.drop()
        settings = self._parts.settings.conversation
        if (
            not settings.speculate
            or not getattr(self._parts.nlu, "speculate", True)
            or self._line.suspended
            or self._parts.load() > settings.speculate_max_load
        ):
            self._parts.metrics.speculation("declined")
            return
        turn = Turn(
            session=self.session,
            kind="speech",
            text=guess.text,
            confidence=guess.confidence,
            language=self.host.language,
            history=self._history.before_turn if again else self._history.items,
            interrupted=self._history.interrupted,
            speculative=True,
        )
        try:
            premise = Premise.of(turn, self.host.speaking_as)
            session = copied_session(self.session)
        except NotPlain as exc:
            log.debug("nothing is begun ahead: the session's state holds %s", exc)
            self._parts.metrics.speculation("declined")
            return
        answer = self._begin(guess.revision, replace(turn, session=session))
        self._ahead = _Ahead(answer, session, premise)
        answer.task = self.host.spawn(self._run(answer), f"reply {guess.revision} ahead")

    def drop(self, revision: int | None = None) -> None:
        """Close the reply that was begun ahead (of this revision), without trace."""
        ahead = self._ahead
        if ahead is None or revision not in (None, ahead.answer.revision):
            return
        self._ahead = None
        self._parts.metrics.speculation("wasted", ahead.answer.reply.voice_s)
        self._give_up(ahead.answer)

    def pause(self) -> None:
        """Fall silent within a frame, and forget nothing."""
        self._line.playout.pause()
        if self.running is not None:
            self.host.emit(OutputPaused(self.running.response_id))

    def resume(self, cause: turns.ResumeCause) -> None:
        """Go on with the word that was cut: what was said over it did not matter."""
        if self.running is None:
            self._line.playout.resume()
        else:
            self.running.speaker.resume()
            self.host.emit(OutputResumed(self.running.response_id))
            if self.running.audible_at is not None and cause in ("noise", "backchannel", "echo"):
                self._parts.metrics.interruption("backchannel")

    def stop(self, cause: turns.StopCause) -> None:
        """Give the running reply up; history keeps what was heard."""
        answer = self.running
        if answer is None:
            return
        match cause:
            case "barge_in" | "typed" | "client":
                self._parts.metrics.interruption(cause)
        answer.speaker.stop()
        self.host.emit(OutputCleared(answer.response_id))
        self._finish(answer, "cancelled")
        self._give_up(answer)

    def close(self) -> None:
        """The call is over."""
        self.drop()
        if self.running is not None:
            self._finish(self.running, "cancelled")

    # -- what the line says --------------------------------------------------------------------------------------------

    def watch(self) -> None:
        """Notice the first audible frame and what actions were reached; called once a tick."""
        answer = self.running
        if answer is None:
            return
        started = answer.speaker.started_at_position
        if answer.audible_at is None and started is not None and self._line.playout.position > started:
            answer.audible_at = self._now()
            self.host.emit(PlayoutStarted(answer.response_id))
            if self._hearing.item_id == answer.user_item_id:
                # That turn has its answer now: what is being said belongs to a new one.
                self._hearing.item_id = ""
            self.host.feed(turns.ReplyAudible(answer.revision))
        if not answer.timings_sent and answer.reply.clock.first_speech is not None:
            self._send_timings(answer)
        answer.speaker.tick()

    def suspend(self, unheard_s: float) -> None:
        """Nobody hears it for now; what left in the last `unheard_s` seconds was lost."""
        self.drop()
        if (answer := self.running) is not None:
            answer.timings_sent = answer.timings_sent or answer.audible_at is None
            answer.speaker.hold(unheard_s)

    def reconnect(self) -> None:
        """The caller is back: what was broken off goes on by `conversation.resume_policy`."""
        answer = self.running
        if answer is None:
            return
        answer.speaker.release()
        policy = self._parts.settings.conversation.resume_policy
        # A reply of which nothing was heard is no broken one: it is the answer the caller came back for.
        if answer.audible_at is None or policy == "continue":
            return
        if policy == "repeat":
            answer.speaker.repeat_clause()
        else:
            self.host.feed(turns.ClientCancelled())

    # -- one answer ----------------------------------------------------------------------------------------------------

    def _begin(self, revision: int, turn: Turn) -> Answer:
        """An answer that nobody knows of yet."""
        playout = self._line.playout
        if turn.speculative:
            playout = Playout(playout.sample_rate_hz, codec=playout.codec)
        speaker = Speaker(playout, self._parts.synthesizer.info.sample_rate_hz)
        if turn.speculative or self._line.suspended:
            speaker.hold()
        answer = Answer(self.host, self._is_current, revision, speaker, self._foreseeing, self._written)
        answer.reply = Reply(
            self._parts.nlu,
            turn,
            synthesizer=self._parts.synthesizer,
            phrases=self._parts.phrases,
            clips=self._parts.clips,
            speaker=speaker,
            settings=self._parts.settings.conversation,
            host=answer,
            now=self._now,
        )
        return answer

    def _adopted(self, ask: turns.Ask, turn: Turn) -> Answer | None:
        """The answer that was begun ahead, in the call's playout, if it answers this turn; else it is closed."""
        ahead = self._ahead
        if ahead is None:
            return None
        answer = ahead.answer
        if (
            not ask.speculated
            or answer.revision != ask.revision
            or answer.reply.failed
            or not ahead.premise.holds(turn, self.host.speaking_as)
        ):
            self.drop()
            return None
        try:
            answer.speaker.join(self._line.playout)
        except MediaError:
            log.exception("a reply begun ahead did not fit")
            self.drop()
            return None
        self._ahead = None
        # What the hook wrote into its copy is the state now, and what it will yet write as well.
        self.session = ahead.session
        self._parts.metrics.speculation("used", answer.reply.voice_s)
        return answer

    def _supersede(self) -> None:
        """Only one answer at a time: whatever still runs was to be stopped before."""
        if (answer := self.running) is not None:
            self._finish(answer, "cancelled")
            self._give_up(answer)

    def _start(self, answer: Answer) -> None:
        """From here on the answer is what the call says."""
        self.drop()
        answer.final_ms = self._hearing.take_final_ms()
        self.running = answer
        self.host.emit(ReplyStarted(answer.response_id, answer.item_id))
        if answer.task is not None and not self._line.suspended:
            answer.speaker.release()

    async def _run(self, answer: Answer) -> None:
        self._ended(answer, await answer.reply.run())

    async def _say(self, answer: Answer, phrase: str, hang_up: str | None) -> None:
        result = await answer.reply.say_phrase(phrase)
        self._ended(answer, replace(result, hang_up=hang_up))

    def _ended(self, answer: Answer, result: ReplyResult) -> None:
        if self._is_current(answer):
            self.watch()
            self._finish(answer, result.status)
            self.host.feed(turns.ReplyEnded(answer.revision, result.hang_up))

    def _finish(self, answer: Answer, status: ReplyStatus) -> None:
        heard, unheard = answer.speaker.heard()
        self._send_timings(answer)
        self.running = None
        cancelled = status == "cancelled"
        if cancelled:
            answer.speaker.stop()
        if heard or unheard or cancelled:
            now = self._now()
            self._history.agent(
                heard,
                unheard,
                interrupted=cancelled and bool(heard or unheard),
                at_s=self._since_start(now if answer.audible_at is None else answer.audible_at),
                end_s=self._since_start(now),
            )
        if heard and (cancelled or not answer.said_told):
            self._foreseeing.said(self._last_said(answer, cancelled, heard), self.session, self._next_turn)
        if answer.audible_at is not None:
            self.host.emit(PlayoutStopped(answer.response_id))
        self.host.emit(ReplyFinished(answer.response_id, answer.item_id, status, heard, unheard))

    def _written(self, answer: Answer) -> None:
        """What comes next can be made from here on, while this still plays."""
        if answer.said:
            answer.said_told = True
            self._foreseeing.said(self._last_said(answer, False, ""), self.session, self._next_turn)

    def _last_said(self, answer: Answer, cancelled: bool, heard: str) -> str:
        if answer.reply.private:
            return ""
        return heard[-MAX_SAID_CHARS:] if cancelled else answer.said

    def _next_turn(self) -> Turn:
        """What is known of it before the caller speaks."""
        return Turn(session=self.session, kind="speech", language=self.host.language, history=self._history.items)

    def _give_up(self, answer: Answer) -> None:
        answer.speaker.stop()
        if answer.task is not None:
            # The hook is closed on the way out, with a deadline.
            answer.task.cancel()

    def _send_timings(self, answer: Answer) -> None:
        if answer.audible_at is None or answer.timings_sent:
            return
        answer.timings_sent = True
        timings = timings_of(answer.response_id, answer.ask, answer.reply.clock, answer)
        if timings is not None:
            self._parts.metrics.turn(self.session.channel, timings)
            self.host.emit(timings)
