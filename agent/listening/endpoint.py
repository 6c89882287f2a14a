"""When a turn is over: how long to wait after the last speech.

An estimator gets all that is known and answers with a wait; the conversation does the waiting. Every field of the
evidence may be missing or empty, and an estimator must answer all the same. `SilenceEndpoint` uses none of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from agent.nlu.hook import Expect

__all__ = ["EndOfTurn", "Evidence", "SilenceEndpoint", "Verdict"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known about a turn that may be ending."""

    text: str = ""
    """The recogniser's newest reading of the turn so far."""
    stable: str = ""
    """The prefix of `text` that will not change."""
    speech_ms: int = 0
    """How much of the turn was speech."""
    silence_ms: int = 0
    """How long ago the last speech was, on the audio clock."""
    expect: Expect = "free"
    """What the hook said the turn would be."""
    language: str = "en"
    """BCP 47."""
    min_digits: int | None = None
    """With `expect="digits"`: how many must have come."""
    end_of_turn: float | None = None
    """The recogniser's own probability, 0 to 1, that the speaker is done; None when it has none."""
    sound: float | None = None
    """The same from the sound of the last seconds; None while no model has answered for this pause."""
    asked: str = ""
    """What the agent said last, as far as it was heard: the turn may answer it."""
    pause_ms: float | None = None
    """How long this caller's pauses inside turns have been so far (moving average); None before the first."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an estimator makes of the evidence."""

    probability: float
    """That the turn is over, 0 to 1. Decides whether a reply is begun ahead of the decision."""
    wait_ms: float
    """How long after the last speech the turn is over, in milliseconds counted from that last speech."""


class EndOfTurn(Protocol):
    """Decides how patient to be. Called on the event loop, often: at each new piece of evidence."""

    def judge(self, evidence: Evidence) -> Verdict: ...


class SilenceEndpoint:
    """The same wait for every turn.

    Args:
        silence_ms: the wait.
    """

    def __init__(self, silence_ms: float) -> None:
        if not silence_ms > 0:
            raise ValueError(f"silence_ms: expected more than 0, got {silence_ms}")
        self._silence_ms = float(silence_ms)

    def judge(self, evidence: Evidence) -> Verdict:  # noqa: ARG002  (the interface is for estimators that look)
        """Even odds: silence alone says no more before the wait is over."""
        return Verdict(0.5, self._silence_ms)
