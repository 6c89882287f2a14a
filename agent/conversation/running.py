"""The reply that runs."""

from __future__ import annotations

from dataclasses import dataclass

from agent.conversation.protocol import Ask, State
from agent.nlu.hook import Listen

__all__ = ["GOES_ON_S", "Running"]

GOES_ON_S = 0.8
"""Who speaks within this time of a reply's first sound goes on with the turn before: nobody hears a reply, understands
it and objects any faster."""


@dataclass(slots=True)
class Running:
    """What the turn machine knows of the reply that runs. Times are seconds on the machine's clock."""

    revision: int
    ask: Ask | None
    """None for a stored phrase."""
    expected: Listen
    """What the turn it answers was expected to be."""
    began_at: float
    guarded: bool = False
    """Not to be interrupted by speech, keys or the client's cancel."""
    closes: str | None = None
    """Why the call ends after it."""
    audible_at: float | None = None
    """When its first sample left."""
    paused_at: float = 0.0
    false_alarms: int = 0
    """How often it was paused for a sound that meant nothing."""

    @property
    def sounding(self) -> State:
        """The state of this reply while nobody speaks over it."""
        return State.THINKING if self.audible_at is None else State.SPEAKING

    @property
    def answers(self) -> bool:
        """Whether it answers something, rather than breaking the silence."""
        return self.ask is not None and self.ask.kind != "silence"

    def unheard_by(self, since: float) -> bool:
        """Whether speech that began at `since` cannot have been said because of this reply."""
        return self.audible_at is None or since <= self.audible_at + GOES_ON_S
