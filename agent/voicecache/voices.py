"""Which voices the next calls will want, by hour of day, caller and queue. Pure.

Each is counted with the same decay; the shares are averaged, those with more observations weighing more. Callers are
kept as hashes, at most `MAX_CALLERS` of them.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from agent.tts.protocol import Voice

__all__ = ["VoicePredictor"]

MAX_CALLERS = 5_000
MAX_QUEUES = 200
MAX_VOICES = 32
"""Voices told apart in one place; further ones push the rarest out."""

CALLER = "caller "

PRIOR = 2.0
"""Observations that everything together counts for beside those of one hour, caller or queue."""


class VoicePredictor:
    """Learns online.

    Args:
        half_life_calls: calls after which an older one counts half.
    """

    def __init__(self, half_life_calls: float = 500) -> None:
        self._growth = 2.0 ** (1.0 / half_life_calls)
        self._unit = 1.0
        self._counts: OrderedDict[str, dict[Voice, float]] = OrderedDict()

    def observe(self, voice: Voice, *, hour: int, caller: str | None = None, queue: str = "") -> None:
        """A call was spoken with this voice. `hour`: 0 to 23, local."""
        self._unit *= self._growth
        for place in ("all", *_places(hour, caller, queue)):
            counts = self._counts.setdefault(place, {})
            self._counts.move_to_end(place)
            counts[voice] = counts.get(voice, 0.0) + self._unit
            if len(counts) > MAX_VOICES:
                del counts[min(counts, key=lambda name: counts[name])]
        if self._unit > 1e12:
            for counts in self._counts.values():
                for name in counts:
                    counts[name] /= self._unit
            self._unit = 1.0
        while len(self._counts) > MAX_CALLERS + MAX_QUEUES:
            self._counts.popitem(last=False)

    def rank(
        self, *, hour: int, caller: str | None = None, queue: str = "", limit: int = 4
    ) -> list[tuple[Voice, float]]:
        """Voices with their probability, the likeliest first."""
        every = self._counts.get("all", {})
        total = sum(every.values())
        if not total:
            return []
        scores = {voice: PRIOR * count / total for voice, count in every.items()}
        weight = PRIOR
        for place in _places(hour, caller, queue):
            counts = self._counts.get(place, {})
            weight += sum(counts.values()) / self._unit
            for voice, count in counts.items():
                scores[voice] = scores.get(voice, 0.0) + count / self._unit
        ranked = sorted(((voice, score / weight) for voice, score in scores.items()), key=lambda item: -item[1])
        return ranked[:limit]

    def dump(self) -> dict[str, list[list[str | float]]]:
        """What was learned as JSON values, but for callers: whoever has the file could try all numbers."""
        return {
            place: [[voice.name, voice.language, round(count / self._unit, 6)] for voice, count in counts.items()]
            for place, counts in self._counts.items()
            if not place.startswith(CALLER)
        }

    def restore(self, values: object) -> None:
        """Take over what `dump` gave, in place of what is there. Raises ValueError and changes nothing otherwise."""
        if not isinstance(values, dict):
            raise ValueError("voices: places expected")
        restored: OrderedDict[str, dict[Voice, float]] = OrderedDict()
        for place, counts in list(values.items())[-(MAX_CALLERS + MAX_QUEUES) :]:
            try:
                restored[place] = {Voice(str(name), str(tag)): float(count) for name, tag, count in counts}
            except (TypeError, ValueError) as exc:
                raise ValueError("voices: name, language and count expected") from exc
        self._counts = restored
        self._unit = 1.0


def _places(hour: int, caller: str | None, queue: str) -> list[str]:
    places = [f"hour {hour % 24}"]
    if caller:
        places.append(f"{CALLER}{hashlib.blake2b(caller.encode(), digest_size=8).hexdigest()}")
    if queue:
        places.append(f"queue {queue[:80]}")
    return places
