"""Calls on a real voice cache: the answer is there before it is asked for, and what is private stays in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.events import TurnTimings
from agent.nlu.hook import Private, Turn
from agent.observe.metrics import Metrics
from agent.testing import ScriptedHook, ScriptedSynthesizer, virtual_time
from agent.testing.stage import Stage
from agent.tts.protocol import Style, Voice
from agent.voicecache.cache import VoiceCache, cache_folder
from agent.voicecache.journal import Journal
from agent.voicecache.learning import journal_folder


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


@asynccontextmanager
async def cached(hook: Any, folder: Path, **cache: Any) -> AsyncIterator[tuple[Stage, VoiceCache, ScriptedSynthesizer]]:
    settings = Settings.model_validate(
        {
            "conversation": {"speculate": False, "filler_after_s": 0},
            "cache": {"folder": folder, "private": "none", **cache},
        }
    )
    engine = ScriptedSynthesizer(first_s=0.1)
    loop = asyncio.get_running_loop()
    async with (
        WorkerPool(1, name="test") as pool,
        VoiceCache.open(settings, engine, pool=pool, metrics=Metrics(), now=loop.time) as voice_cache,
        Stage(hook, settings=settings, synthesizer=voice_cache, foresight=voice_cache) as stage,
    ):
        yield stage, voice_cache, engine


@virtual_time
async def test_the_opening_is_made_while_the_caller_speaks_and_the_call_explains_it(tmp_path: Path) -> None:
    """Two answers are as likely as each other, and only what is likelier is made: the caller's words must tell."""
    answers = {"hours": "We are open from nine to six.", "cost": "Delivery is five euros."}

    def reply(turn: Turn) -> list[Any]:
        known = [answer for word, answer in answers.items() if word in turn.text]
        return known or ["How may I help you?"]

    async with cached(ScriptedHook(reply), tmp_path, min_probability=0.6) as (stage, cache, engine):
        for number in range(8):
            teacher = await stage.call(call_id=f"teacher_{number}")
            await teacher.answer()
            await teacher.types("your hours" if number % 2 else "what does it cost")
            await teacher.answer()
            await teacher.hangs_up()
        # What was learned is kept, the speech is not: another voice has said none of it.
        call = await stage.call(call_id="pupil")
        call.call.configure(voice="other")
        await call.answer()
        engine.spoken.clear()
        await call.says("good morning please tell me now what it may cost if I have it brought")
        assert engine.spoken == ["Delivery is five euros."]
        assert len(call.asked) == 1
        await call.answer()
        assert call.of(TurnTimings)[-1].cache == "predicted"
        await call.says("sorry again please what does it cost")
        await call.answer()
        assert call.of(TurnTimings)[-1].cache == "hit"
        assert teacher.of(TurnTimings)[-1].cache == "hit"
        await call.hangs_up()
        await cache.settled()
    assert engine.spoken.count("Delivery is five euros.") == 1
    answered = Journal(journal_folder(cache_folder(stage.settings))).read("pupil")[1]
    assert (answered.opening, answered.used, answered.ready) == ("Delivery is five euros.", True, True)
    assert answered.partials > 0
    assert answered.last_clause == "How may I help you?"


@virtual_time
async def test_what_a_hook_marks_as_private_leaves_nothing_on_disk_or_in_what_was_learned(tmp_path: Path) -> None:
    hook = ScriptedHook(["Hello."], ["Thanks a lot. ", Private(), "The word is zebra."], [Private(), "Zebra it is."])
    async with cached(hook, tmp_path) as (stage, cache, _):
        call = await stage.call()
        await call.answer()
        for text in ("my word", "again"):
            await call.types(text)
            await call.answer()
        await call.hangs_up()
        await cache.settled()
        assert cache.ready("The word is zebra.", Voice(), Style())
    kept = contents(tmp_path)
    assert any(b"Thanks a lot." in data for data in kept)
    assert not any(b"zebra" in data.lower() for data in kept)
    assert b"Thanks a lot." in (tmp_path / "learned.json").read_bytes()


@virtual_time
async def test_with_a_dead_engine_what_was_said_before_is_said_again_and_the_rest_is_apologised_for(
    tmp_path: Path,
) -> None:
    def reply(turn: Turn) -> list[Any]:
        return ["Good morning to you."] if turn.kind == "greeting" else [f"You said {turn.text}."]

    async with cached(ScriptedHook(reply), tmp_path) as (stage, _, engine):
        first = await stage.call()
        await first.answer()
        await first.hangs_up()
        engine.broken = True
        second = await stage.call()
        assert (await second.answer()).text == "Good morning to you."
        await second.types("nothing known")
        assert (await second.answer()).text.endswith(stage.settings.phrases.apology)
        assert not second.ended
