"""Who has the floor: the turn machine.

Pure: it is fed `(event, now)`, keeps one explicit `State` and answers with commands. It knows no task, socket or clock;
`now` is any monotonic clock in seconds. A reply is known by its revision; events of an older revision change nothing,
so output of a reply that was given up can never be taken for the current one. What may follow what is a table
(`transitions.py`); a move that is not in it is a bug and raises AssertionError.
"""

from __future__ import annotations

from dataclasses import replace

from agent.config import ConversationSettings, ListeningSettings
from agent.conversation.caller_turn import CallerTurn
from agent.conversation.interruption import Interruption
from agent.conversation.keypad import DIGIT_GAP_S, Keypad
from agent.conversation.limits import Due, Limits
from agent.conversation.overheard import NEAR_END_S, Overheard
from agent.conversation.protocol import (
    AgentSays,
    Ask,
    CallStarted,
    ClientCancelled,
    Command,
    DigitPressed,
    EndCall,
    Event,
    FinalFailed,
    FinalHeard,
    Listened,
    PartialHeard,
    PauseReply,
    ReplyAudible,
    ReplyCloses,
    ReplyEnded,
    ReplyGuarded,
    RequestFinal,
    ResetEar,
    RespondAgain,
    ResumeCause,
    ResumeReply,
    Say,
    SoundJudged,
    State,
    StopCause,
    StopReply,
    Tick,
    Typed,
    VoiceBegan,
    VoiceEnded,
)
from agent.conversation.running import Running
from agent.conversation.said import Said
from agent.conversation.speculation import Speculation
from agent.conversation.transitions import ALLOWED, FLOOR, REPLYING, Why
from agent.conversation.words import count_words
from agent.events import Floor
from agent.listening.endpoint import EndOfTurn, Verdict
from agent.nlu.hook import Listen

__all__ = ["TurnMachine"]

FINAL_DEADLINE_S = 3.0
"""A recogniser that has not answered by then is given up; the last partial stands in for it."""

TIME_UP = "maximum call time"


