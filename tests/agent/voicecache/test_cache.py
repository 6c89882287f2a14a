"""The cache as a whole, with memory and disk."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agent.asr.protocol import EngineInfo
from agent.config import Settings
from agent.core.fairqueue import Priority
from agent.core.pool import WorkerPool
from agent.errors import EngineError, EnvironmentFault
from agent.media.codec import OPUS, PCMU
from agent.observe.metrics import Metrics
from agent.tts.fallback import FallbackSynthesizer
from agent.tts.protocol import CUT_SHORT, Speech, Voice
from agent.voicecache.cache import VoiceCache
from agent.voicecache.disk import DiskTier
from agent.voicecache.journal import Journal
from agent.voicecache.learning import journal_folder
from tests.agent.voicecache.support import RATE, STYLE, VOICE, Parrot

Opened = Callable[..., AbstractAsyncContextManager[VoiceCache]]


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    @asynccontextmanager
    async def make(engine: Any, **cache: object) -> AsyncIterator[VoiceCache]:
        settings = Settings.model_validate({"cache": {"folder": tmp_path / "voice", **cache}})
        async with (
            WorkerPool(1, name="test") as pool,
            VoiceCache.open(settings, engine, pool=pool, metrics=Metrics()) as voice_cache,
        ):
            yield voice_cache

    return make


async def hear(cache: VoiceCache, text: str, voice: Voice = VOICE, **options: Any) -> list[Speech]:
    return [piece async for piece in cache.speech(text, voice, STYLE, **options)]


async def test_the_second_time_comes_from_memory_in_one_piece_and_sounds_the_same(opened: Opened) -> None:
    parrot = Parrot()
    async with opened(parrot) as cache:
        first = await hear(cache, "Good morning.")
        second = await hear(cache, "Good morning.")
    assert parrot.begun["Good morning."] == 1
    assert len(second) == 1
    # But for its ends: this engine's are loud, and a joint must not click.
    inner = slice(RATE // 100, -RATE // 100)
    assert np.array_equal(second[0].pcm[inner], np.concatenate([piece.pcm for piece in first])[inner])
    assert [word.text for word in second[0].words] == ["Good morning."]


async def test_it_is_a_synthesizer_whose_clause_waits_behind_finals(opened: Opened) -> None:
    parrot = Parrot()
    async with opened(parrot) as cache:
        assert cache.info == parrot.info
        assert len([piece async for piece in cache.stream("Hello.", VOICE, STYLE)]) == 2
    assert parrot.priorities == [Priority.NORMAL]


async def test_a_second_start_finds_it_on_disk(opened: Opened) -> None:
    async with opened(Parrot()) as cache:
        await hear(cache, "Good morning.")
    parrot = Parrot()
    async with opened(parrot) as cache:
        assert not cache.ready("Good morning.", VOICE, STYLE)
        assert len(await hear(cache, "Good morning.")) == 1
        assert cache.lookup("Good morning.", VOICE, STYLE) is not None
    assert not parrot.begun


async def test_phrases_of_any_language_are_found_on_disk(opened: Opened, tmp_path: Path) -> None:
    settings = Settings.model_validate(
        {
            "cache": {"folder": tmp_path / "zh"},
            "tts": {"language": "zh", "engine": "espeak"},
            "phrases": {"goodbye": "您好。"},
        }
    )
    for _ in range(2):
        parrot = Parrot()
        async with (
            WorkerPool(1, name="test") as pool,
            VoiceCache.open(settings, parrot, pool=pool, metrics=Metrics()) as cache,
        ):
            await hear(cache, "您好。", Voice("heart", "zh"))
            await hear(cache, "张伟先生，您好。", Voice("heart", "zh"))
    assert not parrot.begun["您好。"]
    assert parrot.begun["张伟先生，您好。"] == 1


async def test_text_that_is_private_never_leaves_memory(opened: Opened, tmp_path: Path) -> None:
    texts = ["Thank you, Anna Kowalski.", "Your code is 4711.", "Fine."]
    for _ in range(2):
        parrot = Parrot()
        async with opened(parrot) as cache:
            for text in texts:
                for _ in range(2):
                    await hear(cache, text, private=text == "Fine.")
        assert parrot.begun == dict.fromkeys(texts, 1)
    assert not DiskTier(tmp_path / "voice" / "speech", 10**6).keys()


async def test_a_voice_that_the_engine_lacks_is_told(opened: Opened) -> None:
    async with opened(FallbackSynthesizer([Parrot()])) as cache:
        with pytest.raises(EngineError):
            await hear(cache, "Hello.", Voice("nobody"))
        assert cache.lookup("Hello.", Voice("nobody"), STYLE) is None
        assert not cache.ready("Hello.", Voice("nobody"), STYLE)


async def test_a_failed_or_cut_or_silent_synthesis_is_not_kept(opened: Opened) -> None:
    parrot = Parrot()
    parrot.fails.add("Broken.")
    parrot.silent.add("Silent.")
    async with opened(parrot) as cache:
        with pytest.raises(EngineError):
            await hear(cache, "Broken.")
        await hear(cache, "Silent.")
        parrot.tail.clear()
        pieces = cache.speech("Given up.", VOICE, STYLE)
        await anext(pieces)
        await pieces.aclose()
        parrot.tail.set()
        await cache.settled()
        for text in ("Broken.", "Silent.", "Given up."):
            assert not cache.ready(text, VOICE, STYLE)
        parrot.fails.clear()
        assert len(await hear(cache, "Broken.")) == 2
        assert cache.ready("Broken.", VOICE, STYLE)


@pytest.mark.parametrize("source", ["stand-in/2", CUT_SHORT])
async def test_speech_of_a_stand_in_is_heard_and_not_kept(opened: Opened, source: str) -> None:
    async with opened(Parrot(source)) as cache:
        assert len(await hear(cache, "Hello.")) == 2
        assert not cache.ready("Hello.", VOICE, STYLE)


async def test_what_a_fallback_says_is_never_stored_under_the_first_engines_key(opened: Opened) -> None:
    first = Parrot()
    second = Parrot(info=EngineInfo("crow", "1", 24_000, ("en",), True, ("crow",)))
    first.fails.add("Hello there.")
    engine = FallbackSynthesizer([first, second])
    async with opened(engine) as cache:
        heard = await hear(cache, "Hello there.")
        assert {piece.source for piece in heard} == {"parrot/1", "crow/1"}
        assert not cache.ready("Hello there.", VOICE, STYLE)


async def test_a_hundred_misses_synthesise_once(opened: Opened) -> None:
    parrot = Parrot()
    async with opened(parrot) as cache:
        await asyncio.gather(*(hear(cache, "Hello.") for _ in range(100)))
    assert parrot.begun["Hello."] == 1


async def test_the_memory_bound_holds(opened: Opened) -> None:
    async with opened(Parrot(), memory_mb=1) as cache:
        for number in range(200):
            await hear(cache, f"clause {'x' * number}")
            assert cache.memory_bytes <= 1_000_000


async def test_packets_are_made_once_and_come_back_from_disk(opened: Opened) -> None:
    async with opened(Parrot()) as cache:
        await hear(cache, "Hello.")
        speech = cache.lookup("Hello.", VOICE, STYLE)
        assert speech is not None
        assert cache.packets.ready(speech, PCMU) is None
        one, two = await asyncio.gather(cache.packets.make(speech, PCMU), cache.packets.make(speech, PCMU))
        opus = await cache.packets.make(speech, OPUS)
        assert one is two
        assert len(one.payloads) == len(opus.payloads) == 10
        assert cache.packets.ready(speech, PCMU) is one
    async with opened(Parrot()) as cache:
        await hear(cache, "Hello.")
        speech = cache.lookup("Hello.", VOICE, STYLE)
        assert speech is not None
        found = cache.packets.ready(speech, PCMU)
        assert found is not None
        assert found.payloads == one.payloads


async def test_a_dialogue_teaches_and_the_next_opening_is_made_ahead(opened: Opened, tmp_path: Path) -> None:
    parrot = Parrot()
    async with opened(parrot, memory_mb=1) as cache:
        for number in range(3):
            call = f"call-{number}"
            cache.on_call(call, VOICE, STYLE)
            cache.on_turn(call, said="How can I help?", state={"state": "start"})
            cache.on_partial(call, "where is my parcel")
            cache.on_reply(call, "Let me look.", heard="where is my parcel")
            cache.on_end(call)
        assert not parrot.begun
        cache.on_call("now", VOICE, STYLE)
        cache.on_turn("now", said="How can I help?", state={"state": "start"})
        await cache.settled()
        assert cache.ready("Let me look.", VOICE, STYLE)
        cache.on_partial("now", "where is my parcel")
        cache.on_reply("now", "Let me look.", heard="where is my parcel")
        await cache.settled()
    assert parrot.priorities == [Priority.IDLE]
    [turn] = Journal(journal_folder(tmp_path / "voice")).read("now")
    assert turn.used
    assert turn.predicted[0].opening == "Let me look."
    async with opened(parrot) as cache:
        cache.on_call("later", VOICE, STYLE)
        cache.on_turn("later", said="How can I help?", state={"state": "start"})
        assert cache.foresight.predictions("later")[0].text == "Let me look."


async def test_nothing_is_made_ahead_when_it_is_off(opened: Opened) -> None:
    parrot = Parrot()
    async with opened(parrot, predict=False) as cache:
        cache.on_call("a", VOICE, STYLE)
        cache.on_turn("a", said="Hi.", expected=("Of course.",))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not cache.foresight.predictions("a")
    assert not parrot.begun


async def test_a_folder_asked_for_that_cannot_be_made_is_told(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match=r"cache\.folder"):
        async with opened(Parrot(), folder=tmp_path / "file" / "x"):
            pass


async def test_a_default_folder_that_cannot_be_made_leaves_memory(opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    settings = Settings.model_validate({"models": {"cache_dir": tmp_path / "file" / "x"}})
    parrot = Parrot()
    async with (
        WorkerPool(1, name="test") as pool,
        VoiceCache.open(settings, parrot, pool=pool, metrics=Metrics()) as cache,
    ):
        await hear(cache, "Hello.")
        await hear(cache, "Hello.")
    assert parrot.begun["Hello."] == 1


async def test_speech_asked_for_privately_never_leaves_memory(opened: Opened, tmp_path: Path) -> None:
    parrot = Parrot()
    async with opened(parrot) as cache:
        for _ in range(2):
            assert [piece async for piece in cache.privately("Fine.", VOICE, STYLE)]
        assert cache.ready("Fine.", VOICE, STYLE)
    assert parrot.begun == {"Fine.": 1}
    assert not DiskTier(tmp_path / "voice" / "speech", 10**6).keys()


async def test_a_hit_brings_its_packets_once_they_are_made(opened: Opened) -> None:
    async with opened(Parrot()) as cache:
        fresh = await hear(cache, "Hello.")
        assert all(piece.packets is None for piece in fresh), "what is being made is no whole clause"
        [piece] = await hear(cache, "Hello.")
        assert piece.packets is not None
        assert piece.packets(OPUS) is None
        speech = cache.lookup("Hello.", VOICE, STYLE)
        assert speech is not None
        made = await cache.packets.make(speech, OPUS)
        assert piece.packets(OPUS) is made
        assert piece.packets(PCMU) is not made
