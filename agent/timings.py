"""Where the time between the caller's last word and the agent's first went."""

from __future__ import annotations

from typing import Protocol

from agent.conversation.protocol import Ask
from agent.events import CacheUse, TurnTimings
from agent.reply import ReplyClock

__all__ = ["timings_of"]


class Answered(Protocol):
    """A reply that has become audible."""

    audible_at: float | None
    final_ms: float | None

    @property
    def cache(self) -> CacheUse:
        """Where the speech of its first clause was."""
        ...


def timings_of(response_id: str, ask: Ask | None, clock: ReplyClock, answered: Answered) -> TurnTimings | None:
    """Timings of an answer, or None for what answers nothing.

    That is a greeting, a turn of silence, and a phrase of the agent's own.

    Times are those of one monotonic clock, in seconds; the result is in milliseconds. A filler that was audible before
    the answer leaves `response_ms` as the time to that first sound, which is what the caller waited for.
    """
    if ask is None or ask.kind in ("greeting", "silence"):
        return None

    def between(start: float | None, end: float | None) -> float | None:
        return None if start is None or end is None else round(max(0.0, end - start) * 1000, 1)

    return TurnTimings(
        response_id=response_id,
        endpoint_ms=between(ask.last_speech_at, clock.asked),
        asr_final_ms=None if answered.final_ms is None else round(answered.final_ms, 1),
        nlu_first_ms=between(clock.asked, clock.first_text),
        tts_first_ms=between(clock.first_clause, clock.first_speech),
        playout_ms=between(clock.first_speech, answered.audible_at),
        response_ms=between(ask.last_speech_at or clock.asked, answered.audible_at),
        cache=answered.cache,
    )
