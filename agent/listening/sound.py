"""What a turn's sound says about its end: the model where one is installed, else the contour of the voice.

The model hears what the recogniser hears: the segments of the turn, with no more of a pause than opens and closes one.
It runs in the engines' pool, once a closed segment (about 50 ms of a core), never on the event loop.
"""

from __future__ import annotations

import logging
from typing import Protocol

from agent import models
from agent.config import Settings
from agent.core.pool import Priority, WorkerPool
from agent.errors import EngineError, ModelMissing
from agent.listening.prosody import judge_prosody
from agent.listening.recent import RecentAudio
from agent.listening.smartturn import MODEL_FILE, WINDOW_SAMPLES, SmartTurn
from agent.media.frames import Pcm

__all__ = ["TurnModel", "TurnSound", "load_turn_model"]

MODEL = "smart-turn"

DEADLINE_S = 1.0
"""Later than this the turn is decided anyway."""

log = logging.getLogger(__name__)


class TurnModel(Protocol):
    """A model of the end of a turn. Called in the pool's threads, for several calls at once."""

    def probability(self, pcm: Pcm) -> float:
        """For int16 [n] at 16 kHz, ending in a pause: 0 to 1. Raises EngineError."""
        ...


class TurnSound:
    """One call's turn as sound. Event loop only.

    Args:
        model: None judges by the contour alone.
        pool: where the model runs; its owner closes it.
    """

    def __init__(self, model: TurnModel | None, pool: WorkerPool) -> None:
        self._model = model
        self._pool = pool
        self._audio = RecentAudio(WINDOW_SAMPLES)
        self._from = 0

    def begin(self, pcm: Pcm, repeated: int) -> None:
        """A segment opened; the first `repeated` samples of int16 [n] were part of the segment before."""
        self._audio.push(pcm[repeated if self._audio.position > self._from else 0 :])

    def push(self, pcm: Pcm) -> None:
        """More of the open segment, int16 [n]."""
        self._audio.push(pcm)

    def clear(self) -> None:
        """The turn is over: the next begins from nothing."""
        self._from = self._audio.position

    async def judge(self) -> float | None:
        """Probability, 0 to 1, that the turn is over, now that it pauses; None when its sound says nothing.

        A model that fails or comes too late is stood in for by the contour.
        """
        pcm = self._audio.since(self._from)
        if not len(pcm):
            return None
        if self._model is not None:
            try:
                return await self._pool.run(
                    self._model.probability, pcm, owner=self, priority=Priority.NORMAL, deadline_s=DEADLINE_S
                )
            except EngineError as exc:
                log.warning("end-of-turn model: %s; judging by the contour", type(exc).__name__)
        return judge_prosody(pcm)


async def load_turn_model(settings: Settings, pool: WorkerPool) -> TurnModel | None:
    """The model that `listening.turn_model` asks for, loaded in a thread of the pool and run once; None for none.

    Raises:
        ModelMissing: the setting is `on` and the model is not installed.
        EngineError: its file is damaged.
    """
    wish = settings.listening.turn_model
    if wish == "off" or settings.listening.endpoint == "silence":
        return None
    try:
        return await pool.run(_load, settings, owner=MODEL)
    except ModelMissing:
        if wish == "on":
            raise
        log.info("no end-of-turn model is installed; words and the contour of the voice decide")
        return None


def _load(settings: Settings) -> SmartTurn:
    model = SmartTurn(models.require(MODEL, settings.models) / MODEL_FILE)
    # The first run allocates; no caller should wait for that.
    model.probability(RecentAudio(WINDOW_SAMPLES).since(0))
    return model
