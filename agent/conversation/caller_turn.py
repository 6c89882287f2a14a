"""The caller's running turn: speech, pauses and readings. Pure."""

from __future__ import annotations

from agent.conversation.protocol import FinalFailed, FinalHeard, PartialHeard
from agent.conversation.words import count_words
from agent.listening.endpoint import Evidence
from agent.listening.pauses import PauseTracker

__all__ = ["CallerTurn"]

WORDLESS_S = 10.0
"""Sound that goes on for this long after the last new word is not the caller's: the turn is taken as it stands."""


class CallerTurn:
    """What is known of the turn that is being heard. Times are seconds on the machine's clock."""

    def __init__(self) -> None:
        self.voice_since: float | None = None
        """When the open segment of speech began; None in a pause."""
        self.since: float | None = None
        """When the turn's first speech began."""
        self.last_speech: float | None = None
        """When its last closed segment ended."""
        self.speech_ms = 0
        self.partial = PartialHeard("")
        self.partial_at = 0.0
        """When the partial reading last changed."""
        self.final_id = 0
        self.final: FinalHeard | FinalFailed | None = None
        self.sound: float | None = None
        """A model's probability that this pause ends the turn."""
        self.kept_until: float | None = None
        """Doubtful words over the agent are forgotten then, unless the reply ends before."""
        self.pauses = PauseTracker()
        self._went_on: tuple[float, int] | None = None
        """The last pause in milliseconds and the words before it, until a reading shows that words followed."""

    @property
    def reading(self) -> str:
        """The newest reading of the turn: the final of this pause, else the partial."""
        return self.final.text if isinstance(self.final, FinalHeard) else self.partial.text

    def voice_began(self, since: float) -> None:
        """Speech opens a segment; readings of the pause before it are out of date."""
        if self.last_speech is not None and self.voice_since is None and since > self.last_speech:
            self._went_on = ((since - self.last_speech) * 1000, count_words(self.reading))
        self.voice_since = since
        if self.since is None:
            self.since = since
        self.forget_final()

    def voice_ended(self, last_speech: float, speech_ms: int) -> int:
        """The segment closed; returns the id of the final to ask for."""
        self.voice_since = None
        self.speech_ms += speech_ms
        self.last_speech = last_speech
        if self.since is None:
            self.since = last_speech - speech_ms / 1000
        self.forget_final()
        return self.final_id

    def read(self, final: FinalHeard | FinalFailed) -> None:
        """The final of this pause is there. A pause that words followed teaches how long this caller's pauses are."""
        self.final = final
        if isinstance(final, FinalHeard) and self._went_on is not None:
            pause_ms, before = self._went_on
            self._went_on = None
            if count_words(final.text) > before:
                self.pauses.turn_went_on(pause_ms)

    def evidence(self, now: float, end_of_turn: float | None) -> Evidence:
        """What the running pause says; the text and what it answers are added by others."""
        silence_s = now - self.last_speech if self.last_speech is not None else 0.0
        return Evidence(
            speech_ms=self.speech_ms,
            silence_ms=int(silence_s * 1000),
            end_of_turn=end_of_turn,
            sound=self.sound,
            pause_ms=self.pauses.typical_ms,
        )

    def lasts(self, now: float, seconds: float) -> bool:
        """Whether the turn is this long already."""
        return self.since is not None and now - self.since >= seconds

    def endless(self, now: float, max_turn_s: float) -> bool:
        """Speech goes on, but the turn will not end by itself: it is too long, or what goes on is no speech."""
        if self.voice_since is None or self.lasts(now, max_turn_s):
            return self.voice_since is not None
        return bool(self.partial.text) and now - max(self.partial_at, self.voice_since) >= WORDLESS_S

    def forget_final(self) -> None:
        """Answers to earlier requests are of no use any more."""
        self.final_id += 1
        self.final = None
        self.sound = None
        self.kept_until = None

    def fresh(self) -> None:
        """The turn was taken or was noise; speech that is going on begins the next one."""
        self.forget_final()
        self.last_speech = None
        self.since = self.voice_since
        self.speech_ms = 0
        self.partial = PartialHeard("")
        self._went_on = None
