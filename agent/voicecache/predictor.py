"""From where a dialogue stands to the openings that are likely next, with probabilities. Pure: no I/O, no clock.

A back-off n-gram over the dialogue (state and last clause; either; neither), smoothed after Witten and Bell (1991):
a context that was seen with many different continuations trusts itself less. The running partial transcript moves the
probabilities by the words that each opening was said after, naive Bayes with the n-gram as its prior. What the hook
expects counts as observations of its own. Counts decay by half each `half_life_turns` observations, wherever those
come from, so that processes which see the same observations learn the same.

Bounded: contexts, openings a context and openings in all; the least recently used go.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from agent.voicecache.situation import Situation, fill, heard_slots, template, word_buckets

__all__ = ["Observation", "Prediction", "Predictor"]

MAX_CONTEXTS = 20_000
MAX_OPENINGS_PER_CONTEXT = 64
MAX_EXPECTED = 64
EXPECTED_WEIGHT = 2.0
"""What the hook expects counts as two observations in all, spread evenly: it leads at first and is soon outweighed."""

MAX_WORDS = 12
"""Words of a partial that are looked at, those that tell most; more would only repeat the same evidence."""

MAX_WEIGHED = 96
"""Openings that words are weighed for: keeps a prediction under a millisecond or two whatever was learned."""

WORD_TRUST = 0.8
"""Words of one sentence are not independent, so each counts for less than naive Bayes has it."""

RESCALE_AT = 1e12
"""Newer observations weigh more rather than older ones less; all are scaled down when numbers grow this large."""

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Observation:
    """What followed what: all that is learned of a turn. Safe to share, but for openings that are private."""

    contexts: tuple[str, ...]
    """Most specific first."""
    words: tuple[int, ...]
    """Hash buckets of the caller's words."""
    opening: str
    """Template of the agent's first clause."""

    def describe(self) -> dict[str, Any]:
        """JSON values."""
        return {"contexts": list(self.contexts), "words": list(self.words), "opening": self.opening}

    @classmethod
    def restore(cls, values: Mapping[str, Any]) -> Observation:
        """From `describe`. Raises ValueError for anything else."""
        contexts, words, opening = (values.get(name) for name in ("contexts", "words", "opening"))
        if (
            not isinstance(contexts, list)
            or not isinstance(words, list)
            or not isinstance(opening, str)
            or len(contexts) > 8
            or len(words) > 64
            or not all(isinstance(context, str) and len(context) < 2000 for context in contexts)
            or not all(isinstance(word, int) for word in words)
            or len(opening) > 1000
        ):
            raise ValueError("not an observation")
        return cls(tuple(contexts), tuple(words), opening)


@dataclass(frozen=True, slots=True)
class Prediction:
    """One opening that may come."""

    text: str
    """Ready to be spoken: places filled in."""
    pattern: str
    """With places left open."""
    probability: float
    why: str
    """What it rests on, for people."""


@dataclass(slots=True)
class _Counts:
    total: float
    by_opening: dict[str, float]


