"""What the voice cache is told of a call, and what that is good for: the answer is there before it is asked for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agent import anticipation
from agent.anticipation import Anticipation, Opening
from agent.config import Settings
from agent.core.pool import WorkerPool
from agent.events import CacheUse, ReplyFinished, TurnTimings
from agent.nlu.function import FunctionNlu
from agent.nlu.hook import Hangup, Private, Session, SwitchVoice, Turn
from agent.observe.metrics import Metrics
from agent.testing import ScriptedHook, ScriptedSynthesizer, VirtualCall, virtual_time
from agent.testing.stage import Stage
from agent.tts.protocol import Style, Voice
from agent.voicecache.cache import VoiceCache, cache_folder
from agent.voicecache.journal import Journal
from agent.voicecache.learning import journal_folder

OPEN = "We open at nine."
GREETING = Turn(Session("call_1", "browser", state={"order": "12"}), "greeting")
AS = (Voice(), Style())


class Followed:
    """Writes down what it is told; knows the speech of `known`."""

    def __init__(self, *known: str) -> None:
        self.known = known
        self.told: list[tuple[Any, ...]] = []
        self.broken = False

    def use(self, text: str, voice: Voice, style: Style) -> CacheUse:
        return "hit" if text in self.known else "miss"

    def on_call(self, call: str, voice: Voice, style: Style, *, caller: str | None = None, queue: str = "") -> None:
        self._tell("call", call, voice.name, caller, queue)

    def on_turn(
        self, call: str, *, said: str = "", state: Mapping[str, object] | None = None, expected: tuple[str, ...] = ()
    ) -> None:
        self._tell("turn", said, dict(state or {}), expected)

    def on_partial(self, call: str, text: str) -> None:
        self._tell("partial", text)

    def on_reply(
        self, call: str, text: str, *, heard: str = "", private: bool = False, ready: bool | None = None
    ) -> None:
        self._tell("reply", text, heard, private, ready)

    def on_end(self, call: str) -> None:
        self._tell("end", call)

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [entry[1:] for entry in self.told if entry[0] == kind]

    def _tell(self, *entry: Any) -> None:
        self.told.append(entry)
        if self.broken:
            raise RuntimeError("lost")


class Expecting(ScriptedHook):
    """Says what it expects; it may raise or block."""

    def __init__(self, *answers: Any, expects: Any = ()) -> None:
        super().__init__(*answers)
        self.expects = expects
        self.asked: list[Turn] = []

    def expect(self, turn: Turn) -> Sequence[str]:
        self.asked.append(turn)
        if isinstance(self.expects, BaseException):
            raise self.expects
        answer: Sequence[str] = self.expects
        return answer


@asynccontextmanager
async def followed(hook: Any, dialogues: Followed, **options: Any) -> AsyncIterator[VirtualCall]:
    speculate = options.pop("speculate", False)
    settings = Settings(conversation={"speculate": speculate})
    async with Stage(hook, settings=settings) as stage:
        stage.parts = replace(stage.parts, dialogues=dialogues)
        call = await stage.call(**options)
        call.stage = stage
        yield call


@virtual_time
async def test_the_cache_is_told_a_call_from_its_beginning_to_its_end() -> None:
    dialogues = Followed(OPEN)

    def hours(turn: Turn) -> list[Any]:
        turn.session.state["state"] = "hours"
        return [f"{OPEN} And we close at six in the evening, every day."]

    async with followed(ScriptedHook(["Hello there."], hours), dialogues, caller="+1555") as call:
        await call.answer()
        await call.says("what are your hours")
        await call.answer()
        await call.pause(0.1)
    kinds = [kind for kind, *_ in dialogues.told]
    assert [kind for kind in kinds if kind != "partial"] == ["call", "reply", "turn", "reply", "turn", "end"]
    assert dialogues.of("call") == [("call_1", "heart", "+1555", "browser")]
    assert dialogues.of("reply") == [
        ("Hello there.", "", False, False),
        (OPEN, "what are your hours", False, True),
    ]
    assert dialogues.of("turn") == [
        ("Hello there.", {}, ()),
        ("And we close at six in the evening, every day.", {"state": "hours"}, ()),
    ]
    partials = [text for (text,) in dialogues.of("partial")]
    assert partials
    assert "what are your hours".startswith(partials[0])
    # All of them before the answer began.
    assert kinds.index("reply", 2) > max(index for index, kind in enumerate(kinds) if kind == "partial")


@virtual_time
async def test_a_caller_who_is_not_greeted_is_followed_from_their_first_word() -> None:
    dialogues = Followed()
    async with Stage(ScriptedHook([OPEN]), settings=Settings(conversation={"greet": False})) as stage:
        stage.parts = replace(stage.parts, dialogues=dialogues)
        call = await stage.call()
        await call.says("what are your hours")
        await call.answer()
    kinds = [kind for kind, *_ in dialogues.told]
    assert kinds[:2] == ["call", "partial"]


@virtual_time
async def test_what_comes_next_is_known_while_the_answer_still_plays() -> None:
    dialogues = Followed()
    long = "We open at nine in the morning and close at six in the evening on every day of the week."
    async with followed(ScriptedHook([long]), dialogues) as call:
        await call.until(lambda: call.audible(0.0) or None)
        assert dialogues.of("turn")
        assert not call.of(ReplyFinished)


@virtual_time
async def test_a_reply_begun_ahead_is_told_once_its_turn_is_over_and_never_if_it_was_for_nothing() -> None:
    dialogues = Followed()

    def answer(turn: Turn) -> list[Any]:
        return ["Hi."] if turn.kind == "greeting" else [f"You said {turn.text}."]

    hook = ScriptedHook(answer)
    async with followed(hook, dialogues, speculate=True) as call:
        await call.answer()
        await call.says("what are your hours")
        await call.pause(0.35)
        await call.says("on a sunday please")
        await call.answer()
        asked = [turn.text for turn in hook.turns if turn.kind == "speech"]
    replies = [heard for _, heard, _, _ in dialogues.of("reply")]
    assert replies == ["", "what are your hours on a sunday please"]
    assert len(asked) > 1


@virtual_time
async def test_a_reply_that_is_cut_short_still_tells_where_the_dialogue_stands() -> None:
    dialogues = Followed()
    parts = ["The first thing to know is this one here. ", asyncio.Event()]
    async with followed(ScriptedHook(["Hi."], parts, ["Sure."]), dialogues) as call:
        await call.answer()
        await call.types("go on")
        await call.until(lambda: len(dialogues.of("reply")) == 2 or None)
        await call.pause(1.0)
        assert len(dialogues.of("turn")) == 1
        await call.types("stop")
        await call.answer()
    assert [said for said, _, _ in dialogues.of("turn")] == [
        "Hi.",
        "The first thing to know is this one here.",
        "Sure.",
    ]


@virtual_time
async def test_a_call_that_hangs_up_expects_nothing_more() -> None:
    dialogues = Followed()
    async with followed(ScriptedHook(["Goodbye.", Hangup()]), dialogues) as call:
        await call.until(lambda: call.ended)
    assert dialogues.of("turn") == []
    assert dialogues.of("end") == [("call_1",)]


@virtual_time
async def test_another_voice_is_told_before_it_is_predicted_for() -> None:
    dialogues = Followed()
    async with followed(ScriptedHook(["Hi.", SwitchVoice("other")]), dialogues) as call:
        await call.answer()
    assert [voice for _, voice, _, _ in dialogues.of("call")] == ["heart", "other"]
    assert [kind for kind, *_ in dialogues.told].index("turn") == len(dialogues.told) - 2


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may take long to start a thread."""
    monkeypatch.setattr(anticipation, "EXPECT_DEADLINE_S", 30.0)


