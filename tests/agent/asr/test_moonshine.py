"""Real speech, the real model."""

from __future__ import annotations

import asyncio
import itertools
import re
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from agent.asr.moonshine import MoonshineModel, MoonshineRecognizer
from agent.asr.reading import Reading, ReadingStopped, StopSignal
from agent.asr.rereading import RereadingStream
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.errors import EngineError, ModelMissing, UnsupportedLanguage

Pcm = npt.NDArray[np.int16]
Recording = Callable[[str], Pcm]

RATE = 16_000

CLIPS = {
    "goforward": "go forward ten meters",
    "newhome": "we must find a new home in the stars",
    "sb-spk2_snt1": "we are sure that one war is enough",
    "librivox-0880": "he was not an ill disposed young man",
    "jfk": "and so my fellow americans ask not what your country can do for you ask what you can do for your country",
}


def folded(text: str) -> str:
    return " ".join(re.sub(r"[^a-z' ]", " ", text.lower().replace("10", "ten").replace("metres", "meters")).split())


async def feed(stream: RereadingStream, pcm: Pcm) -> None:
    for at in range(0, len(pcm), 320):
        await stream.settled()
        stream.push(pcm[at : at + 320])
        await asyncio.sleep(0)


@pytest.mark.parametrize("name", CLIPS)
async def test_a_clip_is_understood(recognizer: MoonshineRecognizer, recording: Recording, name: str) -> None:
    stream = recognizer.stream(language="en")
    await feed(stream, recording(name))
    final = await stream.final()
    assert folded(final.text) == CLIPS[name]
    assert final.stable == final.text
    assert 0.5 < final.confidence <= 1
    assert final.end_of_turn is not None
    assert 0 <= final.end_of_turn <= 1
    assert [word.text for word in final.words] == final.text.split()
    assert final.words[-1].end_s <= len(recording(name)) / RATE + 0.02


