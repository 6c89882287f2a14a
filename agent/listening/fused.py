"""The end of a turn from all evidence there is: log odds add up, and the wait follows from their sum.

The wait rests on one thought. Let L be the log odds that a pause ends the turn, from all that was known when it began.
If pauses inside turns outlast t with probability exp(-t / scale), then after t of silence the odds are L + t / scale.
The turn is over once these reach `SURE_ODDS`: wait = scale * (SURE_ODDS - L), between the settings' bounds. The scale
is the caller's own where their pauses are known. Every source may be missing: what says nothing adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.config import ListeningSettings
from agent.listening.endpoint import EndOfTurn, Evidence, SilenceEndpoint, Verdict
from agent.listening.expecting import judge_expectation
from agent.listening.odds import log_odds, probability
from agent.listening.recognised import judge_recogniser
from agent.listening.wording import judge_wording

__all__ = ["WEIGHTS", "FusedEndpoint", "Weights", "create_endpoint"]


@dataclass(frozen=True, slots=True)
class Weights:
    """How much of each source's log odds counts; sources overlap, so that each counts less than alone."""

    sound: float = 0.3
    recogniser: float = 0.1
    wording: float = 0.7
    expectation: float = 0.8


WEIGHTS = Weights()
"""Near the logistic regression on the tuning half of bench/turns (ridge, 254 pauses, two noise levels), rounded."""

SURE_ODDS = 1.25
"""At the start of a pause, these log odds end the turn after `endpoint_min_ms`. Chosen on the tuning half of
bench/turns: half of the cut-offs of 500 ms of silence, and about 200 ms less delay."""

SCALE_MS = 600.0
"""How pauses inside turns thin out, before the caller's own are known."""

TYPICAL_MS = 550.0
"""The pause for which that is the scale."""

PAUSE_RATIO = (0.6, 1.6)
"""A caller's own pauses change the scale by no more than this."""


class FusedEndpoint:
    """Waits as long as the evidence asks for. Pure; about 50 us a judgement.

    Args:
        min_ms, max_ms: bounds of the wait; the second is never exceeded, whatever the evidence.
        weights: of the sources; a weight of zero leaves one out.
    """

    def __init__(self, min_ms: float, max_ms: float, *, weights: Weights = WEIGHTS) -> None:
        if not 0 < min_ms <= max_ms:
            raise ValueError(f"expected 0 < min_ms <= max_ms, got {min_ms} and {max_ms}")
        self._min_ms = float(min_ms)
        self._max_ms = float(max_ms)
        self._weights = weights

    def judge(self, evidence: Evidence) -> Verdict:
        """Probability and wait for this evidence; without any, even odds."""
        odds = self.odds(evidence)
        return Verdict(probability(odds), self.wait_ms(odds, evidence.pause_ms))

    def odds(self, evidence: Evidence) -> float:
        """The sum of the evidence, as log odds."""
        weights = self._weights
        weighed = (
            (weights.sound, evidence.sound),
            (weights.recogniser, judge_recogniser(evidence)),
            (weights.wording, judge_wording(evidence.text, evidence.language)),
            (weights.expectation, judge_expectation(evidence)),
        )
        return sum(weight * log_odds(said) for weight, said in weighed if said is not None)

    def wait_ms(self, odds: float, pause_ms: float | None) -> float:
        """The wait that follows from log odds and the caller's own pauses, `min_ms` to `max_ms`."""
        wait_ms = self._min_ms + self._scale_ms(pause_ms) * (SURE_ODDS - odds)
        return min(max(wait_ms, self._min_ms), self._max_ms)

    def _scale_ms(self, pause_ms: float | None) -> float:
        ratio = 1.0 if pause_ms is None else pause_ms / TYPICAL_MS
        return SCALE_MS * min(max(ratio, PAUSE_RATIO[0]), PAUSE_RATIO[1])


def create_endpoint(settings: ListeningSettings) -> EndOfTurn:
    """The estimator that the settings name."""
    if settings.endpoint == "silence":
        return SilenceEndpoint(settings.endpoint_silence_ms)
    return FusedEndpoint(settings.endpoint_min_ms, max(settings.endpoint_min_ms, settings.endpoint_max_ms))
