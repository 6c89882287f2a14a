"""What must hold for every adapter, behind the guard, as a call uses it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from agent.errors import HookError
from agent.nlu.guard import guarded
from agent.nlu.hook import (
    Dtmf,
    Hangup,
    HistoryItem,
    Listen,
    Play,
    Send,
    Session,
    SwitchLanguage,
    SwitchVoice,
    Transfer,
)


async def collect(nlu: Any, turn: Any, max_chars: int = 1000) -> list[Any]:
    async with guarded(nlu, turn, max_chars=max_chars) as reply:
        return [item async for item in reply]


async def read_into(heard: list[Any], nlu: Any, turn: Any, max_chars: int) -> None:
    async for item in guarded(nlu, turn, max_chars=max_chars):
        heard.append(item)  # noqa: PERF401  (what was read before an error matters)


def text_of(items: list[Any]) -> str:
    return "".join(item for item in items if isinstance(item, str))


async def test_text_pieces_arrive_in_order(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["One, ", "two, ", "three."]
    assert await collect(nlu, helpers.make_turn()) == ["One, ", "two, ", "three."]
    await asyncio.wait_for(script.released.wait(), 5)


async def test_pieces_arrive_while_the_hook_is_still_slow(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["First.", helpers.PAUSE, "Second.", helpers.HANG]
    async with guarded(nlu, helpers.make_turn(), max_chars=100) as reply:
        assert await anext(reply) == "First."
        assert await anext(reply) == "Second."
        assert not script.released.is_set()


async def test_a_crash_is_one_hook_error_after_what_was_said(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["So far.", helpers.PAUSE, helpers.CRASH, "Never."]
    reply = guarded(nlu, helpers.make_turn(), max_chars=100)
    assert await anext(reply) == "So far."
    with pytest.raises(HookError):
        await anext(reply)
    with pytest.raises(StopAsyncIteration):
        await anext(reply)


async def test_a_hook_works_again_after_a_crash(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = [helpers.CRASH]
    with pytest.raises(HookError):
        await collect(nlu, helpers.make_turn())
    script.steps = ["Fine."]
    assert await collect(nlu, helpers.make_turn()) == ["Fine."]


async def test_a_deadline_around_a_step_loses_nothing(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = [helpers.PAUSE, "Late, ", helpers.PAUSE, "but whole."]
    reply = guarded(nlu, helpers.make_turn(), max_chars=100)
    got = []
    while True:
        try:
            got.append(await asyncio.wait_for(anext(reply), 0.005))
        except TimeoutError:
            continue
        except StopAsyncIteration:
            break
    assert got == ["Late, ", "but whole."]


async def test_a_hanging_hook_is_closed_and_its_resources_are_freed(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["Wait", helpers.HANG]
    reply = guarded(nlu, helpers.make_turn(), max_chars=100)
    assert await anext(reply) == "Wait"
    waiting = asyncio.ensure_future(anext(reply))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    waiting.cancel()
    await reply.aclose()
    await asyncio.wait_for(script.released.wait(), 5)


async def test_closing_in_mid_yield_runs_the_clean_up(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["One."] + [helpers.PAUSE, "More."] * 200
    reply = guarded(nlu, helpers.make_turn(), max_chars=10_000)
    assert await anext(reply) == "One."
    await reply.aclose()
    await asyncio.wait_for(script.released.wait(), 5)
    with pytest.raises(StopAsyncIteration):
        await anext(reply)


async def test_closing_before_the_first_step_never_asks(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["Hello."]
    await guarded(nlu, helpers.make_turn(), max_chars=100).aclose()
    assert script.turns == []


async def test_an_empty_reply_is_silence(scripted: Any, helpers: Any) -> None:
    nlu, _ = scripted
    assert await collect(nlu, helpers.make_turn()) == []


async def test_actions_keep_their_place_among_the_text(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = [
        "Please hold.",
        Play("ring"),
        Send({"page": {"order": 4271}}),
        "Now in French.",
        SwitchLanguage("fr-CA"),
        SwitchVoice("luc", "calm"),
        "Votre code?",
        Listen("digits", min_digits=4),
        Dtmf("12#"),
        Transfer("sip:help@example.com"),
        Hangup(after_playout=False),
    ]
    assert await collect(nlu, helpers.make_turn()) == script.steps


async def test_characters_split_between_writes_come_whole(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["Grüße, ", "你好 ", "👋🏽 ", "naïve"]
    assert text_of(await collect(nlu, helpers.make_turn())) == "Grüße, 你好 👋🏽 naïve"


@pytest.mark.parametrize("value", [42, 1.5, True, {"foo": "bar"}])
async def test_the_wrong_type_is_named(scripted: Any, helpers: Any, value: Any) -> None:
    nlu, script = scripted
    script.steps = [helpers.Raw(value)]
    with pytest.raises(HookError, match="expected"):
        await collect(nlu, helpers.make_turn())
    await asyncio.wait_for(script.released.wait(), 5)


async def test_endless_text_is_cut_off_at_the_bound(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["bla "] * 60
    heard: list[Any] = []
    with pytest.raises(HookError, match="max_reply_chars"):
        await read_into(heard, nlu, helpers.make_turn(), 100)
    assert len(text_of(heard)) <= 100


@pytest.mark.parametrize("speculative", [False, True])
async def test_the_speculative_flag_reaches_the_hook(scripted: Any, helpers: Any, speculative: bool) -> None:
    nlu, script = scripted
    script.steps = ["Yes."]
    await collect(nlu, helpers.make_turn(speculative=speculative))
    assert script.turns[0].get("speculative", speculative) is speculative


async def test_two_calls_at_once_are_kept_apart(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["A.", helpers.PAUSE, "B."]
    turns = [
        helpers.make_turn(f"words of {name}", session=Session(name, "sip", state={"secret": name}))
        for name in ("xena", "yuri")
    ]
    assert await asyncio.gather(*(collect(nlu, turn) for turn in turns)) == [["A.", "B."], ["A.", "B."]]
    for seen in script.turns:
        document = repr(seen)
        assert ("words of xena" in document) != ("words of yuri" in document)
        assert not ("xena" in document and "yuri" in document)


async def test_history_reaches_the_hook_as_it_was_heard(scripted: Any, helpers: Any) -> None:
    nlu, script = scripted
    script.steps = ["Ok."]
    history = (
        HistoryItem("user", "when do you open"),
        HistoryItem("agent", "We open", unheard="at nine", interrupted=True),
    )
    await collect(nlu, helpers.make_turn("sorry?", history=history))
    document = repr(script.turns[0])
    assert all(words in document for words in ("when do you open", "We open", "at nine", "sorry?"))


async def test_every_adapter_greets_and_can_be_closed_twice(any_hook: Any, helpers: Any) -> None:
    reply = guarded(any_hook, helpers.make_turn("", kind="greeting"), max_chars=500)
    first = await anext(reply)
    assert isinstance(first, str)
    assert first.strip()
    await reply.aclose()
    await reply.aclose()
    await any_hook.close()
    await any_hook.close()


async def test_every_adapter_survives_every_kind_of_turn(any_hook: Any, helpers: Any) -> None:
    for kind, text in [("greeting", ""), ("speech", "\x00 ’ \U0001f44b" * 900), ("dtmf", "*12#"), ("silence", "")]:
        for item in await collect(any_hook, helpers.make_turn(text, kind=kind), max_chars=20_000):
            assert item
    await collect(any_hook, helpers.make_turn("", kind="event", data={"type": "x"}))


async def test_every_adapter_answers_concurrent_calls(any_hook: Any, helpers: Any) -> None:
    turns = [helpers.make_turn("", kind="greeting", session=Session(f"c{n}", "browser")) for n in range(12)]
    replies = await asyncio.gather(*(collect(any_hook, turn) for turn in turns))
    assert all(text_of(reply) for reply in replies)
