"""What every call must leave behind, whatever happened in it: nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest

from agent.nlu.hook import Nlu, Turn
from agent.testing import ScriptedRecognizer, VirtualCall, rehearsal

Rehearse = Callable[..., AbstractAsyncContextManager[VirtualCall]]


@asynccontextmanager
async def _rehearse(nlu: Nlu, **options: Any) -> AsyncIterator[VirtualCall]:
    async with rehearsal(nlu, **options) as call:
        stage = call.stage
        yield call
    assert call.ended is not None
    assert call.port.closed
    if isinstance(stage.recognizer, ScriptedRecognizer):
        assert all(stream.closed for stream in stage.recognizer.streams)
    assert stage.metrics.value("voice_calls_active", channel="browser") == 0
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert left == []


@pytest.fixture
def rehearse() -> Rehearse:
    """A call in virtual time, checked for what it leaves behind."""
    return _rehearse


def replying(answers: dict[str, Sequence[Any]], otherwise: Sequence[Any] = ()) -> Callable[[Turn], Sequence[Any]]:
    """For ScriptedHook: an answer by what the turn's text ends with, and by kind for turns without text."""

    def reply(turn: Turn) -> Sequence[Any]:
        text = turn.text.lower().rstrip(".?!")
        if not text:
            return answers.get(turn.kind, otherwise)
        return next((answer for ending, answer in answers.items() if text.endswith(ending)), otherwise)

    return reply


@pytest.fixture
def by_text() -> Callable[..., Callable[[Turn], Sequence[Any]]]:
    """See `replying`."""
    return replying
