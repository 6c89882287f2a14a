"""The embedded voice, with its real model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import numpy as np
import onnxruntime as ort
import pytest
from hibari import voices

from agent.config import TtsSettings
from agent.core.pool import WorkerPool
from agent.errors import UnsupportedLanguage, UnsupportedVoice
from agent.tts import hibarimodel
from agent.tts.hibari import HibariSynthesizer
from agent.tts.hibarimodel import DURATIONS, HibariModel
from agent.tts.onnxgraph import with_output
from agent.tts.plain import plain_text, word_spans
from agent.tts.protocol import Speech, Style, Voice

RATE = 24_000
LONG = (
    "Your order one two three four left our shop on Monday morning, and it should reach you tomorrow before noon. "
    "Is there anything else that I can do for you?"
)


@pytest.fixture(scope="module")
def model() -> HibariModel:
    return HibariModel("heart")


@pytest.fixture
async def pool() -> AsyncIterator[WorkerPool]:
    async with WorkerPool(2, name="test") as pool:
        yield pool


@pytest.fixture
def synthesizer(model: HibariModel, pool: WorkerPool) -> HibariSynthesizer:
    return HibariSynthesizer(model, ("heart",), pool)


async def speak(synthesizer: HibariSynthesizer, text: str, rate: float = 1.0, voice: str = "heart") -> list[Speech]:
    return [piece async for piece in synthesizer.stream(text, Voice(voice), Style(rate))]


def seconds(pieces: list[Speech]) -> float:
    return sum(len(piece.pcm) for piece in pieces) / RATE


async def test_loading_warms_up_and_states_what_it_is(pool: WorkerPool) -> None:
    synthesizer = await HibariSynthesizer.load(TtsSettings(), pool)
    assert (synthesizer.info.name, synthesizer.info.sample_rate_hz) == ("hibari", RATE)
    assert synthesizer.info.languages == ("en",)
    assert synthesizer.info.voices[0] == "heart"
    assert await speak(synthesizer, "Hello.")
    await synthesizer.close()


async def test_speech_has_sound_at_once_a_plausible_length_and_no_clipping(synthesizer: HibariSynthesizer) -> None:
    pieces = await speak(synthesizer, LONG)
    assert len(pieces) > 1
    assert 0.035 < seconds(pieces) / len(LONG) < 0.1
    for piece in pieces:
        assert piece.pcm.dtype == np.int16
        assert int(np.argmax(np.abs(piece.pcm) > 104)) < RATE * 15 // 1000
        assert np.abs(piece.pcm.astype(int)).max() < 32_000
        assert np.sqrt(np.mean((piece.pcm / 32768.0) ** 2)) > 0.03


@pytest.mark.parametrize(
    "text", [LONG, "Dr. Smith paid $3.50 at 10:30 a.m. on 5/4/2024 — OK?", "A. B? C!", "Hi 你好 there", "word - word"]
)
async def test_word_times_name_every_word_in_order_within_the_audio(synthesizer: HibariSynthesizer, text: str) -> None:
    pieces = await speak(synthesizer, text)
    words = [word for piece in pieces for word in piece.words]
    assert [word.text for word in words] == [text[a:b] for a, b in word_spans(text)]
    edges = [edge for word in words for edge in (word.start_s, word.end_s)]
    assert edges == sorted(edges)
    assert edges[0] >= 0
    assert edges[-1] <= seconds(pieces)


async def test_word_times_follow_the_sound(synthesizer: HibariSynthesizer) -> None:
    (piece,) = await speak(synthesizer, "Yes, extraordinarily.")
    yes, long = piece.words
    assert long.end_s - long.start_s > 1.3 * (yes.end_s - yes.start_s)
    inner = piece.pcm[RATE // 10 : int((long.end_s - 0.1) * RATE)].astype(float)
    power = np.convolve(np.square(inner), np.ones(RATE // 50), "valid")
    quietest_s = 0.1 + 0.01 + int(np.argmin(power)) / RATE
    assert yes.end_s - 0.15 < quietest_s < long.start_s + 0.05


async def test_a_faster_rate_is_shorter(synthesizer: HibariSynthesizer) -> None:
    slow, normal, fast = [seconds(await speak(synthesizer, LONG, rate)) for rate in (0.7, 1.0, 1.5)]
    assert slow > 1.2 * normal > 1.2 * 1.2 * fast
    assert seconds(await speak(synthesizer, LONG, 99.0)) == seconds(await speak(synthesizer, LONG, 2.0))


async def test_callers_at_once_get_what_each_gets_alone(synthesizer: HibariSynthesizer) -> None:
    sentences = [f"Caller {name}, please hold the line." for name in ("one", "two", "three", "four")]
    alone = [await speak(synthesizer, text) for text in sentences]
    together = await asyncio.gather(*(speak(synthesizer, text) for text in sentences))
    for a, b in zip(alone, together, strict=True):
        assert [x.words for x in a] == [x.words for x in b]
        assert all(np.array_equal(x.pcm, y.pcm) for x, y in zip(a, b, strict=True))


async def test_closing_the_stream_ends_the_work(synthesizer: HibariSynthesizer, pool: WorkerPool) -> None:
    stream = synthesizer.stream(LONG * 20, Voice(), Style())
    await anext(stream)
    done = pool.statistics.done
    await stream.aclose()  # type: ignore[attr-defined]
    await speak(synthesizer, "Hello.")
    assert pool.statistics.done <= done + 2
    assert pool.statistics.queued == 0


async def test_cancelling_in_mid_piece_leaves_the_engine_usable(synthesizer: HibariSynthesizer) -> None:
    task = asyncio.create_task(speak(synthesizer, LONG * 5))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await speak(synthesizer, "Hello.")


@pytest.mark.parametrize("text", ["", "🎉🎉", "你好", "...", "\x00\x00", "<|endofprompt|>", "[laughter]", "—"])
async def test_text_without_words_it_can_read_gives_no_piece(synthesizer: HibariSynthesizer, text: str) -> None:
    assert await speak(synthesizer, text) == []


@pytest.mark.parametrize(
    "text",
    [
        "9" * 400,
        "x" * 400,
        "mixed 你好 and \x00 text 🎉 " * 4,
        "a,b;c" * 40,
        "'" * 100 + "a",
        "$" * 50 + "5",
        "((" * 50 + "b",
    ],
)
async def test_hostile_text_is_spoken_without_an_error(synthesizer: HibariSynthesizer, text: str) -> None:
    pieces = await speak(synthesizer, text)
    assert seconds(pieces) > 0
    words = [word.text for piece in pieces for word in piece.words]
    plain = plain_text(text)
    assert words == [plain[a:b] for a, b in word_spans(plain)]


async def test_ten_thousand_characters_come_piece_by_piece(synthesizer: HibariSynthesizer) -> None:
    stream = synthesizer.stream("word " * 2000, Voice(), Style())
    first = await anext(stream)
    assert seconds([first]) < 40
    await stream.aclose()  # type: ignore[attr-defined]


async def test_phoneme_markup_is_not_obeyed(synthesizer: HibariSynthesizer) -> None:
    marked = await speak(synthesizer, "Say [tomato](/ɡˈʊdbˌI/) now.")
    plain = await speak(synthesizer, "Say tomato now.")
    assert np.array_equal(marked[0].pcm, plain[0].pcm)


async def test_unknown_voices_and_languages_are_refused(synthesizer: HibariSynthesizer) -> None:
    with pytest.raises(UnsupportedVoice, match="heart"):
        await speak(synthesizer, "Hello.", voice="nobody")
    with pytest.raises(UnsupportedLanguage):
        await anext(synthesizer.stream("Hola.", Voice("heart", "es"), Style()))
    assert await speak(synthesizer, "Hello.", voice="")


def test_a_known_voice_that_is_not_here_is_never_downloaded(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    def refuse(*_: object) -> str:
        raise AssertionError("tried to download")

    monkeypatch.setenv("HIBARI_HOME", str(tmp_path))
    monkeypatch.setattr(voices, "download", refuse)
    assert hibarimodel.installed_voices() == ("heart",)
    with pytest.raises(UnsupportedVoice):
        HibariModel("emma")


def test_a_model_without_durations_still_speaks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hibarimodel, "DURATIONS", "/no/such/tensor")
    ((wave, words),) = HibariModel("heart").speak("Hello there.", 1.0)
    assert len(wave) > RATE // 2
    assert words is None


def test_letters_are_spelled_and_the_article_is_not(model: HibariModel) -> None:
    read = dict(model._reader.read("code A one, at ten a m for a day"))
    assert read["A"] == "ˈA"
    assert model._reader.read("a day")[0][1] == "ɐ"
    assert model._reader.read("ten a m")[1][1] == "ˈA"


def test_an_inner_tensor_becomes_the_last_output() -> None:
    model = with_output(open(voices.voice_path("heart"), "rb").read(), DURATIONS)  # noqa: PTH123, SIM115
    session = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()][-1] == DURATIONS
