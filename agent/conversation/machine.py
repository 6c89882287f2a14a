"""Who has the floor: the turn machine.

Pure: it is fed `(event, now)`, keeps one explicit `State` and answers with commands. It knows no task, socket or clock;
`now` is any monotonic clock in seconds. A reply is known by its revision; events of an older revision change nothing,
so output of a reply that was given up can never be taken for the current one.
"""

from __future__ import annotations

from dataclasses import replace

from agent.config import ConversationSettings, ListeningSettings
from agent.conversation.backchannel import is_backchannel
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
from agent.events import Floor
from agent.listening.endpoint import EndOfTurn, Evidence
from agent.nlu.hook import Listen

__all__ = ["TurnMachine"]

FINAL_DEADLINE_S = 3.0
"""A recogniser that has not answered by then is given up; the last partial stands in for it."""

PAUSE_DEADLINE_S = 2.0
"""A paused reply with nothing recognisable against it goes on after this long."""

SURE_INTERRUPTION_MS = 700
"""Speech this long over a reply is meant for us, even if no word was recognised yet; backchannels are shorter."""

DIGIT_GAP_S = 1.5
"""Keys further apart are separate entries."""

MAX_DIGITS = 64
"""An entry is cut here; the longest number a caller types, an IBAN, has 34."""

CALLER_HOLDS = (State.HEARING, State.DECIDING)

FLOOR: dict[State, Floor] = {
    State.LISTENING: "nobody",
    State.HEARING: "caller",
    State.DECIDING: "caller",
    State.THINKING: "thinking",
    State.SPEAKING: "agent",
    State.PAUSED: "caller",
    State.CLOSING: "agent",
    State.ENDED: "nobody",
}


