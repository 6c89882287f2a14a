"""Speech over the agent: when to fall silent, when to give up, what to keep. Pure; the turn machine does it."""

from __future__ import annotations

from agent.config import ConversationSettings
from agent.conversation.caller_turn import CallerTurn
from agent.conversation.overheard import NEAR_END_S, SURE_INTERRUPTION_S, Overheard, may_answer, overheard
from agent.conversation.protocol import FinalHeard
from agent.conversation.running import Running
from agent.conversation.said import Said
from agent.nlu.hook import Expect

__all__ = ["RESUME_AFTER_S", "Interruption"]

RESUME_AFTER_S = 0.9
"""A paused reply goes on this long after the sound ended if no word is known by then; a final may come later still."""


SETTLE_S = 0.22
"""A reply does not go on in a gap between two words: "and" alone may be its echo, "and I want" is not."""

WARY_S = 1.2
"""Where sound likely means nothing, words that may still change are waited on for this long: two more readings."""

UNSURE = 0.65
"""A reading that its recogniser trusts less than this stops no reply on a line with echo."""

MAX_FALSE_ALARMS = 2
"""A reply that was paused this often for nothing waits for words then: the caller coughs, or the line echoes."""


class Interruption:
    """What a call's barge-in rules say. Times are seconds on the machine's clock.

    Args:
        settings: barge-in and echo.
        caller: the turn being heard.
        said: what the agent said.
        stop_ms: silence after which speech is known to have ended.
        language: BCP 47 tag of the caller; may be changed.
    """

    def __init__(
        self, settings: ConversationSettings, caller: CallerTurn, said: Said, *, stop_ms: int, language: str
    ) -> None:
        self.language = language
        self._stop_s = stop_ms / 1000
        self._settings = settings
        self._caller = caller
        self._said = said

    def hears(self, text: str) -> Overheard:
        """What `text`, a reading of the running turn, is taken for."""
        caller = self._caller
        heard = overheard(
            text,
            self._said if self._settings.echo_guard else None,
            caller.since or 0.0,
            caller.last_speech if caller.voice_since is None else None,
            language=self.language,
            min_words=self._settings.barge_in_min_words,
        )
        return Overheard.FEW if heard is Overheard.WORDS and self._shred() else heard

    def _shred(self) -> bool:
        """A shred of an echo is read as words that nobody said, but seldom with confidence."""
        final, since = self._caller.final, self._caller.since or 0.0
        return isinstance(final, FinalHeard) and final.confidence < UNSURE and self._expects_echo(since, since)

    def _expects_echo(self, since: float, now: float) -> bool:
        """Whether sound that began at `since` may be an echo, on a line that is known by `now` to have it."""
        return self._settings.echo_guard and self._said.echoes(now) and self._said.could_echo(since)

    def may_stop(self, reply: Running) -> bool:
        """Whether speech may stop this reply."""
        return self._settings.barge_in and not reply.guarded

    def pauses(self, reply: Running, since: float, now: float) -> bool:
        """Speech that began at `since` goes on over a reply: fall silent? What it was is decided later."""
        if now - since < self._settings.barge_in_ms / 1000:
            return False
        if not self._wary(reply, since, now):
            return True
        # To pause at each sound would be to stutter, on a line with echo for ever. Wait for other words, and for a
        # second reading that agrees, since the first one of an echo is often of words that nobody said.
        partial = self._caller.partial
        # All of it may read as an echo although its beginning does not.
        heard = self.hears(partial.text)
        if heard is Overheard.ECHO:
            return False
        return self.hears(partial.stable) is Overheard.WORDS or now - since >= self._takes_s(reply, heard, since, now)

    def _wary(self, reply: Running, since: float, now: float) -> bool:
        """Whether sound over this reply likely means nothing: it did before, or this line brings our words back."""
        return reply.false_alarms >= MAX_FALSE_ALARMS or self._expects_echo(since, now)

    def _takes_s(self, reply: Running, heard: Overheard, since: float, now: float) -> float:
        """How long speech that reads like this, in words that may still change, goes on until it takes the floor."""
        # Words that may still change count for no more than sound without words.
        after_s = SURE_INTERRUPTION_S if heard is Overheard.WORDS else heard.interrupts_after()
        return max(after_s, WARY_S) if self._wary(reply, since, now) else after_s

    def takes_floor(self, reply: Running, since: float, now: float) -> bool:
        """Speech that began at `since` goes on over a paused reply: is it meant for us?"""
        partial = self._caller.partial
        heard = self.hears(partial.text)
        if self.hears(partial.stable) is Overheard.WORDS and heard is not Overheard.ECHO:
            return True
        # The speech may have ended since, unnoticed so far.
        return now - since - self._stop_s >= self._takes_s(reply, heard, since, now)

    def waited_in_vain(self, reply: Running, now: float) -> bool:
        """The sound over a paused reply is over, and its reading does not come."""
        return now - max(self._caller.last_speech or 0.0, reply.paused_at) >= RESUME_AFTER_S

    def settled(self, now: float) -> bool:
        """Whether the sound over a paused reply has ended for good, and not just between two words."""
        return self._caller.last_speech is None or now - self._caller.last_speech >= SETTLE_S

    def in_time(self, reply: Running) -> bool:
        """Whether the speech that was read may have been said because of this reply, and is long enough to stop it."""
        caller = self._caller
        during = caller.last_speech is not None and caller.last_speech > reply.began_at
        return during and caller.speech_ms >= self._settings.barge_in_ms

    def keeps(self, heard: Overheard, expect: Expect) -> bool:
        """Whether words that do not take the floor may answer what is just being asked."""
        if heard is Overheard.BACKCHANNEL:
            return may_answer(self._said.so_far, expect, self.language)
        return heard is Overheard.FEW and not self._shred()

    def is_meant(self, text: str, expect: Expect) -> bool:
        """Whether a turn's words are for us, although they may have begun over a reply that is over now."""
        caller, ended_at = self._caller, self._said.ended_at
        if caller.since is None or caller.last_speech is None or ended_at is None:
            return True
        heard = self.hears(text)
        if heard is Overheard.ECHO:
            self._said.echoed(caller.last_speech)
            return False
        if heard is Overheard.BACKCHANNEL and caller.since < ended_at and not self._said.cut:
            near = caller.last_speech >= ended_at - NEAR_END_S
            return near and may_answer(self._said.asked, expect, self.language)
        return True
