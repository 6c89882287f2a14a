"""Constants of the fused endpoint, fitted on some turns so that they can be tested on others. Pure.

Weights: logistic regression with a ridge, "is this pause the end?". Then the least `sure_odds` whose share of turns cut
off stays under a given one. Three weights and one threshold; the scale and the weight of what the hook expects are not
fitted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from agent.listening.endpoint import Evidence
from agent.listening.expecting import judge_expectation
from agent.listening.fused import Weights
from agent.listening.recognised import judge_recogniser
from agent.listening.wording import judge_wording
from agent.odds import log_odds

__all__ = ["Example", "fit_weights", "least_sure"]

RIDGE = 3.0
"""On standardised features."""

STEPS = 40
"""Of Newton's method; it settles in about ten."""

SURE: tuple[float, ...] = tuple(tenths / 10 for tenths in range(41))

Float = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Example:
    """A pause and what was known of it."""

    evidence: Evidence
    ended: bool


def fit_weights(examples: Sequence[Example], expectation: float) -> Weights:
    """The weights of sound, recogniser and words, given that of the expectation; none is negative."""
    features = np.array([_odds(example.evidence) for example in examples])
    known = expectation * np.array([_of(judge_expectation(example.evidence)) for example in examples])
    ended = np.array([example.ended for example in examples], np.float64)
    spread = features.std(axis=0) + 1e-9
    inputs: Float = np.column_stack([(features - features.mean(axis=0)) / spread, np.ones(len(features))])
    ridge = np.array([RIDGE] * features.shape[1] + [1e-6])
    weights = np.zeros(inputs.shape[1])
    for _ in range(STEPS):
        chance = 1.0 / (1.0 + np.exp(-(inputs @ weights + known)))
        slope = inputs.T @ (chance - ended) + ridge * weights
        curve = (inputs * (chance * (1.0 - chance))[:, np.newaxis]).T @ inputs + np.diag(ridge)
        weights -= np.linalg.solve(curve, slope)
    sound, recogniser, wording = np.maximum(weights[:-1] / spread, 0.0).tolist()
    return Weights(sound, recogniser, wording, expectation)


def least_sure(cut_pct: Callable[[float], float], most_pct: float) -> float:
    """The least `sure_odds` with which no more turns are cut off than this; the greatest tried when none has."""
    return next((sure for sure in SURE if cut_pct(sure) <= most_pct), SURE[-1])


def _odds(evidence: Evidence) -> tuple[float, float, float]:
    said = (evidence.sound, judge_recogniser(evidence), judge_wording(evidence.text, evidence.language))
    sound, recogniser, wording = (_of(probability) for probability in said)
    return sound, recogniser, wording


def _of(probability: float | None) -> float:
    return 0.0 if probability is None else log_odds(probability)