async def test_partials_grow_by_their_stable_opening(
    recognizer: MoonshineRecognizer, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    # How often a stream is re-read follows the machine's load; here every reading that is due takes place.
    monkeypatch.setattr("agent.asr.rereading.COST_SHARE", 0)
    stream = recognizer.stream(language="en-US")
    pcm = recording("jfk")
    stables: list[str] = []
    revision = 0
    for at in range(0, len(pcm), 320):
        stream.push(pcm[at : at + 320])
        await stream.settled()
        partial = stream.partial()
        assert partial.revision >= revision
        assert partial.text.startswith(partial.stable)
        if partial.revision > revision:
            stables.append(folded(partial.stable))
            revision = partial.revision
    assert len(stables) > 10
    for before, after in itertools.pairwise(stables):
        assert after.startswith(before)
    assert len(stables[-1].split()) >= 18
    assert folded((await stream.final()).text).startswith(stables[-1])


async def test_the_reading_of_a_pause_is_as_good_as_one_of_everything(
    recognizer: MoonshineRecognizer, recording: Recording
) -> None:
    pcm = np.concatenate([recording("newhome"), np.zeros(RATE, np.int16)])
    streamed = recognizer.stream(language="en")
    await feed(streamed, pcm)
    at_once = recognizer.stream(language="en")
    at_once.push(pcm)
    assert folded((await streamed.final()).text) == folded((await at_once.final()).text) == CLIPS["newhome"]


async def test_streams_at_the_same_time_read_what_they_read_alone(
    recognizer: MoonshineRecognizer, recording: Recording, pool: WorkerPool
) -> None:
    async def read(name: str) -> str:
        stream = recognizer.stream(language="en")
        await feed(stream, recording(name))
        return (await stream.final()).text

    alone = {name: await read(name) for name in CLIPS}
    together = dict(zip(CLIPS, await asyncio.gather(*(read(name) for name in CLIPS)), strict=True))
    assert together == alone
    assert pool.statistics.queued == 0


async def test_a_caller_who_says_little_is_not_held_up_by_one_who_floods(
    model: MoonshineModel, recording: Recording
) -> None:
    async with WorkerPool(1, name="test-fair") as pool:
        recognizer = MoonshineRecognizer(model, pool, partial_every_ms=320)
        floods = [recognizer.stream(language="en") for _ in range(4)]
        for stream in floods:
            stream.push(recording("jfk"))
        modest = recognizer.stream(language="en")
        modest.push(recording("goforward"))
        ended: list[str] = []

        async def final(label: str, stream: RereadingStream) -> None:
            await stream.final()
            ended.append(label)

        async with asyncio.TaskGroup() as group:
            group.create_task(final("modest", modest))
            for _ in range(4):
                for stream in floods:
                    group.create_task(final("flood", stream))
        # Each flooding stream may be served once before it, never twice.
        assert ended.index("modest") <= len(floods)


async def test_speech_goes_on_after_a_final(recognizer: MoonshineRecognizer, recording: Recording) -> None:
    stream = recognizer.stream(language="en")
    await feed(stream, recording("goforward"))
    first = await stream.final()
    await feed(stream, recording("newhome"))
    second = await stream.final()
    assert folded(second.text).startswith("go forward ten meters")
    assert folded(second.text).endswith("a new home in the stars")
    assert second.revision > first.revision


@pytest.mark.parametrize("amplitude", [0, 3, 30, 300, 3000, 10_000])
@pytest.mark.parametrize("seconds", [0.02, 0.24, 0.6, 1.0, 3.0])
async def test_noise_makes_no_words(recognizer: MoonshineRecognizer, seconds: float, amplitude: int) -> None:
    noise = np.random.default_rng(5).normal(0, amplitude, round(seconds * RATE))
    stream = recognizer.stream(language="en")
    stream.push(np.clip(noise, -32768, 32767).astype(np.int16))
    assert (await stream.final()).text == ""


@pytest.mark.parametrize("hertz", [50, 60, 100, 440, 620, 1000])
async def test_a_tone_makes_no_words(recognizer: MoonshineRecognizer, hertz: int) -> None:
    tone = 3000 * np.sin(2 * np.pi * hertz * np.arange(2 * RATE) / RATE)
    stream = recognizer.stream(language="en")
    stream.push(tone.astype(np.int16))
    assert (await stream.final()).text == ""


async def test_an_empty_stream_has_an_empty_final(recognizer: MoonshineRecognizer) -> None:
    assert (await recognizer.stream(language="en").final()).text == ""


async def test_half_a_minute_is_read_in_windows(recognizer: MoonshineRecognizer, recording: Recording) -> None:
    pause = np.zeros(RATE // 2, np.int16)
    names = ["jfk", "newhome", "goforward", "jfk"]
    parts = [part for name in names for part in (recording(name), pause)]
    pcm = np.concatenate(parts)
    assert len(pcm) > 30 * RATE
    stream = recognizer.stream(language="en")
    stream.push(pcm)
    text = folded((await stream.final()).text)
    assert text.startswith("and so my fellow americans ask not")
    assert "find a new home in the stars" in text
    assert "go forward ten meters" in text
    assert text.endswith("ask what you can do for your country")


async def test_close_in_mid_decode_leaves_no_thread_busy_and_no_task(
    model: MoonshineModel, recording: Recording
) -> None:
    async with WorkerPool(1, name="test-close") as pool:
        recognizer = MoonshineRecognizer(model, pool, partial_every_ms=320)
        before = asyncio.all_tasks()
        stream = recognizer.stream(language="en")
        stream.push(recording("jfk"))
        # Its partial reading runs by the time a later job of the same pool could.
        while pool.statistics.running == 0:  # noqa: ASYNC110 - a thread takes it up; nothing to wait on
            await asyncio.sleep(0)
        await recognizer.close()
        await pool.run(lambda: None, owner="after")
        assert (pool.statistics.running, pool.statistics.queued) == (0, 0)
        assert pool.statistics.failed == 1
        assert asyncio.all_tasks() == before
        with pytest.raises(EngineError):
            await stream.final()


def test_a_reading_is_interrupted_inside_the_model(model: MoonshineModel, recording: Recording) -> None:
    stop = StopSignal()
    pcm = np.concatenate([recording("jfk")] * 2)
    threading.Timer(0.02, stop.set).start()
    # Far longer than 20 ms on any machine: the signal comes while the encoder runs.
    with pytest.raises(ReadingStopped):
        model.read(pcm, Reading(), stop)


def test_a_wrong_start_is_found_out_and_changes_nothing(model: MoonshineModel, recording: Recording) -> None:
    pcm = recording("newhome")
    honest = model.read(pcm, Reading(), StopSignal())
    misled = model.read(pcm, Reading(tokens=(400, 500, 600)), StopSignal())
    again = model.read(pcm, honest, StopSignal())
    assert honest.text == misled.text == again.text
    assert honest.confidence == pytest.approx(again.confidence, abs=0.05)


def test_a_character_spread_over_tokens_is_whole_or_absent(model: MoonshineModel) -> None:
    # Byte pieces: token n + 3 is the byte n.
    spelled = [byte + 3 for byte in "é€".encode()]
    assert model.text(spelled) == "é€"
    assert model.text(spelled[:-1]) == "é"


async def test_only_english_is_read(recognizer: MoonshineRecognizer) -> None:
    recognizer.stream(language="en-GB").close()
    with pytest.raises(UnsupportedLanguage, match="'zh'"):
        recognizer.stream(language="zh")


def test_missing_or_damaged_files_say_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ModelMissing, match="rejoinder models fetch"):
        MoonshineModel(tmp_path)
    for name in ("encoder.onnx", "cross.onnx", "decoder.onnx", "tokens.bin"):
        (tmp_path / name).write_bytes(b"\x05abc")
    with pytest.raises(ModelMissing, match="rejoinder models fetch"):
        MoonshineModel(tmp_path)


async def test_load_takes_the_settings_and_warms_up(pool: WorkerPool, recording: Recording) -> None:
    recognizer = await MoonshineRecognizer.load(Settings(), pool)
    assert recognizer.info.name == "moonshine"
    assert recognizer.info.sample_rate_hz == RATE
    stream = recognizer.stream(language="en")
    stream.push(recording("goforward"))
    assert folded((await stream.final()).text) == "go forward ten meters"
    await recognizer.close()
