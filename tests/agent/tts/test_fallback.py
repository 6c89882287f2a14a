"""Fail-over within a clause, with scripted engines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import numpy as np
import pytest

from agent.asr.protocol import EngineInfo, Word
from agent.errors import ConfigError, EngineError, EngineOverloaded, UnsupportedLanguage, UnsupportedVoice
from agent.tts.fallback import Cause, FallbackSynthesizer
from agent.tts.plain import word_spans
from agent.tts.protocol import Speech, Style, Voice

RATE = 24_000
WORD_S = 0.25
Step = int | float | Exception | str


class Scripted:
    """Speaks a word a piece. `script` says what happens at the n-th piece instead: raise, stall, be silent, babble."""

    def __init__(
        self,
        name: str = "first",
        script: dict[int, Step] | None = None,
        *,
        languages: tuple[str, ...] = ("en",),
        voices: tuple[str, ...] = ("heart",),
        rate: int = RATE,
    ) -> None:
        self.info = EngineInfo(name, "1", rate, languages, True, voices)
        self.script = script or {}
        self.asked: list[tuple[str, str]] = []
        self.closed = False
        self.ended = 0

    async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
        self.asked.append((text, voice.name))
        at = 0.0
        try:
            for i, (a, b) in enumerate(word_spans(text)):
                match self.script.get(i):
                    case BaseException() as exc:
                        raise exc
                    case "stall":
                        await asyncio.sleep(3600)
                    case "end":
                        return
                    case "silent":
                        yield Speech(np.zeros(2400, np.int16), (Word(text[a:b], at, at),))
                        continue
                    case "babble":
                        yield Speech(np.full(RATE * 600, 9000, np.int16), (Word(text[a:b], at, at + 600),))
                        continue
                    case "wordless":
                        yield Speech(np.full(2400, 9000, np.int16))
                        continue
                yield Speech(np.full(int(RATE * WORD_S), 9000, np.int16), (Word(text[a:b], at, at + WORD_S),))
                at += WORD_S
        finally:
            self.ended += 1

    async def close(self) -> None:
        self.closed = True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def speak(engine: FallbackSynthesizer, text: str, voice: Voice | None = None) -> list[Word]:
    words: list[Word] = []
    async for piece in engine.stream(text, voice or Voice(), Style()):
        words += piece.words
    return words


def pair(script: dict[int, Step], **kwargs: object) -> tuple[Scripted, Scripted, FallbackSynthesizer, Clock]:
    clock = Clock()
    first, second = Scripted("first", script), Scripted("second", voices=("robot",))
    engine = FallbackSynthesizer(
        [first, second],
        first_deadline_s={"first": 0.05},
        next_deadline_s=0.05,
        now=clock,
        **kwargs,  # type: ignore[arg-type]
    )
    return first, second, engine, clock


async def test_a_healthy_engine_speaks_alone() -> None:
    first, second, engine, _ = pair({})
    assert [w.text for w in await speak(engine, "one two three")] == ["one", "two", "three"]
    assert first.asked == [("one two three", "heart")]
    assert second.asked == []
    assert not engine.failovers


@pytest.mark.parametrize(
    ("step", "cause"),
    [
        (EngineError("broken"), Cause.ERROR),
        (ValueError("bug"), Cause.ERROR),
        (EngineOverloaded("full"), Cause.OVERLOADED),
        (UnsupportedVoice("no"), Cause.UNSUPPORTED),
        ("stall", Cause.STALLED),
        ("babble", Cause.OVERLONG),
        ("end", Cause.SILENT),
    ],
)
async def test_each_failure_before_sound_is_taken_over_and_counted(step: Step, cause: Cause) -> None:
    first, second, engine, _ = pair({0: step})
    assert [w.text for w in await speak(engine, "one two three")] == ["one", "two", "three"]
    assert second.asked == [("one two three", "")]
    assert engine.failovers == {("first", cause): 1}
    assert first.ended == 1


@pytest.mark.parametrize("step", [EngineError("broken"), "stall", "babble"])
async def test_in_mid_clause_only_the_unspoken_words_are_said(step: Step) -> None:
    _, second, engine, _ = pair({2: step})
    words = await speak(engine, "one two, three four.")
    assert [w.text for w in words] == ["one", "two,", "three", "four."]
    assert second.asked == [("three four.", "")]
    edges = [edge for word in words for edge in (word.start_s, word.end_s)]
    assert edges == sorted(edges)
    assert words[2].start_s == pytest.approx(2 * WORD_S)


async def test_ideographs_are_words_too() -> None:
    _, second, engine, _ = pair({2: EngineError("broken")})
    await speak(engine, "你好，世界。")
    assert second.asked == [("世界。", "")]


async def test_silence_throughout_counts_as_no_sound() -> None:
    _, _, engine, _ = pair({0: "silent", 1: "silent"})
    assert [w.text for w in await speak(engine, "one two")] == ["one", "two"]
    assert engine.failovers == {("first", Cause.SILENT): 1}


async def test_sound_without_word_times_is_never_said_twice() -> None:
    _, second, engine, _ = pair({0: "wordless", 1: EngineError("broken")})
    assert await speak(engine, "one two") == []
    assert second.asked == []


async def test_a_broken_engine_is_left_alone_then_tried_again() -> None:
    first, second, engine, clock = pair({0: EngineError("broken")})
    await speak(engine, "one")
    await speak(engine, "two")
    assert (len(first.asked), len(second.asked)) == (1, 2)
    clock.now += 1.01
    await speak(engine, "three")
    assert len(first.asked) == 2
    clock.now += 1.01
    await speak(engine, "four")
    assert len(first.asked) == 2, "the back-off doubles"
    clock.now += 1.01
    first.script.clear()
    await speak(engine, "five")
    await speak(engine, "six")
    assert [text for text, _ in first.asked[2:]] == ["five", "six"]


async def test_an_overloaded_engine_is_asked_for_the_next_clause() -> None:
    first, _, engine, _ = pair({0: EngineOverloaded("full")})
    await speak(engine, "one")
    await speak(engine, "two")
    assert len(first.asked) == 2


async def test_when_all_fail_the_error_names_the_last() -> None:
    engine = FallbackSynthesizer([Scripted("a", {0: EngineError("x")}), Scripted("b", {0: EngineError("y")})])
    with pytest.raises(EngineError, match=r"b: .*y"):
        await speak(engine, "one")


async def test_all_in_back_off_are_still_tried() -> None:
    first, second, engine, _ = pair({0: EngineError("broken")})
    second.script = {0: EngineError("broken")}
    for _ in range(2):
        with pytest.raises(EngineError):
            await speak(engine, "one")
    assert (len(first.asked), len(second.asked)) == (2, 2)


@pytest.mark.parametrize("text", ["", "🎉", "...", "<|x|>"])
async def test_nothing_to_say_asks_nobody(text: str) -> None:
    first, second, engine, _ = pair({})
    assert await speak(engine, text) == []
    assert first.asked == second.asked == []


async def test_markup_never_reaches_an_engine() -> None:
    first, _, engine, _ = pair({})
    await speak(engine, "<|x|>say [it](/ɪt/) [[n@U]] [sigh]")
    assert first.asked == [("say it n@U", "heart")]


async def test_languages_and_voices_choose_the_engine() -> None:
    english, mandarin = Scripted("en", voices=("heart",)), Scripted("zh", languages=("zh",), voices=("xiao",))
    engine = FallbackSynthesizer([english, mandarin], default_names={"heart"})
    await speak(engine, "你好", Voice("xiao", "zh-CN"))
    await speak(engine, "你好", Voice("heart", "zh"))
    assert [voice for _, voice in mandarin.asked] == ["xiao", ""]
    assert english.asked == []
    with pytest.raises(UnsupportedLanguage):
        await speak(engine, "hola", Voice("", "es"))
    with pytest.raises(UnsupportedVoice):
        await speak(engine, "hello", Voice("nobody", "en"))
    assert engine.info.languages == ("en", "zh")
    assert engine.info.voices == ("heart", "xiao")


@pytest.mark.parametrize("stop", ["close", "cancel"])
async def test_stopping_the_clause_ends_the_engine(stop: str) -> None:
    first, second, engine, _ = pair({1: "stall"})
    if stop == "close":
        stream = engine.stream("one two", Voice(), Style())
        await anext(stream)
        await stream.aclose()  # type: ignore[attr-defined]
    else:
        heard = asyncio.Event()
        task = asyncio.create_task(_listen(engine, heard.set))
        await heard.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert first.ended == 1
    assert second.asked == []
    assert not engine.failovers


async def _listen(engine: FallbackSynthesizer, on_piece: Callable[[], None]) -> None:
    async for _ in engine.stream("one two", Voice(), Style()):
        on_piece()


async def test_close_closes_every_engine() -> None:
    first, second, engine, _ = pair({})
    await engine.close()
    assert first.closed
    assert second.closed


def test_engines_must_agree_on_the_rate() -> None:
    with pytest.raises(ConfigError, match="16000"):
        FallbackSynthesizer([Scripted(), Scripted(rate=16_000)])
    with pytest.raises(ConfigError):
        FallbackSynthesizer([])


async def test_an_engine_that_cancels_itself_does_not_cancel_the_reply() -> None:
    _, second, engine, _ = pair({1: asyncio.CancelledError()})  # type: ignore[dict-item]
    assert [w.text for w in await speak(engine, "one two three")] == ["one", "two", "three"]
    assert second.asked == [("two three", "")]
    assert engine.failovers["first", Cause.ERROR] == 1


async def test_a_foreign_errors_text_is_not_passed_on() -> None:
    class Quoting:
        info = EngineInfo("quoting", "1", 24_000, ("en",), True, ("heart",))

        async def stream(self, text: str, voice: Voice, style: Style) -> AsyncIterator[Speech]:
            raise ValueError(f"cannot say {text!r}")
            yield

        async def close(self) -> None: ...

    with pytest.raises(EngineError) as caught:
        async for _ in FallbackSynthesizer([Quoting()]).stream("my secret", Voice(), Style()):
            pass
    assert "ValueError" in str(caught.value)
    assert "secret" not in str(caught.value)
