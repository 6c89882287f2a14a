"""The end of a turn from all evidence there is: log odds add up, and the wait follows from their sum.

The wait rests on one thought. Let L be the log odds that a pause ends the turn, from all that was known when it began.
If pauses inside turns outlast t with probability exp(-t / scale), then after t of silence the odds are L + t / scale.
The turn is over once these reach `SURE_ODDS`: wait = scale * (SURE_ODDS - L), between the settings' bounds. The scale
follows the caller's own pauses where they are known. Every source may be missing: what says nothing adds nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.config import ListeningSettings
from agent.listening.endpoint import EndOfTurn, Evidence, SilenceEndpoint, Verdict
from agent.listening.expecting import judge_expectation
from agent.listening.recognised import judge_recogniser
from agent.listening.wording import judge_wording
from agent.odds import log_odds, probability

__all__ = ["WEIGHTS", "FusedEndpoint", "Weights", "create_endpoint"]


@dataclass(frozen=True, slots=True)
class Weights:
    """How much of each source's log odds counts; sources overlap, so that each counts less than alone."""

    sound: float = 0.3
    recogniser: float = 0.5
    wording: float = 0.7
    expectation: float = 0.8


WEIGHTS = Weights()
"""The fit on all turns of bench/turns, rounded; that bench fits its own for each group of speakers, without them. The
last is not fitted."""

SURE_ODDS = 1.2
"""At the start of a pause, these log odds end the turn after `endpoint_min_ms`."""

SCALE_MS = 1500.0
"""How slowly waiting makes sure, before the caller's own pauses are known. Longer than pauses really thin out (about
400 ms): a middling wait costs delay and still cuts most pauses off, so that it is better to be quick or patient."""

BARE_SHARE = 0.4
"""With no source at all, this share of `SURE_ODDS` is asked for: nobody should wait for evidence that cannot come."""

TYPICAL_MS = 550.0
"""The pause for which `SCALE_MS` is the scale."""

PAUSE_RATIO = (0.6, 1.6)
"""A caller's own pauses change the scale by no more than this."""


class FusedEndpoint:
    """Waits as long as the evidence asks for. Pure; about 50 us a judgement.

    Args:
        min_ms, max_ms: bounds of the wait; the second is never exceeded, whatever the evidence.
        weights: of the sources; a weight of zero leaves one out.
        sure_odds: log odds that end a turn after the least wait; more is more patient.
    """

    def __init__(
        self, min_ms: float, max_ms: float, *, weights: Weights = WEIGHTS, sure_odds: float = SURE_ODDS
    ) -> None:
        if not 0 < min_ms <= max_ms:
            raise ValueError(f"expected 0 < min_ms <= max_ms, got {min_ms} and {max_ms}")
        self._min_ms = float(min_ms)
        self._max_ms = float(max_ms)
        self._weights = weights
        self._sure_odds = sure_odds

    def judge(self, evidence: Evidence) -> Verdict:
        """Probability and wait for this evidence; without any, even odds."""
        weights = self._weights
        standing = (
            (weights.sound, evidence.sound),
            (weights.recogniser, judge_recogniser(evidence)),
            (weights.wording, judge_wording(evidence.text, evidence.language)),
        )
        expected = judge_expectation(evidence)
        odds = sum(weight * log_odds(said) for weight, said in standing if said is not None)
        if expected is not None:
            odds += weights.expectation * log_odds(expected)
        all_of_it = sum(weight for weight, _ in standing)
        known = sum(weight for weight, said in standing if said is not None) / all_of_it if all_of_it else 0.0
        sure_odds = self._sure_odds * (BARE_SHARE + (1.0 - BARE_SHARE) * known)
        wait_ms = self._min_ms + _scale_ms(evidence.pause_ms) * (sure_odds - odds)
        return Verdict(probability(odds), min(max(wait_ms, self._min_ms), self._max_ms))


def _scale_ms(pause_ms: float | None) -> float:
    ratio = 1.0 if pause_ms is None else pause_ms / TYPICAL_MS
    return SCALE_MS * min(max(ratio, PAUSE_RATIO[0]), PAUSE_RATIO[1])


def create_endpoint(settings: ListeningSettings) -> EndOfTurn:
    """The estimator that the settings name."""
    if settings.endpoint == "silence":
        return SilenceEndpoint(settings.endpoint_silence_ms)
    return FusedEndpoint(settings.endpoint_min_ms, max(settings.endpoint_min_ms, settings.endpoint_max_ms))