class TurnMachine:
    """One call's turn-taking.

    Args:
        conversation: barge-in rules, speculation and limits.
        listening: the shortest segment that counts as speech.
        end_of_turn: how long a pause ends the turn.
        language: BCP 47 tag of the caller.
    """

    def __init__(
        self,
        conversation: ConversationSettings,
        listening: ListeningSettings,
        end_of_turn: EndOfTurn,
        *,
        language: str = "en",
    ) -> None:
        self.conversation = conversation
        self.listening = listening
        self.end_of_turn = end_of_turn
        self.state = State.LISTENING
        self.revision = 0
        """Number of the newest reply."""
        self.expect = Listen()
        self.caller = CallerTurn()
        self.said = Said()
        self._interruption = Interruption(
            conversation, self.caller, self.said, stop_ms=listening.stop_ms, language=language
        )
        self._numbered = 0
        """The newest revision that was given to a reply or a speculation."""
        self._reply: Running | None = None
        self._unanswered: Ask | None = None
        """The turn whose reply was given up before it was heard: speech and keys continue it, noise repeats it."""
        self._speculation = Speculation(conversation)
        self._keypad = Keypad()
        self._limits: Limits | None = None

    @property
    def language(self) -> str:
        """BCP 47 tag of the caller."""
        return self._interruption.language

    @language.setter
    def language(self, tag: str) -> None:
        self._interruption.language = tag

    @property
    def floor(self) -> Floor:
        """Who has the floor, for display."""
        return FLOOR[self.state]

    @property
    def continues(self) -> str:
        """The turn that the speech now being heard goes on with, as far as it was asked already; else empty."""
        ask = self._unanswered if self.state in (State.HEARING, State.DECIDING) else None
        if self.state is State.PAUSED and self._reply is not None and self._reply.audible_at is None:
            ask = self._reply.ask
        return ask.text if ask is not None and ask.kind == "speech" else ""

    def awaits(self, final_id: int) -> bool:
        """Whether `RequestFinal(final_id)` still waits for its answer; one that was overtaken changes nothing."""
        return final_id == self.caller.final_id and self.caller.final is None

    def hears_itself(self, text: str) -> bool:
        """Whether `text`, a reading of the running turn, is an echo of what the agent said."""
        return self._interruption.hears(text) is Overheard.ECHO

    def end(self) -> None:
        """The call is over, whatever was going on."""
        if self.state is not State.ENDED:
            self._go(Why.OVER, State.ENDED)

    def on(self, event: Event, now: float) -> list[Command]:
        """Feed one event; returns what is to be done, in order."""
        if self.state is State.ENDED:
            return []
        limits = self._limits = self._limits or Limits(self.conversation, now)
        match event:
            case Tick():
                return self._tick(limits, now)
            case CallStarted():
                if not self.conversation.greet or self.revision or self.state is not State.LISTENING:
                    return []
                return self._ask(now, Ask(0, "greeting"), Why.GREETING)
            case VoiceBegan(ago_ms):
                limits.activity(now)
                return self._voice_began(now - ago_ms / 1000)
            case VoiceEnded(ago_ms, speech_ms):
                limits.activity(now)
                return self._voice_ended(now - ago_ms / 1000, speech_ms, now)
            case PartialHeard():
                return self._partial_heard(event, now)
            case FinalHeard(final_id=final_id) | FinalFailed(final_id=final_id):
                return self._final_heard(event, now) if final_id == self.caller.final_id else []
            case SoundJudged(final_id, probability):
                if final_id != self.caller.final_id:
                    return []
                self.caller.sound = probability
                return self._decide(now)
            case Typed(text):
                stop = self._give_up("typed", now)
                return [*stop, *self._fresh_ear(), *self._ask(now, Ask(0, "speech", text), Why.TYPED)]
            case DigitPressed(digit):
                return self._digit(digit, now)
            case ClientCancelled():
                return self._cancelled(now)
            case RespondAgain(data):
                stop = self._give_up("client", now)
                return [*self._speculation.drop(), *stop, *self._ask(now, Ask(0, "event", data=data), Why.RESPOND)]
            case Listened(listen):
                self.expect = listen
                return []
            case ReplyAudible() | AgentSays() | ReplyGuarded() | ReplyCloses() | ReplyEnded():
                reply = self._reply
                return self._of_reply(event, reply, now) if reply and event.revision == reply.revision else []

    # -- the caller speaks ---------------------------------------------------------------------------------------------

    def _voice_began(self, since: float) -> list[Command]:
        self._keypad.place(count_words(self.caller.reading))
        self.caller.voice_began(since)
        if self.state in (State.LISTENING, State.DECIDING):
            self._go(Why.VOICE, State.HEARING)
        return [*self._speculation.drop()]

    def _voice_ended(self, last_speech: float, speech_ms: int, now: float) -> list[Command]:
        caller = self.caller
        if self.state in (State.CLOSING, State.LISTENING):
            # Nothing answers the last words; and a turn that was cut left no more than its end to be heard.
            caller.voice_since = None
            return self._fresh_ear()
        if caller.speech_ms + speech_ms < self.listening.min_segment_ms:
            caller.voice_since = None
            return self._was_noise(now)
        final_id = caller.voice_ended(last_speech, speech_ms)
        if self.state is State.HEARING:
            self._go(Why.PAUSE, State.DECIDING)
        return [RequestFinal(final_id)]

    def _partial_heard(self, partial: PartialHeard, now: float) -> list[Command]:
        caller = self.caller
        if caller.since is None:
            return []
        if partial.text != caller.partial.text:
            caller.partial_at = now
        caller.partial = partial
        if self.state is State.PAUSED:
            return self._weigh(now)
        return self._decide(now)

    def _final_heard(self, final: FinalHeard | FinalFailed, now: float) -> list[Command]:
        self.caller.read(final)
        self._keypad.place(count_words(self.caller.reading))
        match self.state:
            case State.PAUSED if self._reply is not None:
                return self._paused_for(self._hears_over(self._reply), now)
            case State.THINKING | State.SPEAKING if self._reply is not None:
                return self._heard_over(self._hears_over(self._reply), self._reply, now)
            case _:
                return self._decide(now)

    def _decide(self, now: float) -> list[Command]:
        """In DECIDING: is the turn over, and is its text known?"""
        caller, conversation = self.caller, self.conversation
        if self.state is not State.DECIDING or caller.last_speech is None:
            return []
        final = caller.final
        if final is None and now - caller.last_speech >= FINAL_DEADLINE_S + self.listening.stop_ms / 1000:
            reading = caller.partial.text
            final = FinalHeard(caller.final_id, reading) if reading else FinalFailed(caller.final_id)
        match final:
            case None:
                # A reading of which nothing will change is as good as a final to begin a reply to.
                partial = caller.partial
                sure = partial.text == partial.stable and self._is_meant(partial.text)
                return self._foresee(partial.text, 1.0, self._judge(now)) if sure else []
            case FinalFailed():
                return [*self._fresh_ear(), *self._say("apology", now, Why.DEAF)]
            case FinalHeard(text=text):
                if not self._is_meant(text):
                    return self._was_noise(now)
                verdict = self._judge(now, final)
                waited = (now - caller.last_speech) * 1000 >= verdict.wait_ms and self._keys_over(now)
                if waited or self._keypad.complete(self._wanted_digits) or caller.lasts(now, conversation.max_turn_s):
                    return self._turn_over(final, now)
                return self._foresee(text, final.confidence, verdict)

    def _is_meant(self, text: str) -> bool:
        return bool(text.strip()) and self._interruption.is_meant(text, self.expect.expect)

    def _judge(self, now: float, final: FinalHeard | None = None) -> Verdict:
        text, stable = (final.text, final.text) if final else (self.caller.partial.text, self.caller.partial.stable)
        evidence = self.caller.evidence(now, final.end_of_turn if final else None)
        return self.end_of_turn.judge(
            replace(
                evidence,
                text=self._whole(text),
                stable=self._whole(stable),
                expect=self.expect.expect,
                min_digits=self.expect.min_digits,
                language=self.language,
                asked=self.said.asked,
            )
        )

    def _whole(self, text: str) -> str:
        """The turn's text with its keys, and with what was asked already."""
        before = self._continued
        text = self._keypad.join(text)
        return text if before is None else f"{before.text} {text}".strip()

    @property
    def _continued(self) -> Ask | None:
        """The turn that is being gone on with."""
        ask = self._unanswered
        return ask if ask is not None and ask.kind == "speech" else None

    def _foresee(self, text: str, confidence: float, verdict: Verdict) -> list[Command]:
        """The turn is not over yet: begin a reply if it is likely to be soon."""
        # A turn that goes on, or has keys, is not what its words alone say.
        if self._continued or self._keypad or not self._speculation.wants(text, verdict.probability):
            return []
        return [*self._speculation.begin(self._number(), text, confidence)]

    def _turn_over(self, final: FinalHeard, now: float) -> list[Command]:
        caller, before, text = self.caller, self._continued, self._whole(final.text)
        if before is not None and before.last_speech_at is not None and caller.since is not None:
            caller.pauses.turn_went_on((caller.since - before.last_speech_at) * 1000)
        begun = None if before or self._keypad else self._speculation.adopt(text)
        turn = Ask(
            begun or 0,
            "speech",
            text,
            final.confidence,
            caller.last_speech,
            again=before is not None,
            speculated=begun is not None,
        )
        self._keypad.clear()
        return [*self._fresh_ear(), *self._ask(now, turn, Why.TURN_OVER)]

    def _was_noise(self, now: float) -> list[Command]:
        """What was heard was no speech: go on as if it had not been."""
        commands = self._fresh_ear()
        if self.state is State.PAUSED:
            return [*commands, *self._resume("noise")]
        if self.state not in (State.HEARING, State.DECIDING):
            return commands
        if self._unanswered is not None and not self._keypad:
            again = replace(self._unanswered, last_speech_at=None, again=True, speculated=False)
            return [*commands, *self._ask(now, again, Why.NOISE_AGAIN)]
        self._rest(Why.NOISE, now)
        return [*commands, *self._enter_keys(now)]

    def _cut_turn(self, now: float) -> list[Command]:
        """Take a turn that does not end as it stands; what is still being said belongs to nothing."""
        self._go(Why.CUT, State.DECIDING)
        return [RequestFinal(self.caller.voice_ended(now, 0))]

    # -- the caller speaks over the agent ------------------------------------------------------------------------------

    def _spoken_over(self, reply: Running, since: float, now: float) -> list[Command]:
        """Speech over the agent goes on: fall silent, and decide later."""
        if not self._interruption.pauses(reply, since, now):
            return []
        self._go(Why.SPOKEN_OVER, State.PAUSED)
        reply.paused_at = now
        return [PauseReply()]

    def _weigh(self, now: float) -> list[Command]:
        """The reply is paused and nothing was read for good: is what was heard so far enough?"""
        caller, reply = self.caller, self._reply
        assert reply is not None
        if caller.voice_since is not None:
            return self._interrupt(now) if self._interruption.takes_floor(reply, caller.voice_since, now) else []
        if caller.final is not None and self._interruption.settled(now):
            return self._paused_for(self._hears_over(reply), now)
        if not self._interruption.waited_in_vain(reply, now):
            return []
        if self._interruption.hears(caller.partial.text) is Overheard.WORDS:
            return self._interrupt(now)
        return self._resume("noise")

    def _hears_over(self, reply: Running) -> Overheard:
        """What was read over `reply` is taken for."""
        heard = self._interruption.hears(self.caller.reading)
        # Whoever says "okay" to a goodbye into the silence is there, as much as whoever says "stop".
        return Overheard.WORDS if heard is Overheard.BACKCHANNEL and self._may_be_answered(reply) else heard

    def _paused_for(self, heard: Overheard, now: float) -> list[Command]:
        """The speech for which the reply was paused was read."""
        match heard:
            case Overheard.WORDS:
                return [*self._interrupt(now), *self._decide(now)]
            case _ if not self._interruption.settled(now):
                return []
            case Overheard.ECHO:
                cause: ResumeCause = "echo"
            case Overheard.BACKCHANNEL:
                cause = "backchannel"
            case _:
                cause = "noise"
        return [*self._forget_or_keep(heard, now), *self._resume(cause)]

    def _heard_over(self, heard: Overheard, reply: Running, now: float) -> list[Command]:
        """Speech over a reply that is not paused was read: a late final, or nothing that may stop it."""
        if heard in (Overheard.FEW, Overheard.WORDS) and not self._interruption.may_stop(reply):
            return []
        if not self._interruption.in_time(reply):
            return []
        return self._interrupt(now) if heard is Overheard.WORDS else self._forget_or_keep(heard, now)

    def _forget_or_keep(self, heard: Overheard, now: float) -> list[Command]:
        """Words that do not take the floor: keep them for a while if they may answer what is just being asked."""
        if heard is Overheard.ECHO:
            self.said.echoed(now)
        if not self._interruption.keeps(heard, self.expect.expect):
            return self._fresh_ear()
        self.caller.kept_until = (self.caller.last_speech or now) + NEAR_END_S
        return []

    def _resume(self, cause: ResumeCause, why: Why = Why.RESUMED) -> list[Command]:
        assert self._reply is not None
        if cause != "guarded":
            self._reply.false_alarms += 1
        self._go(why, self._reply.sounding)
        return [ResumeReply(cause)]

    def _interrupt(self, now: float) -> list[Command]:
        """The caller takes the floor."""
        caller, reply = self.caller, self._reply
        assert reply is not None
        if reply.unheard_by(caller.since if caller.since is not None else now):
            self._continue(reply)
        commands = self._give_up("barge_in", now)
        self._go(Why.INTERRUPTED, State.HEARING if caller.voice_since is not None else State.DECIDING)
        return commands

    def _continue(self, reply: Running) -> None:
        """The turn that `reply` answers goes on, under the same expectation."""
        self._unanswered = reply.ask
        self.expect = reply.expected

    # -- keys ----------------------------------------------------------------------------------------------------------

    @property
    def _wanted_digits(self) -> int | None:
        if self.expect.max_digits is not None:
            return self.expect.max_digits
        return self.expect.min_digits if self.expect.expect == "digits" else None

    @property
    def _digit_gap_s(self) -> float:
        return DIGIT_GAP_S if self.expect.digit_gap_s is None else self.expect.digit_gap_s

    def _digit(self, digit: str, now: float) -> list[Command]:
        assert self._limits is not None
        self._limits.caller_acted(now)
        if self.state is State.CLOSING:
            return []
        caller, reply = self.caller, self._reply
        commands: list[Command] = [*self._speculation.drop()]
        if reply is not None and self._keys_stop(reply):
            if reply.audible_at is None and reply.ask is not None and reply.ask.kind == "speech":
                self._continue(reply)
            commands += self._give_up("dtmf", now)
            self._rest(Why.KEY, now)
        if caller.since is None:
            said_before: int | None = 0
        elif caller.voice_since is not None or caller.final is not None:
            said_before = count_words(caller.reading)
        else:
            said_before = None
        self._keypad.press(digit, now, said_before)
        return [*commands, *self._decide(now), *self._enter_keys(now)]

    def _keys_over(self, now: float) -> bool:
        return not self._keypad or self._keypad.over(now, self._wanted_digits, self._digit_gap_s)

    def _keys_stop(self, reply: Running) -> bool:
        return self.conversation.dtmf_barge_in and self.expect.dtmf_barge_in and not reply.guarded

    def _enter_keys(self, now: float) -> list[Command]:
        """Take an entry that is over, unless words of the same turn are still to come."""
        free = self.state is State.LISTENING or (self.state is State.HEARING and not self.caller.partial.text)
        if not free or not self._keypad.over(now, self._wanted_digits, self._digit_gap_s):
            return []
        before, keys = self._continued, self._keypad.join("")
        if before is None:
            entry = Ask(0, "dtmf", keys)
        else:
            entry = Ask(0, "speech", self._whole("") if keys != "#" else before.text, before.confidence, again=True)
        self._keypad.clear()
        return [*self._fresh_ear(), *self._ask(now, entry, Why.ENTRY)]

    # -- time ----------------------------------------------------------------------------------------------------------

    def _tick(self, limits: Limits, now: float) -> list[Command]:
        if limits.overdue(now):
            self._go(Why.CUT_OFF, State.ENDED)
            return [*self._speculation.drop(), EndCall(TIME_UP)]
        if limits.time_is_up(now) and self.state is not State.CLOSING:
            stop = self._give_up("limit", now)
            self._keypad.clear()
            return [*stop, *self._fresh_ear(), *self._say("goodbye", now, Why.TIME_UP, TIME_UP)]
        caller, reply = self.caller, self._reply
        if reply is not None:
            # Only an answer keeps a call from being idle: the agent's own questions into the silence do not.
            (limits.activity if reply.answers else limits.sound)(now)
        match self.state:
            case State.THINKING | State.SPEAKING:
                if reply is not None and caller.voice_since is not None and self._interruption.may_stop(reply):
                    return self._spoken_over(reply, caller.voice_since, now)
                kept = caller.kept_until is None or now < caller.kept_until
                return [] if kept else self._fresh_ear()
            case State.PAUSED:
                return self._weigh(now)
            case State.HEARING if caller.endless(now, self.conversation.max_turn_s):
                return self._cut_turn(now)
            case State.DECIDING:
                return self._decide(now)
            case State.LISTENING if not self._keypad:
                return self._nobody_speaks(limits.due(now), now)
            case _:
                return self._enter_keys(now)

    def _nobody_speaks(self, due: Due | None, now: float) -> list[Command]:
        match due:
            case None:
                return []
            case Due.ASK if self.conversation.on_silence == "hook":
                return self._ask(now, Ask(0, "silence"), Why.STILL_THERE)
            case Due.ASK:
                return self._say("still_there", now, Why.STILL_THERE)
            case Due.WARN:
                return self._say("time_warning", now, Why.WARNING)
            case Due.GOODBYE:
                return self._say("goodbye", now, Why.GOODBYE, "silence")
            case Due.IDLE:
                self._go(Why.IDLE, State.ENDED)
                return [EndCall("idle")]

    # -- the agent -----------------------------------------------------------------------------------------------------

    def _of_reply(
        self, event: ReplyAudible | AgentSays | ReplyGuarded | ReplyCloses | ReplyEnded, reply: Running, now: float
    ) -> list[Command]:
        match event:
            case ReplyAudible():
                if reply.audible_at is None:
                    reply.audible_at = now
                    self.said.audible(reply.revision)
                if self.state is State.THINKING:
                    self._go(Why.AUDIBLE, State.SPEAKING)
            case AgentSays(_, text):
                self.said.says(reply.revision, text)
            case ReplyGuarded():
                reply.guarded = True
                if self.state is State.PAUSED:
                    return self._resume("guarded", Why.GUARDED)
            case ReplyCloses(_, reason):
                paused = self.state is State.PAUSED
                reply.closes = reason
                if self.state is not State.CLOSING:
                    self._go(Why.CLOSES, State.CLOSING)
                return [ResumeReply("guarded")] if paused else []
            case ReplyEnded(_, hang_up):
                return self._reply_ended(reply, hang_up, now)
        return []

    def _reply_ended(self, reply: Running, hang_up: str | None, now: float) -> list[Command]:
        resumed: list[Command] = [ResumeReply("ended")] if self.state is State.PAUSED else []
        self._reply = None
        reason = hang_up or reply.closes
        if reason is not None and not (self._may_be_answered(reply) and self._caller_is_there):
            self._go(Why.HUNG_UP, State.ENDED)
            return [*resumed, EndCall(reason)]
        if reply.audible_at is not None:
            self.said.ended(now, in_full=True)
        self._rest(Why.REPLY_ENDED, now)
        return [*resumed, *self._decide(now), *self._enter_keys(now)]

    def _may_be_answered(self, reply: Running) -> bool:
        """Whether these are last words into the silence: whoever answers them is still there."""
        return reply.ask is None and reply.closes is not None and self.state is not State.CLOSING

    @property
    def _caller_is_there(self) -> bool:
        """Something of the caller's waits to be answered, or is being said."""
        return self.caller.since is not None or bool(self._keypad)

    def _cancelled(self, now: float) -> list[Command]:
        commands: list[Command] = [*self._speculation.stop()]
        if self._reply is not None and self.state in REPLYING and not self._reply.guarded:
            commands += self._give_up("client", now)
            self._unanswered = None
            self._rest(Why.CANCELLED, now)
        return commands

    def _give_up(self, cause: StopCause, now: float) -> list[Command]:
        """Stop the current reply if there is one; the caller of this sets the next state."""
        reply, self._reply = self._reply, None
        if reply is None:
            return []
        if reply.audible_at is not None:
            self.said.ended(now, in_full=False)
        return [StopReply(reply.revision, cause)]

    def _ask(self, now: float, turn: Ask, why: Why) -> list[Command]:
        """Ask the hook; the turn gets the next revision unless its reply was begun already."""
        assert self._limits is not None
        if turn.kind in ("speech", "dtmf") and why is not Why.NOISE_AGAIN:
            self._limits.caller_acted(now)
        ask = turn if turn.speculated else replace(turn, revision=self._number())
        reply = self._begin(ask.revision, ask, now)
        reply.guarded = ask.kind == "greeting" and not self.conversation.greeting_interruptible
        if ask.kind != "silence":
            self.expect = Listen()
        self._go(why, State.THINKING)
        return [ask]

    def _say(self, phrase: str, now: float, why: Why, hang_up: str | None = None) -> list[Command]:
        """Speak a stored phrase; the call ends after it with `hang_up`, but a caller who was silent may yet answer."""
        reply = self._begin(self._number(), None, now)
        reply.closes = hang_up
        self._go(why, State.CLOSING if why is Why.TIME_UP else State.THINKING)
        return [Say(reply.revision, phrase, hang_up)]

    def _begin(self, revision: int, ask: Ask | None, now: float) -> Running:
        assert self._limits is not None
        self._limits.sound(now)
        self.revision = revision
        self._unanswered = None
        self._reply = Running(revision, ask, self.expect, now)
        return self._reply

    def _number(self) -> int:
        self._numbered += 1
        return self._numbered

    def _rest(self, why: Why, now: float) -> None:
        """No reply runs: the state follows from what the caller is doing."""
        assert self._limits is not None
        self._limits.sound(now)
        if self.caller.voice_since is not None:
            self._go(why, State.HEARING)
        elif self.caller.last_speech is not None:
            self._go(why, State.DECIDING)
        else:
            self._go(why, State.LISTENING)

    def _fresh_ear(self) -> list[Command]:
        dropped = self._speculation.drop()
        self._speculation.fresh_turn()
        self.caller.fresh()
        return [*dropped, ResetEar()]

    def _go(self, why: Why, state: State) -> None:
        """The only place where the state changes."""
        assert (self.state, why, state) in ALLOWED, f"{why.name}: no way from {self.state.name} to {state.name}"
        self.state = state