class Predictor:
    """Learns online.

    Args:
        half_life_turns: observations after which an older one counts half.
    """

    def __init__(self, half_life_turns: float = 4000) -> None:
        self._growth = 2.0 ** (1.0 / half_life_turns)
        self._unit = 1.0
        self._contexts: OrderedDict[str, _Counts] = OrderedDict()

    def __len__(self) -> int:
        """Contexts known."""
        return len(self._contexts)

    @property
    def openings(self) -> int:
        """Different openings known."""
        root = self._contexts.get("")
        return 0 if root is None else len(root.by_opening)

    def observation(self, situation: Situation, heard: str, opening: str) -> Observation:
        """What is to be learned of a turn: after `heard` in `situation` the agent began with `opening`."""
        slots = {**heard_slots(heard), **situation.slots}
        words = tuple(sorted(word_buckets(heard)))[:64]
        return Observation(_contexts(situation), words, template(opening, slots).strip())

    def observe(self, seen: Observation) -> None:
        """Learn."""
        if not seen.opening:
            return
        self._unit *= self._growth
        for context in seen.contexts:
            self._count(context, seen.opening)
        for word in seen.words:
            self._count(f"w\t{word}", seen.opening)
            if len(seen.contexts) > 1:
                self._count(f"w\t{word}\t{seen.contexts[-2]}", seen.opening)
        if self._unit > RESCALE_AT:
            self._rescale()
        while len(self._contexts) > MAX_CONTEXTS:
            self._contexts.popitem(last=False)

    def predict(self, situation: Situation, partial: str = "", *, limit: int = 4) -> list[Prediction]:
        """The likeliest openings, the first one first; probabilities are of all that could follow."""
        slots = {**heard_slots(partial), **situation.slots}
        prior, reasons = self._prior(situation)
        if not prior:
            return []
        buckets = word_buckets(partial)
        if len(prior) > MAX_WEIGHED:
            prior = dict(sorted(prior.items(), key=lambda item: -item[1])[:MAX_WEIGHED])
        posterior = self._with_words(prior, situation, buckets) if buckets else prior
        out: list[Prediction] = []
        for pattern, probability in sorted(posterior.items(), key=lambda item: -item[1]):
            text = fill(pattern, slots)
            if text is None:
                continue
            why = reasons.get(pattern, "seen before")
            if buckets:
                why += f"; caller's words {prior[pattern]:.2f} -> {probability:.2f}"
            out.append(Prediction(text, pattern, probability, why))
            if len(out) >= limit:
                break
        return out

    def dump(self) -> dict[str, Any]:
        """All that was learned as JSON values."""
        return {
            "format": FORMAT,
            "contexts": {
                context: {opening: round(count / self._unit, 6) for opening, count in counts.by_opening.items()}
                for context, counts in self._contexts.items()
            },
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Take over what `dump` gave, in place of what is there. Raises ValueError and changes nothing otherwise."""
        if values.get("format") != FORMAT or not isinstance(values.get("contexts"), dict):
            raise ValueError(f"predictor: format {FORMAT} expected")
        contexts: OrderedDict[str, _Counts] = OrderedDict()
        for context, openings in values["contexts"].items():
            if not isinstance(openings, dict) or not all(
                isinstance(count, int | float) and math.isfinite(count) and count >= 0 for count in openings.values()
            ):
                raise ValueError("predictor: counts by opening expected")
            kept = dict(
                sorted(openings.items(), key=lambda item: -item[1])[: MAX_OPENINGS_PER_CONTEXT * _wide(context)]
            )
            contexts[context] = _Counts(float(sum(kept.values())), kept)
            if len(contexts) >= MAX_CONTEXTS:
                break
        self._contexts = contexts
        self._unit = 1.0

    def _count(self, context: str, opening: str) -> None:
        counts = self._contexts.get(context)
        if counts is None:
            counts = self._contexts[context] = _Counts(0.0, {})
        self._contexts.move_to_end(context)
        counts.by_opening[opening] = counts.by_opening.get(opening, 0.0) + self._unit
        counts.total += self._unit
        if len(counts.by_opening) > MAX_OPENINGS_PER_CONTEXT * _wide(context):
            rare = min(counts.by_opening, key=lambda name: counts.by_opening[name])
            counts.total -= counts.by_opening.pop(rare)

    def _prior(self, situation: Situation) -> tuple[dict[str, float], dict[str, str]]:
        probabilities: dict[str, float] = {}
        reasons: dict[str, str] = {}
        for context in reversed(_contexts(situation)):
            counts = self._contexts.get(context)
            if counts is None or counts.total <= 0:
                continue
            total = counts.total / self._unit
            # Types that were seen, by their decayed weight: one that has all but faded is no type any more.
            types = sum(min(1.0, count / self._unit) for count in counts.by_opening.values())
            share = total / (total + types)
            probabilities = {opening: p * (1 - share) for opening, p in probabilities.items()}
            for opening, count in counts.by_opening.items():
                part = share * count / counts.total
                probabilities[opening] = probabilities.get(opening, 0.0) + part
                if part > 0.01:
                    reasons[opening] = f"{_named(context)}: {count / self._unit:.1f} of {total:.1f}"
        expected = dict.fromkeys(
            template(text, situation.slots).strip() for text in situation.expected[:MAX_EXPECTED] if text.strip()
        )
        if expected:
            counts = self._contexts.get(_contexts(situation)[0])
            seen = 0.0 if counts is None else counts.total / self._unit
            share = EXPECTED_WEIGHT / (EXPECTED_WEIGHT + seen)
            probabilities = {opening: p * (1 - share) for opening, p in probabilities.items()}
            for opening in expected:
                probabilities[opening] = probabilities.get(opening, 0.0) + share / len(expected)
                reasons[opening] = "the hook expects it" + (f"; {reasons[opening]}" if opening in reasons else "")
        return probabilities, reasons

    def _with_words(self, prior: Mapping[str, float], situation: Situation, buckets: Iterable[int]) -> dict[str, float]:
        here = _contexts(situation)
        evidence: list[tuple[float, dict[str, float]]] = []
        for bucket in buckets:
            lifts: dict[str, float] = {}
            counts = self._contexts.get(f"w\t{bucket}\t{here[-2]}" if len(here) > 1 else f"w\t{bucket}")
            counts = counts or self._contexts.get(f"w\t{bucket}")
            if counts is None or counts.total <= 0:
                continue
            total = counts.total / self._unit
            types = sum(min(1.0, count / self._unit) for count in counts.by_opening.values())
            for opening, p in prior.items():
                given = (counts.by_opening.get(opening, 0.0) / self._unit + types * p) / (total + types)
                lifts[opening] = math.log(given / p) if p > 0 else 0.0
            spread = sum(prior[opening] * abs(lift) for opening, lift in lifts.items())
            evidence.append((spread, lifts))
        evidence.sort(key=lambda item: -item[0])
        scores = {
            opening: math.log(p) + WORD_TRUST * sum(lifts[opening] for _, lifts in evidence[:MAX_WORDS])
            for opening, p in prior.items()
            if p > 0
        }
        # What is left for openings never seen stays as it was: words cannot tell of those.
        known = sum(prior.values())
        top = max(scores.values())
        weights = {opening: math.exp(score - top) for opening, score in scores.items()}
        scale = known / sum(weights.values())
        return {opening: weight * scale for opening, weight in weights.items()}

    def _rescale(self) -> None:
        for counts in self._contexts.values():
            counts.by_opening = {opening: count / self._unit for opening, count in counts.by_opening.items()}
            counts.total = sum(counts.by_opening.values())
        self._unit = 1.0


def _contexts(situation: Situation) -> tuple[str, ...]:
    """Most specific first, the empty one last; the last but one is what words are counted in."""
    out: list[str] = []
    if situation.intent and (situation.state or situation.said):
        out.append(f"i\t{situation.state}\t{situation.said}\t{situation.intent}")
    if situation.state and situation.said:
        out.append(f"b\t{situation.state}\t{situation.said}")
    if situation.said:
        out.append(f"c\t{situation.said}")
    if situation.state:
        out.append(f"s\t{situation.state}")
    out.append("")
    return tuple(out)


def _wide(context: str) -> int:
    """The empty context holds more openings than any other: all there are."""
    return 8 if not context else 1


def _named(context: str) -> str:
    kind, _, rest = context.partition("\t")
    name = {"i": "state, clause and intent", "b": "state and last clause", "c": "last clause", "s": "state"}.get(kind)
    return f"{name} {rest.replace(chr(9), ' | ')!r}" if name else "any time"
