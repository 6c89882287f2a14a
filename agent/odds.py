"""Probabilities as log odds, where evidence adds up. Pure."""

from __future__ import annotations

import math

__all__ = ["log_odds", "probability"]

SUREST = 0.995
"""No evidence is taken for more certain than this: it must be possible to outvote it."""


def log_odds(probability: float) -> float:
    """The natural logarithm of p / (1 - p), p held between 0.005 and 0.995."""
    held = min(max(probability, 1.0 - SUREST), SUREST)
    return math.log(held / (1.0 - held))


def probability(odds: float) -> float:
    """The inverse of `log_odds`; any finite number."""
    return 1.0 / (1.0 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1.0 + math.exp(odds))