class TurnMachine:
    """One call's turn-taking.

    Args:
        conversation: barge-in rules and limits.
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
        self.language = language
        self.state = State.LISTENING
        self.revision = 0
        """Number of the newest reply."""
        self.expect = Listen()
        self._voice_since: float | None = None
        self._turn_since: float | None = None
        """When the first speech of the running turn began."""
        self._last_speech: float | None = None
        self._speech_ms = 0
        self._partial = PartialHeard("")
        self._final_id = 0
        self._final: FinalHeard | FinalFailed | None = None
        self._unanswered: Ask | None = None
        """The turn whose reply is not audible yet. If that is given up, speech continues the turn, noise repeats it."""
        self._digits = ""
        self._digit_at = 0.0
        self._started_at: float | None = None
        self._active_at = 0.0
        self._paused_at = 0.0
        self._reply_ends_call: str | None = None

    @property
    def floor(self) -> Floor:
        """Who has the floor, for display."""
        return FLOOR[self.state]

    def on(self, event: Event, now: float) -> list[Command]:
        """Feed one event; returns what is to be done, in order."""
        if self.state is State.ENDED:
            return []
        if self._started_at is None:
            self._started_at = self._active_at = now
        match event:
            case Tick():
                return self._tick(now)
            case CallStarted():
                return self._ask(now, Ask(0, "greeting")) if self.conversation.greet else []
            case VoiceBegan(ago_ms):
                return self._voice_began(now - ago_ms / 1000, now)
            case VoiceEnded(ago_ms, speech_ms):
                return self._voice_ended(now - ago_ms / 1000, speech_ms, now)
            case PartialHeard():
                return self._partial_heard(event)
            case FinalHeard(final_id=final_id) | FinalFailed(final_id=final_id):
                if final_id != self._final_id:
                    return []
                return self._final_heard(event, now)
            case Typed(text):
                self._active_at = now
                return self._give_up("typed") + self._fresh_ear() + self._ask(now, Ask(0, "speech", text))
            case DigitPressed(digit):
                return self._digit(digit, now)
            case ReplyAudible(revision):
                if revision == self.revision and self.state is State.THINKING:
                    self._unanswered = None
                    self.state = State.SPEAKING
                return []
            case ReplyEnded():
                return self._reply_ended(event, now)
            case ReplyCloses():
                return self._closing(event)
            case Listened(listen):
                self.expect = listen
                return []
            case SoundJudged() | ReplyGuarded() | AgentSays():
                return []
            case ClientCancelled():
                stop = [] if self.state is State.CLOSING else self._give_up("client")
                if stop:
                    self._unanswered = None
                    self._rest()
                return stop
            case RespondAgain():
                return self._give_up("client") + self._ask(now, Ask(0, "event"))

    def _closing(self, event: ReplyCloses) -> list[Command]:
        if event.revision != self.revision or self.state not in (State.THINKING, State.SPEAKING, State.PAUSED):
            return []
        was, self.state = self.state, State.CLOSING
        self._reply_ends_call = event.reason
        return [ResumeReply()] if was is State.PAUSED else []

    @property
    def continues(self) -> str:
        """The turn that the speech now being heard goes on with, as far as it was asked already; else empty."""
        ask = self._unanswered
        return ask.text if ask is not None and ask.kind == "speech" and self.state in CALLER_HOLDS else ""

    def awaits(self, final_id: int) -> bool:
        """Whether `RequestFinal(final_id)` still waits for its answer; one that was overtaken changes nothing."""
        return final_id == self._final_id and self._final is None

    def end(self) -> None:
        """The call is over, whatever was going on."""
        self.state = State.ENDED

    # -- the caller ----------------------------------------------------------------------------------------------------

    def _voice_began(self, since: float, now: float) -> list[Command]:
        self._active_at = now
        self._voice_since = since
        if self._turn_since is None:
            self._turn_since = since
        if self.state in (State.LISTENING, State.DECIDING):
            self._forget_final()
            self.state = State.HEARING
        elif self.state is State.PAUSED:
            self._forget_final()
        return []

    def _voice_ended(self, last_speech: float, speech_ms: int, now: float) -> list[Command]:
        self._active_at = now
        self._voice_since = None
        if self.state is State.CLOSING:
            return [ResetEar()]
        if self._speech_ms + speech_ms < self.listening.min_segment_ms:
            return self._was_noise(now)
        self._speech_ms += speech_ms
        self._last_speech = last_speech
        self._final_id += 1
        self._final = None
        if self.state is State.HEARING:
            self.state = State.DECIDING
        return [RequestFinal(self._final_id)]

    def _partial_heard(self, partial: PartialHeard) -> list[Command]:
        self._partial = partial
        if self.state is State.PAUSED and self._voice_since is not None and _means_something(partial.stable, self):
            return self._interrupt()
        return []

    def _final_heard(self, final: FinalHeard | FinalFailed, now: float) -> list[Command]:
        self._final = final
        text = final.text if isinstance(final, FinalHeard) else ""
        if self.state is State.PAUSED:
            if isinstance(final, FinalHeard) and not _means_something(text, self):
                self.state = State.SPEAKING
                return [*self._fresh_ear(), ResumeReply()]
            commands = self._interrupt()
            self.state = State.DECIDING
            return commands + self._decide(now)
        return self._decide(now)

    def _decide(self, now: float) -> list[Command]:
        """In DECIDING: is the turn over, and is its text known?"""
        if self.state is not State.DECIDING or self._last_speech is None:
            return []
        silence = now - self._last_speech
        final = self._final
        if final is None:
            if silence < FINAL_DEADLINE_S + self.listening.stop_ms / 1000:
                return []
            final = FinalHeard(self._final_id, self._partial.text) if self._partial.text else FinalFailed(0)
        if isinstance(final, FinalFailed):
            return [*self._fresh_ear(), *self._say(now, "apology")]
        evidence = Evidence(
            text=final.text,
            stable=final.text,
            speech_ms=self._speech_ms,
            silence_ms=int(silence * 1000),
            expect=self.expect.expect,
            language=self.language,
            min_digits=self.expect.min_digits,
            end_of_turn=final.end_of_turn,
        )
        if final.text and silence * 1000 < self.end_of_turn.judge(evidence).wait_ms and not self._overlong(now):
            return []
        if not final.text:
            return self._was_noise(now)
        before = self._unanswered if self._unanswered is not None and self._unanswered.kind == "speech" else None
        text = final.text if before is None else f"{before.text} {final.text}"
        turn = Ask(0, "speech", text, final.confidence, self._last_speech, again=before is not None)
        return self._fresh_ear() + self._ask(now, turn)

    def _was_noise(self, now: float) -> list[Command]:
        """What was heard was no speech: go on as if it had not been."""
        commands = self._fresh_ear()
        if self.state is State.PAUSED:
            self.state = State.SPEAKING
            return [*commands, ResumeReply()]
        if self.state in (State.HEARING, State.DECIDING):
            self._rest()
            if self._unanswered is not None:
                return commands + self._ask(now, replace(self._unanswered, last_speech_at=None, again=True))
        return commands

    def _digit(self, digit: str, now: float) -> list[Command]:
        self._active_at = now
        self._digit_at = now
        commands = [] if self.state is State.CLOSING else self._give_up("dtmf")
        if digit != "#":
            self._digits = (self._digits + digit)[:MAX_DIGITS]
        wanted = self.expect.min_digits if self.expect.expect == "digits" else None
        if digit == "#" or (wanted is not None and len(self._digits) >= wanted):
            return commands + self._enter_digits(now)
        if commands:
            self._rest()
        return commands

    def _enter_digits(self, now: float) -> list[Command]:
        digits, self._digits = self._digits, ""
        if self.state is State.CLOSING:
            return []
        return self._fresh_ear() + self._ask(now, Ask(0, "dtmf", digits or "#"))

    # -- time ----------------------------------------------------------------------------------------------------------

    def _tick(self, now: float) -> list[Command]:
        assert self._started_at is not None
        if now - self._started_at >= self.conversation.max_call_s:
            self.state = State.ENDED
            return [EndCall("maximum call time")]
        if self.state in (State.SPEAKING, State.THINKING):
            self._active_at = now
            if self._voice_since is not None and self.conversation.barge_in:
                spoken_ms = (now - self._voice_since) * 1000
                if spoken_ms >= self.conversation.barge_in_ms:
                    return self._spoken_over(now)
        elif self.state is State.PAUSED:
            if self._voice_since is not None and (now - self._voice_since) * 1000 >= SURE_INTERRUPTION_MS:
                return self._interrupt()
            if self._voice_since is None and now - self._paused_at >= PAUSE_DEADLINE_S:
                return self._was_noise(now)
        elif self.state is State.HEARING and self._overlong(now):
            return self._cut_turn(now)
        elif self.state is State.DECIDING:
            return self._decide(now)
        elif self.state is State.LISTENING and now - self._active_at >= self.conversation.idle_s:
            self.state = State.ENDED
            return [EndCall("idle")]
        if self._digits and now - self._digit_at >= DIGIT_GAP_S:
            commands = [] if self.state is State.CLOSING else self._give_up("dtmf")
            return commands + self._enter_digits(now)
        return []

    def _overlong(self, now: float) -> bool:
        return self._turn_since is not None and now - self._turn_since >= self.conversation.max_turn_s

    def _cut_turn(self, now: float) -> list[Command]:
        """Take a turn that does not end as it stands; what is still being said belongs to nothing."""
        self._voice_since = None
        self._last_speech = now
        self._final_id += 1
        self._final = None
        self.state = State.DECIDING
        return [RequestFinal(self._final_id)]

    def _spoken_over(self, now: float) -> list[Command]:
        if self.state is State.THINKING:
            # Nothing was audible yet: the caller goes on with the same turn. What plays in the meantime is stopped
            # for good, since the answer to half a sentence is of no use.
            return self._interrupt()
        self.state = State.PAUSED
        self._paused_at = now
        return [PauseReply()]

    # -- the agent -----------------------------------------------------------------------------------------------------

    def _interrupt(self) -> list[Command]:
        commands = self._give_up("barge_in")
        self.state = State.HEARING
        return commands

    def _give_up(self, cause: StopCause) -> list[Command]:
        """Stop the current reply if there is one; the caller of this sets the next state."""
        if self.state in (State.THINKING, State.SPEAKING, State.PAUSED, State.CLOSING):
            self._reply_ends_call = None
            return [StopReply(self.revision, cause)]
        return []

    def _ask(self, now: float, turn: Ask) -> list[Command]:
        """Ask the hook; the turn gets the next revision."""
        self.revision += 1
        self._unanswered = ask = replace(turn, revision=self.revision)
        self._reply_ends_call = None
        self.expect = Listen()
        self.state = State.THINKING
        self._active_at = now
        return [ask]

    def _say(self, now: float, phrase: str) -> list[Command]:
        self.revision += 1
        self.state = State.THINKING
        self._active_at = now
        return [Say(self.revision, phrase)]

    def _reply_ended(self, event: ReplyEnded, now: float) -> list[Command]:
        if event.revision != self.revision or self.state not in (
            State.THINKING,
            State.SPEAKING,
            State.PAUSED,
            State.CLOSING,
        ):
            return []
        self._active_at = now
        self._unanswered = None
        reason = event.hang_up or self._reply_ends_call
        if reason is not None:
            self.state = State.ENDED
            return [EndCall(reason)]
        self._rest()
        return self._decide(now)

    def _rest(self) -> None:
        """No reply runs: the state follows from what the caller is doing."""
        if self._voice_since is not None:
            self.state = State.HEARING
        elif self._last_speech is not None:
            self.state = State.DECIDING
        else:
            self.state = State.LISTENING

    def _fresh_ear(self) -> list[Command]:
        self._forget_final()
        self._last_speech = None
        self._turn_since = self._voice_since
        self._speech_ms = 0
        self._partial = PartialHeard("")
        return [ResetEar()]

    def _forget_final(self) -> None:
        self._final_id += 1
        self._final = None


def _means_something(text: str, machine: TurnMachine) -> bool:
    return bool(text.strip()) and not is_backchannel(text, machine.language)
