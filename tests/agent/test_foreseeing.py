"""What a call tells of its dialogue, and that nothing there can harm it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from agent.events import CacheUse, ReplyFinished
from agent.foreseeing import MAX_EXPECTED, Foreseeing
from agent.nlu.hook import Private, Reply, Session, SwitchVoice, Turn
from agent.testing import rehearsal, virtual_time
from agent.tts.protocol import Style, Voice

SESSION = Session("call_1", "browser", state={"state": "order"})
TURN = Turn(SESSION, "speech")


class Watcher:
    """Writes down what it is told."""

    def __init__(self, *, fails: bool = False, known: tuple[str, ...] = ()) -> None:
        self.told: list[tuple[Any, ...]] = []
        self.styles: list[str] = []
        self.fails = fails
        self.known = known

    def _note(self, *what: Any) -> None:
        self.told.append(what)
        if self.fails:
            raise RuntimeError("no")

    def on_call(self, call: str, voice: Voice, style: Style, *, caller: str | None = None, queue: str = "") -> None:
        self.styles.append(style.instruction)
        self._note("call", call, voice.name, voice.language, caller)

    def on_turn(
        self, call: str, *, said: str = "", state: Mapping[str, object] | None = None, expected: tuple[str, ...] = ()
    ) -> None:
        self._note("turn", said.strip(), dict(state or {}), expected)

    def on_partial(self, call: str, text: str) -> None:
        self._note("partial", text)

    def on_reply(
        self, call: str, text: str, *, heard: str = "", private: bool = False, ready: bool | None = None
    ) -> None:
        self._note("reply", text.strip(), heard, private, ready)

    def on_end(self, call: str) -> None:
        self._note("end", call)

    def use(self, text: str, voice: Voice, style: Style) -> CacheUse:
        return "hit" if text in self.known else "miss"

    def of(self, kind: str) -> list[tuple[Any, ...]]:
        return [what[1:] for what in self.told if what[0] == kind]


def test_what_is_expected_next_is_told_with_where_the_dialogue_stands() -> None:
    watcher = Watcher()
    asked: list[Turn] = []

    def expect(turn: Turn) -> Sequence[str]:
        asked.append(turn)
        return ["It is on its way."]

    Foreseeing(watcher, expect, "call_1").said("Which order?", SESSION, lambda: TURN)
    assert watcher.told == [("turn", "Which order?", {"state": "order"}, ("It is on its way.",))]
    assert asked == [TURN]


@pytest.mark.parametrize("bad", ["one text", 7, [1, 2], None, [b"x"]])
def test_an_expect_that_gives_nonsense_is_not_asked_again_and_harms_nothing(bad: object) -> None:
    watcher, asked = Watcher(), []
    foreseeing = Foreseeing(watcher, lambda turn: asked.append(turn) or bad, "call_1")
    for _ in range(3):
        foreseeing.said("Hello.", SESSION, lambda: TURN)
    assert len(asked) == 1
    assert watcher.of("turn") == [("Hello.", {"state": "order"}, ())] * 3


@pytest.mark.parametrize("error", [ValueError("what the caller said"), SystemExit(1), KeyboardInterrupt()])
def test_an_expect_that_raises_is_not_asked_again(error: BaseException) -> None:
    watcher, asked = Watcher(), []

    def expect(turn: Turn) -> Sequence[str]:
        asked.append(turn)
        raise error

    foreseeing = Foreseeing(watcher, expect, "call_1")
    foreseeing.said("Hello.", SESSION, lambda: TURN)
    foreseeing.said("Hello.", SESSION, lambda: TURN)
    assert len(asked) == 1
    assert len(watcher.of("turn")) == 2


def test_an_expect_that_takes_long_is_used_once_and_not_asked_again() -> None:
    watcher, asked = Watcher(), []
    times = iter([0.0, 0.2])
    foreseeing = Foreseeing(watcher, lambda turn: asked.append(turn) or ["Sure."], "call_1", clock=lambda: next(times))
    foreseeing.said("Hello.", SESSION, lambda: TURN)
    foreseeing.said("Hello.", SESSION, lambda: TURN)
    assert len(asked) == 1
    assert [expected for _, _, expected in watcher.of("turn")] == [("Sure.",), ()]


def test_a_watcher_that_fails_is_told_nothing_more() -> None:
    watcher = Watcher(fails=True)
    foreseeing = Foreseeing(watcher, None, "call_1")
    foreseeing.heard("where is")
    foreseeing.heard("where is my")
    foreseeing.ended()
    assert watcher.told == [("partial", "where is")]


class Talk:
    """A hook whose state says where it stands."""

    async def reply(self, turn: Turn) -> Reply:
        turn.session.state["state"] = turn.kind
        if turn.kind == "greeting":
            yield "Hello. How can I help?"
        elif "code" in turn.text:
            yield Private()
            yield "Your code is blue. Keep it."
        else:
            yield "It is on its way. Anything else?"


@virtual_time
async def test_a_call_tells_how_its_dialogue_goes() -> None:
    watcher = Watcher(known=("It is on its way.",))
    async with rehearsal(Talk(), foresight=watcher, caller="alice") as call:
        await call.answer()
        await call.says("where is my order")
        await call.answer()
        await call.hangs_up()
        await call.until(lambda: call.ended)
    assert watcher.told[0] == ("call", "call_1", "heart", "en", "alice")
    assert watcher.of("reply") == [
        ("Hello.", "", False, False),
        ("It is on its way.", "where is my order", False, True),
    ]
    assert watcher.of("turn") == [
        ("How can I help?", {"state": "greeting"}, ()),
        ("Anything else?", {"state": "speech"}, ()),
    ]
    partials = [text for (text,) in watcher.of("partial")]
    assert partials
    assert all("where is my order".startswith(text) for text in partials)
    assert watcher.told[-1] == ("end", "call_1")


@virtual_time
async def test_an_answer_begun_ahead_is_told_when_its_turn_is_over_and_as_ready_as_it_was_then() -> None:
    watcher = Watcher()
    async with rehearsal(Talk(), foresight=watcher) as call:
        await call.answer()
        await call.says("where is my order")
        await call.pause(0.2)
        await call.says("the blue one")
        await call.answer()
    # One reply a turn, whatever was begun for half of it.
    [_, (_, heard, _, ready)] = watcher.of("reply")
    assert heard == "where is my order the blue one"
    assert ready is False


@virtual_time
async def test_where_the_dialogue_stands_is_known_while_the_answer_still_plays() -> None:
    watcher = Watcher()
    async with rehearsal(Talk(), foresight=watcher) as call:
        await call.until(lambda: call.audible(0.0) or None)
        await call.hears("How")
        assert watcher.of("turn") == [("How can I help?", {"state": "greeting"}, ())]
        assert not call.of(ReplyFinished)
        await call.answer()
        assert len(watcher.of("turn")) == 1


@virtual_time
async def test_what_the_hook_calls_private_is_said_to_be() -> None:
    watcher = Watcher()
    async with rehearsal(Talk(), foresight=watcher) as call:
        await call.answer()
        await call.says("what is my code")
        await call.answer()
    assert watcher.of("reply")[1] == ("Your code is blue.", "what is my code", True, False)
    assert watcher.of("turn")[1][0] == ""


@virtual_time
async def test_another_voice_and_another_style_are_told_once_each() -> None:
    async def reply(turn: Turn) -> Reply:
        yield "Hello."
        yield SwitchVoice("other", "cheerful")
        yield "It is me now."

    watcher = Watcher()
    async with rehearsal(reply, foresight=watcher) as call:
        await call.answer()
        assert call.call.speaking_as == (Voice("other"), Style(1.0, "cheerful"))
    assert [voice for _, voice, _, _ in watcher.of("call")] == ["heart", "other", "other"]
    assert watcher.styles == ["", "", "cheerful"]


@virtual_time
async def test_an_interrupted_agent_has_said_what_was_heard() -> None:
    watcher = Watcher()
    async with rehearsal(Talk(), foresight=watcher) as call:
        await call.answer()
        await call.says("where is my order")
        await call.hears("way.")
        await call.says("stop it please I know")
        await call.answer()
    said = [what[0] for what in watcher.of("turn")]
    # First as it was written, then as it was cut.
    assert said[1] == "Anything else?"
    assert said[2].startswith("It is on its")
    assert "else" not in said[2]


@virtual_time
async def test_a_call_goes_on_without_its_watcher() -> None:
    async with rehearsal(Talk(), foresight=Watcher(fails=True)) as call:
        await call.answer()
        await call.says("where is my order")
        assert (await call.answer()).text == "It is on its way. Anything else?"


def test_an_expect_without_end_is_cut_and_a_generator_is_read_once() -> None:
    def endless(turn: Turn) -> Any:
        yield from (f"Opening {number}." for number in itertools.count())

    watcher = Watcher()
    Foreseeing(watcher, endless, "call_1").said("Hello.", SESSION, lambda: TURN)
    [(_, _, expected)] = watcher.of("turn")
    assert expected[:2] == ("Opening 0.", "Opening 1.")
    assert len(expected) == MAX_EXPECTED