def anticipating(hook: Any, dialogues: Followed) -> tuple[Anticipation, list[asyncio.Task[None]]]:
    tasks: list[asyncio.Task[None]] = []

    def spawn(work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        tasks.append(asyncio.create_task(work, name=name))
        return tasks[-1]

    return Anticipation(dialogues, ScriptedSynthesizer(), hook, GREETING.session, spawn), tasks


@pytest.mark.usefixtures("patient")
async def test_what_the_hook_expects_is_asked_after_its_reply_and_private_texts_are_left_out() -> None:
    dialogues = Followed()
    hook = Expecting(expects=[OPEN, Private("Your code is nine.")])
    call, tasks = anticipating(hook, dialogues)
    call.written(GREETING, "Hello.", AS)
    await asyncio.gather(*tasks)
    assert hook.asked == [GREETING]
    assert dialogues.of("turn") == [("Hello.", {"order": "12"}, (OPEN,))]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("expects", [RuntimeError("the caller's name"), SystemExit(1), "a text", 7, [7]])
async def test_a_hook_that_expects_nonsense_costs_only_the_expectation(
    expects: Any, caplog: pytest.LogCaptureFixture
) -> None:
    dialogues = Followed()
    call, tasks = anticipating(Expecting(expects=expects), dialogues)
    call.written(GREETING, "Hello.", AS)
    await asyncio.gather(*tasks)
    assert dialogues.of("turn") == [("Hello.", {"order": "12"}, ())]
    assert "`expect` failed" in caplog.text
    assert "the caller's name" not in caplog.text


async def test_a_hook_that_thinks_about_it_for_too_long_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anticipation, "EXPECT_DEADLINE_S", 0.01)
    thinks = threading.Event()
    hook = Expecting()
    monkeypatch.setattr(hook, "expect", lambda turn: [str(thinks.wait(30))])
    dialogues = Followed()
    call, tasks = anticipating(hook, dialogues)
    call.written(GREETING, "Hello.", AS)
    await asyncio.gather(*tasks)
    thinks.set()
    assert dialogues.of("turn") == [("Hello.", {"order": "12"}, ())]


