"""Engines in a core, used through their remote twins: the same protocols, and what they do without the core."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

from agent.asr.protocol import EngineInfo, Hypothesis, Word
from agent.core import client as clients
from agent.core import remote_asr
from agent.core.address import parse_core_address
from agent.core.client import CoreClient
from agent.core.coremetrics import CoreMetrics
from agent.core.fairqueue import Priority
from agent.core.linking import LinkOptions, listening
from agent.core.messages import Evidence
from agent.core.remote_asr import RemoteRecognizer
from agent.core.remote_tts import RemoteSynthesizer
from agent.core.server import CoreServer, Shard
from agent.core.urgency import Urgency, current_priority, urgency
from agent.errors import (
    ConfigError,
    CoreLost,
    EngineError,
    EngineOverloaded,
    EnvironmentFault,
    UnsupportedLanguage,
    UnsupportedVoice,
)
from agent.media.frames import HEARING_SAMPLES, Pcm
from agent.testing.recognizer import Reading, ScriptedRecognizer
from agent.testing.synthesizer import Making, ScriptedSynthesizer
from agent.tts.fallback import FallbackSynthesizer
from agent.tts.protocol import Speech, Style, Voice

DEADLINE_S = 20.0
HEART, STYLE = Voice("heart", "en"), Style(1.25, "calmly")
FRAME = np.arange(HEARING_SAMPLES, dtype=np.int16)


@dataclass
class Plant:
    """A core with scripted engines, and an edge that is linked to it."""

    folder: Path
    stack: AsyncExitStack
    asr: ScriptedRecognizer = field(default_factory=ScriptedRecognizer)
    tts: ScriptedSynthesizer = field(default_factory=ScriptedSynthesizer)
    capacity: int = 8
    vad: object = None
    turn_sound: object = lambda: None
    core: CoreServer = field(init=False)
    client: CoreClient = field(init=False)
    running: AsyncExitStack = field(init=False)

    @property
    def address(self):  # type: ignore[no-untyped-def]
        return parse_core_address(f"shm:{self.folder}/core")

    async def start_core(self, **shards: object) -> None:
        engines = {"asr:en": self.asr, "tts:heart": self.tts}
        chosen = {name: Shard(name, engine, self.capacity) for name, engine in (shards or engines).items()}  # type: ignore[arg-type]
        self.running = AsyncExitStack()
        self.core = await self.running.enter_async_context(
            CoreServer("core", chosen, CoreMetrics(), vad=self.vad, turn_sound=self.turn_sound)  # type: ignore[arg-type]
        )
        await self.running.enter_async_context(
            listening(self.address, LinkOptions(), self.core.accept, self.core.serving)
        )

    async def stop_core(self) -> None:
        await self.running.aclose()

    async def lose_core(self) -> None:
        await self.stop_core()
        await until(lambda: not self.client.linked)

    async def find_core(self) -> None:
        await self.start_core()
        await self.client.wait_linked(DEADLINE_S)

    async def link(self) -> CoreClient:
        self.client = await self.stack.enter_async_context(CoreClient(self.address, LinkOptions(), name="edge"))
        return self.client


@asynccontextmanager
async def plant_in(folder: Path, **parts: object) -> AsyncIterator[Plant]:
    async with AsyncExitStack() as stack:
        plant = Plant(folder, stack, **parts)  # type: ignore[arg-type]
        await plant.start_core()
        stack.push_async_callback(lambda: plant.stop_core())
        await plant.link()
        yield plant


@pytest.fixture
async def plant(tmp_path: Path) -> AsyncIterator[Plant]:
    async with plant_in(tmp_path) as plant:
        yield plant


async def until(condition: Callable[[], object]) -> None:
    for _ in range(2000):
        if condition():
            return
        await asyncio.sleep(DEADLINE_S / 2000)
    pytest.fail("it did not come")


class TestRecognition:
    async def test_a_turn_is_read_as_it_goes_on_and_at_its_end(self, plant: Plant) -> None:
        plant.asr.texts = ["where is my order"]
        recognizer = RemoteRecognizer(plant.client)
        stream = recognizer.stream(language="en-GB", hints=("order",))
        for _ in range(34):
            stream.push(FRAME)
        await until(lambda: stream.partial().text == "where is")
        assert stream.partial().revision > 0
        read = await stream.final()
        assert read.text == "where is my order"
        assert plant.asr.streams[0].language == "en-GB"
        await until(lambda: stream.acked == 34)
        assert stream.in_flight == 0
        assert stream.credits == 8
        stream.close()
        await until(lambda: plant.asr.streams[0].closed)
        assert plant.core.streams == 0

    async def test_everything_of_a_hypothesis_comes_over(self, plant: Plant) -> None:
        told = Hypothesis("a b", "a", (Word("a", 0.0, 0.5), Word("b", 0.5, 1.0)), 0.5, 0.25, 7)

        class Exact(ScriptedRecognizer):
            def stream(self, *, language, hints=()):  # type: ignore[no-untyped-def]
                stream = super().stream(language=language)

                async def final() -> Hypothesis:
                    return told

                stream.final = final  # type: ignore[method-assign]
                return stream

        await plant.lose_core()
        plant.asr = Exact()
        await plant.find_core()
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(FRAME)
        assert await stream.final() == told

    async def test_the_engine_is_who_the_core_says(self, plant: Plant) -> None:
        info = RemoteRecognizer(plant.client).info
        assert (info.identity, info.sample_rate_hz, info.languages) == ("scripted/1", 16_000, ("en", "zh"))

    async def test_a_language_that_no_shard_has_is_refused_at_once(self, plant: Plant) -> None:
        with pytest.raises(UnsupportedLanguage, match="reads en; got 'de'"):
            RemoteRecognizer(plant.client).stream(language="de")

    async def test_a_failure_of_the_engine_is_one_here(self, plant: Plant) -> None:
        plant.asr.readings.append(Reading(fails=True))
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(FRAME)
        with pytest.raises(EngineError, match="scripted failure"):
            await stream.final()
        # The link lives, and so does the stream.
        assert (await stream.final()).text == ""

    async def test_a_core_that_does_not_answer_is_not_waited_for(
        self, plant: Plant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(remote_asr, "FINAL_DEADLINE_S", 0.05)
        plant.asr.readings.append(Reading(hangs=True))
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(FRAME)
        with pytest.raises(CoreLost, match="no final within"):
            await stream.final()

    async def test_a_turn_survives_the_death_of_its_core(self, plant: Plant) -> None:
        plant.asr.texts = ["lost with the first core", "what are your opening hours"]
        stream = RemoteRecognizer(plant.client).stream(language="en")
        for _ in range(20):
            stream.push(FRAME)
        await until(lambda: stream.acked == 20)
        await plant.lose_core()
        for _ in range(20):
            stream.push(FRAME)
        await plant.find_core()
        for _ in range(20):
            stream.push(FRAME)
        assert (await stream.final()).text == "what are your opening hours"
        # The second core's recogniser heard the whole turn.
        assert plant.asr.streams[1]._samples == 60 * HEARING_SAMPLES

    @pytest.mark.timeout(30)
    async def test_a_core_that_dies_while_a_final_is_awaited_holds_up_nobody(self, plant: Plant) -> None:
        """The final hears of the loss before the keeper of the link does, and must not ask again without a pause."""
        plant.asr.final_s = DEADLINE_S
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(FRAME)
        reading = asyncio.create_task(stream.final())
        await until(lambda: stream._finals)
        line = plant.client._line
        assert line is not None
        line._on_lost("killed")
        assert not plant.client.linked
        # The core was there all the time, and is asked again over a new link.
        with pytest.raises(CoreLost, match="no final within"):
            await reading
        assert plant.client._line is not line

    @pytest.mark.timeout(30)
    async def test_a_link_that_cannot_send_any_more_holds_up_nobody(
        self, plant: Plant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its end is told a pass of the loop later."""
        plant.asr.texts = ["lost with the first link", "hello"]
        stream = RemoteRecognizer(plant.client).stream(language="en")
        for _ in range(40):
            stream.push(FRAME)
        await until(lambda: plant.asr.streams)
        line = plant.client._line
        assert line is not None

        def fails(message: object) -> None:
            asyncio.get_running_loop().call_soon(line._on_lost, "killed")
            raise CoreLost("the link is down")

        monkeypatch.setattr(line.link, "send", fails)
        assert (await stream.final()).text == "hello"

    async def test_revisions_go_on_over_the_death_of_a_core(self, plant: Plant) -> None:
        plant.asr.texts = ["one two three", "one two three"]
        stream = RemoteRecognizer(plant.client).stream(language="en")
        for _ in range(40):
            stream.push(FRAME)
        await until(lambda: stream.partial().text)
        before = stream.partial().revision
        await plant.lose_core()
        await plant.find_core()
        stream.push(FRAME)
        await until(lambda: stream.partial().revision > before)

    async def test_a_final_asked_while_the_core_is_away_fails_soon_and_a_later_one_works(
        self, plant: Plant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(remote_asr, "AWAY_DEADLINE_S", 0.05)
        await plant.lose_core()
        plant.asr.texts = ["hello"]
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(FRAME)
        with pytest.raises(CoreLost, match="away"):
            await stream.final()
        await plant.find_core()
        assert (await stream.final()).text == "hello"

    async def test_nothing_pushed_is_nothing_read(self, plant: Plant) -> None:
        stream = RemoteRecognizer(plant.client).stream(language="en")
        assert await stream.final() == Hypothesis()
        stream.close()
        with pytest.raises(EngineError, match="closed"):
            await stream.final()

    async def test_audio_of_another_kind_is_refused(self, plant: Plant) -> None:
        stream = RemoteRecognizer(plant.client).stream(language="en")
        with pytest.raises(ValueError, match="int16"):
            stream.push(np.zeros(10, np.float32))  # type: ignore[arg-type]

    async def test_a_long_opening_is_sent_in_parts(self, plant: Plant) -> None:
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(np.zeros(40_000, np.int16))
        await stream.final()
        assert plant.asr.streams[0]._samples == 40_000


class TestSynthesis:
    async def test_a_clause_comes_as_the_engine_made_it(self, plant: Plant) -> None:
        local = [piece async for piece in ScriptedSynthesizer().stream("Good morning to you", HEART, STYLE)]
        remote = [p async for p in RemoteSynthesizer(plant.client).stream("Good morning to you", HEART, STYLE)]
        assert [piece.words for piece in remote] == [piece.words for piece in local]
        assert all(np.array_equal(a.pcm, b.pcm) for a, b in zip(remote, local, strict=True))
        assert plant.tts.asked_as == [(HEART, STYLE)]
        await until(lambda: plant.core.streams == 0)

    async def test_a_piece_longer_than_a_message_is_one_piece(self, plant: Plant) -> None:
        plant.tts.makings.append(Making(extra_s=10.0))
        pieces = [p async for p in RemoteSynthesizer(plant.client).stream("Yes", HEART, STYLE)]
        assert [len(piece.pcm) for piece in pieces[1:]] == [240_000]

    async def test_closing_ends_the_work_in_the_core(self, plant: Plant) -> None:
        plant.tts.makings.append(Making(hangs=True))
        async with aclosing(RemoteSynthesizer(plant.client).stream("Yes please", HEART, STYLE)) as pieces:
            await anext(pieces)
            assert plant.core.streams == 1
        await until(lambda: plant.core.streams == 0)
        await until(lambda: not [task for task in asyncio.all_tasks() if task.get_name().startswith("tts ")])

    async def test_how_urgent_it_is_travels_along_and_may_change(self, plant: Plant) -> None:
        seen: list[Priority] = []

        class Watched(ScriptedSynthesizer):
            async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
                for word in text.split():
                    await asyncio.sleep(0.05)
                    seen.append(current_priority())
                    yield Speech(np.ones(10, np.int16), (Word(word, 0, 1),))

        await plant.lose_core()
        plant.tts = Watched()
        await plant.find_core()
        told = Urgency(Priority.IDLE)
        urgency.set(told)
        async with aclosing(RemoteSynthesizer(plant.client).stream("a b c d e f g h", HEART, STYLE)) as pieces:
            async for _ in pieces:
                told.priority = Priority.LIVE
        assert seen[0] is Priority.IDLE
        assert seen[-1] is Priority.LIVE

    async def test_a_failure_comes_after_what_was_made(self, plant: Plant) -> None:
        plant.tts.makings.append(Making(words=1, fails=True))
        pieces = aiter(RemoteSynthesizer(plant.client).stream("Yes please", HEART, STYLE))
        assert (await anext(pieces)).words[0].text == "Yes"
        with pytest.raises(EngineError, match="scripted failure"):
            await anext(pieces)

    async def test_a_voice_that_no_shard_has_is_refused(self, plant: Plant) -> None:
        with pytest.raises(UnsupportedVoice, match="no voice 'nobody'; there is heart, other"):
            await anext(aiter(RemoteSynthesizer(plant.client).stream("Yes", Voice("nobody"), STYLE)))
        assert [p async for p in RemoteSynthesizer(plant.client).stream("Yes", Voice("other"), STYLE)]

    async def test_when_the_core_dies_in_a_clause_another_voice_goes_on_at_the_word(self, plant: Plant) -> None:
        plant.tts.makings.append(Making(words=2, hangs=True))
        spare = ScriptedSynthesizer()
        spare.info = EngineInfo("spare", "1", 24_000, ("en",), True, ("spare",))
        voice = FallbackSynthesizer([RemoteSynthesizer(plant.client), spare], default_names={"heart"})
        words: list[str] = []
        async for piece in voice.stream("one two three four", HEART, STYLE):
            words += [word.text for word in piece.words]
            if len(words) == 2:
                await plant.stop_core()
        assert words == ["one", "two", "three", "four"]
        assert spare.spoken == ["three four"]

    async def test_while_the_core_is_away_a_clause_fails_at_once(self, plant: Plant) -> None:
        await plant.lose_core()
        with pytest.raises(CoreLost, match="away"):
            await anext(aiter(RemoteSynthesizer(plant.client).stream("Yes", HEART, STYLE)))


class TestTheCore:
    async def test_a_full_shard_refuses_and_says_so(self, tmp_path: Path) -> None:
        async with plant_in(tmp_path, capacity=1) as plant:
            plant.tts.makings.append(Making(hangs=True))
            async with aclosing(RemoteSynthesizer(plant.client).stream("Yes please", HEART, STYLE)) as first:
                await anext(first)
                assert plant.core.serving("tts:heart") is False
                assert plant.core.serving("asr:en") is True
                with pytest.raises(EngineOverloaded, match="tts:heart: all 1 streams are in use"):
                    await anext(aiter(RemoteSynthesizer(plant.client).stream("No", HEART, STYLE)))
            assert plant.core.metrics.value("voice_core_refused_total", shard="tts:heart", reason="overloaded") == 1

    async def test_a_recogniser_refused_for_room_asks_again(self, tmp_path: Path) -> None:
        async with plant_in(tmp_path, capacity=1) as plant:
            plant.asr.texts = ["first", "second"]
            recognizer = RemoteRecognizer(plant.client)
            first, second = recognizer.stream(language="en"), recognizer.stream(language="en")
            first.push(FRAME)
            second.push(FRAME)
            with pytest.raises(EngineOverloaded, match="all 1 streams"):
                await second.final()
            first.close()
            await until(lambda: plant.core.streams == 0)
            assert (await second.final()).text == "second"

    async def test_an_edge_that_vanishes_leaves_nothing(self, plant: Plant) -> None:
        async with CoreClient(plant.address, LinkOptions(), name="other") as other:
            stream = RemoteRecognizer(other).stream(language="en")
            stream.push(FRAME)
            plant.tts.makings.append(Making(hangs=True))
            pieces = RemoteSynthesizer(other).stream("Yes please", HEART, STYLE)
            await anext(aiter(pieces))
            await until(lambda: plant.core.streams == 2)
        await until(lambda: plant.core.streams == 0)
        assert plant.asr.streams[-1].closed
        assert plant.core.metrics.value("voice_core_links") == 1
        await pieces.aclose()  # type: ignore[attr-defined]

    async def test_a_drain_lets_open_streams_end_and_takes_no_new_ones(self, plant: Plant) -> None:
        plant.asr.texts = ["still read"]
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(FRAME)
        await until(lambda: plant.core.streams == 1)
        draining = asyncio.create_task(plant.core.drain(DEADLINE_S, asyncio.Event()))
        await until(lambda: not plant.client.linked)
        assert plant.core.serving("") is False
        with pytest.raises(CoreLost, match="away"):
            await anext(aiter(RemoteSynthesizer(plant.client).stream("Yes", HEART, STYLE)))
        assert (await stream.final()).text == "still read"
        assert not draining.done()
        stream.close()
        await asyncio.wait_for(draining, DEADLINE_S)

    async def test_a_drain_ends_when_told_to_hurry(self, plant: Plant) -> None:
        stream = RemoteRecognizer(plant.client).stream(language="en")
        stream.push(FRAME)
        await until(lambda: plant.core.streams == 1)
        hurry = asyncio.Event()
        draining = asyncio.create_task(plant.core.drain(DEADLINE_S, hurry))
        hurry.set()
        await asyncio.wait_for(draining, DEADLINE_S)
        assert plant.core.streams == 1

    async def test_evidence_comes_beside_the_words_when_asked_for(self, tmp_path: Path) -> None:
        pushed: list[Pcm] = []

        class Detector:
            def open(self, on_probability, _on_failure):  # type: ignore[no-untyped-def]
                class Line:
                    def push(self, pcm: Pcm) -> None:
                        pushed.append(pcm)
                        on_probability(0.75, len(pushed) * HEARING_SAMPLES)

                    def close(self) -> None: ...

                return Line()

        async with plant_in(tmp_path, vad=Detector()) as plant:
            stream = RemoteRecognizer(plant.client, listen=True).stream(language="en")
            stream.push(np.concatenate([FRAME, FRAME[:100]]))
            stream.push(FRAME)
            await until(lambda: stream.evidence)
            assert stream.evidence == Evidence(stream._stream.number, stream.evidence.sequence, 0.75)
            await until(lambda: len(pushed) == 2)
            assert np.array_equal(np.concatenate(pushed), np.concatenate([FRAME, FRAME[:100], FRAME])[:640])
            silent = RemoteRecognizer(plant.client).stream(language="en")
            silent.push(FRAME)
            await silent.final()
            assert silent.evidence is None

    async def test_the_sound_of_a_turn_is_judged_beside_its_final_when_asked_for(self, tmp_path: Path) -> None:
        heard: list[Pcm] = []

        class Sound:
            def push(self, pcm: Pcm) -> None:
                heard.append(pcm)

            async def judge(self) -> float:
                return 0.25

        async with plant_in(tmp_path, turn_sound=Sound) as plant:
            stream = RemoteRecognizer(plant.client, listen=True).stream(language="en")
            stream.push(FRAME)
            assert (await stream.final()).sound == 0.25
            assert np.array_equal(np.concatenate(heard), FRAME)
            other = RemoteRecognizer(plant.client).stream(language="en")
            other.push(FRAME)
            assert (await other.final()).sound is None
            assert len(heard) == 1


class TestStarting:
    async def test_no_core_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentFault, match=r"core.url: .*start `rejoinder core`"):
            async with CoreClient(parse_core_address(f"shm:{tmp_path}/no"), LinkOptions(), name="edge"):
                pytest.fail("linked to nobody")

    async def test_a_core_without_the_shards_that_are_needed_is_told(self, tmp_path: Path) -> None:
        async with AsyncExitStack() as stack:
            plant = Plant(tmp_path, stack)
            await plant.start_core(**{"tts:heart": plant.tts})
            stack.push_async_callback(plant.stop_core)
            await plant.link()
            with pytest.raises(ConfigError, match="serves tts:heart, but no asr: shard"):
                RemoteRecognizer(plant.client)
            await plant.lose_core()
            await plant.start_core(**{"asr:en": plant.asr})
            await plant.client.wait_linked(DEADLINE_S)
            with pytest.raises(ConfigError, match="serves asr:en, but no tts: shard"):
                RemoteSynthesizer(plant.client)

    async def test_a_core_that_comes_back_is_found_again_and_again(
        self, plant: Plant, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(clients, "BACK_OFF_MAX_S", 0.1)
        for _ in range(3):
            await plant.lose_core()
            await plant.find_core()
            assert [p async for p in RemoteSynthesizer(plant.client).stream("Yes", HEART, STYLE)]
