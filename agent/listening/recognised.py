"""What the recogniser says about the end of a turn: its own probability, and whether its text still changes. Pure."""

from __future__ import annotations

from agent.listening.endpoint import Evidence
from agent.odds import log_odds, probability

__all__ = ["judge_recogniser"]

UNSTABLE_ODDS = -1.0
"""Readings do not agree on the last words yet: they are still being said, or were just said."""


def judge_recogniser(evidence: Evidence) -> float | None:
    """Probability, 0 to 1, that the speaker is done; None when the recogniser has none and its text is settled."""
    unsettled = bool(evidence.text) and evidence.stable != evidence.text
    if evidence.end_of_turn is None:
        return probability(UNSTABLE_ODDS) if unsettled else None
    return probability(log_odds(evidence.end_of_turn) + (UNSTABLE_ODDS if unsettled else 0.0))