async def test_what_was_expected_of_a_turn_that_is_over_is_told_no_more() -> None:
    dialogues = Followed()
    call, tasks = anticipating(Expecting(expects=[OPEN]), dialogues)
    call.written(GREETING, "Hello.", AS)
    call.begins(Opening("Fine.", private=False, cache="miss"), "hello", AS)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert [kind for kind, *_ in dialogues.told] == ["call", "reply"]


def test_a_hook_without_expectations_is_not_asked_in_a_thread() -> None:
    assert getattr(FunctionNlu(lambda turn: None), "expect", None) is None


@virtual_time
async def test_private_text_is_spoken_and_told_to_nobody() -> None:
    dialogues = Followed()
    code = ["Thanks. ", Private("Your code is nine.")]
    async with followed(ScriptedHook([Private("Hello Anna.")], code), dialogues) as call:
        assert (await call.answer()).text == "Hello Anna."
        await call.types("my code")
        assert (await call.answer()).text == "Thanks. Your code is nine."
    assert [(text, private) for text, _, private, _ in dialogues.of("reply")] == [
        ("Hello Anna.", True),
        ("Thanks.", False),
    ]
    assert [said for said, _, _ in dialogues.of("turn")] == ["", ""]


@virtual_time
async def test_a_cache_that_fails_to_follow_costs_no_word() -> None:
    dialogues = Followed()
    dialogues.broken = True
    async with followed(ScriptedHook(["Hello."], [OPEN]), dialogues) as call:
        await call.answer()
        await call.says("what are your hours")
        assert (await call.answer()).text == OPEN
        assert not call.ended
    assert dialogues.of("end")


def contents(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path in folder.rglob("*") if path.is_file()]


@asynccontextmanager
async def cached(hook: Any, folder: Path, **cache: Any) -> AsyncIterator[tuple[Stage, VoiceCache, ScriptedSynthesizer]]:
    settings = Settings(
        conversation={"speculate": False, "filler_after_s": 0}, cache={"folder": folder, "private": "none", **cache}
    )
    engine = ScriptedSynthesizer(first_s=0.1)
    loop = asyncio.get_running_loop()
    async with (
        WorkerPool(1, name="test") as pool,
        VoiceCache.open(settings, engine, pool=pool, metrics=Metrics(), now=loop.time) as cache_,
        Stage(hook, settings=settings, synthesizer=cache_) as stage,
    ):
        stage.parts = replace(stage.parts, dialogues=cache_)
        yield stage, cache_, engine


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
        made = list(engine.spoken)
    assert made.count("Delivery is five euros.") == 1
    records = Journal(journal_folder(cache_folder(stage.settings))).read("pupil")
    last = records[1]
    assert (last.opening, last.used, last.ready) == ("Delivery is five euros.", True, True)
    assert last.partials > 0
    assert last.last_clause == "How may I help you?"


@virtual_time
async def test_a_private_clause_leaves_nothing_on_disk_or_in_what_was_learned(tmp_path: Path) -> None:
    hook = ScriptedHook(["Hello."], ["Thanks a lot. ", Private("The word is zebra.")], [Private("Zebra it is.")])
    async with cached(hook, tmp_path) as (stage, cache, _):
        call = await stage.call()
        await call.answer()
        for text in ("my word", "again"):
            await call.types(text)
            await call.answer()
        await call.hangs_up()
        await cache.settled()
        voice, style = Voice(), Style()
        assert cache.ready("The word is zebra.", voice, style)
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
