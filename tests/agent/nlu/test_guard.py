from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

import agent.nlu.guard as guard_module
from agent.errors import HookError
from agent.nlu.guard import guarded
from agent.nlu.hook import Dtmf, Hangup, Listen, Send, SwitchLanguage, Transfer


class Hook:
    """A hook whose `reply` is the given function, outside any adapter."""

    def __init__(self, function: Any) -> None:
        self.reply = function


async def collect(function: Any, helpers: Any, max_chars: int = 1000) -> list[Any]:
    async with guarded(Hook(function), helpers.make_turn(), max_chars=max_chars) as reply:
        return [item async for item in reply]


HOSTILE_ITEMS = [
    (None, "None"),
    (b"bytes", "bytes"),
    (["a", "list"], "list"),
    (Hangup, "the class Hangup"),
    (object(), "object"),
    (Transfer(to=7), "Transfer.to"),  # type: ignore[arg-type]
    (Transfer(to=""), "Transfer.to"),
    (Dtmf("12x"), "Dtmf.digits"),
    (Hangup(after_playout="yes"), "Hangup.after_playout"),  # type: ignore[arg-type]
    (Listen("sometimes"), "Listen.expect"),  # type: ignore[arg-type]
    (Listen("digits", min_digits=0), "Listen.min_digits"),
    (SwitchLanguage("../etc"), "SwitchLanguage.tag"),
    (Send({"x": object()}), "Send.data"),
    (Send({"x": float("nan")}), "Send.data"),
    (Send({"x": "y" * 70_000}), "Send.data"),
    (Send("text"), "Send.data"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("item", "named"), HOSTILE_ITEMS, ids=[str(n) for n in range(len(HOSTILE_ITEMS))])
async def test_a_hostile_item_is_refused_by_name(item: Any, named: str, helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        yield "Before."
        yield item

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "Before."
    with pytest.raises(HookError, match=named):
        await anext(stream)


@pytest.mark.parametrize(
    "crash", [ValueError("x"), SystemExit(3), GeneratorExit(), asyncio.CancelledError(), OSError()]
)
async def test_whatever_a_hook_raises_becomes_a_hook_error(crash: BaseException, helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        yield "Before."
        raise crash

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "Before."
    with pytest.raises(HookError):
        await anext(stream)


async def test_the_cause_is_kept(helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        raise KeyError("lost")
        yield

    with pytest.raises(HookError, match="KeyError") as caught:
        await collect(reply, helpers)
    assert isinstance(caught.value.__cause__, KeyError)


async def test_a_reply_that_is_not_a_function_of_a_turn(helpers: Any) -> None:
    with pytest.raises(HookError, match="TypeError"):
        await collect(lambda: "no argument", helpers)
    with pytest.raises(HookError, match="AttributeError"):
        async for _ in guarded(object(), helpers.make_turn(), max_chars=10):  # type: ignore[arg-type]
            pass


@pytest.mark.parametrize(
    "answer",
    [
        lambda turn: "Hello.",
        lambda turn: ["Hello."],
        lambda turn: iter(["Hello."]),
        lambda turn: (piece for piece in ("Hello.",)),
    ],
    ids=["string", "list", "iterator", "generator"],
)
async def test_answers_that_are_not_generators_are_accepted(answer: Any, helpers: Any) -> None:
    assert await collect(answer, helpers) == ["Hello."]


async def test_an_awaitable_answer_is_awaited(helpers: Any) -> None:
    async def reply(turn: Any) -> str:
        await asyncio.sleep(0)
        return "Hello."

    assert await collect(reply, helpers) == ["Hello."]


async def test_an_async_iterator_without_aclose_is_accepted(helpers: Any) -> None:
    class Bare:
        left = 2

        def __aiter__(self) -> Any:
            return self

        async def __anext__(self) -> str:
            if not self.left:
                raise StopAsyncIteration
            self.left -= 1
            return "Again."

    assert await collect(lambda turn: Bare(), helpers) == ["Again.", "Again."]


async def test_a_hook_that_yields_while_being_closed_is_left_behind(helpers: Any, caplog: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[str]:
        try:
            yield "One."
        finally:
            yield "I will not go."

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "One."
    with caplog.at_level(logging.WARNING, "agent.nlu.guard"):
        await stream.aclose()
    assert "failed in its clean-up: RuntimeError" in caplog.text


async def test_a_hook_that_swallows_cancellation_is_left_behind(
    helpers: Any, caplog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard_module, "CLOSE_DEADLINE_S", 0.05)
    let_go = asyncio.Event()
    entered = asyncio.Event()

    async def reply(turn: Any) -> AsyncIterator[str]:
        yield "One."
        while not let_go.is_set():
            try:
                entered.set()
                await let_go.wait()
            except asyncio.CancelledError:
                continue

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    assert await anext(stream) == "One."
    waiting = asyncio.ensure_future(anext(stream))
    await entered.wait()
    waiting.cancel()
    with caplog.at_level(logging.WARNING, "agent.nlu.guard"):
        await stream.aclose()
    assert "did not end when closed" in caplog.text
    assert len(guard_module._leaving) == 1
    let_go.set()
    await asyncio.wait(guard_module._leaving, timeout=5)
    await asyncio.sleep(0)
    assert not guard_module._leaving


async def test_the_whole_hook_runs_in_one_task(helpers: Any) -> None:
    tasks = set()

    async def reply(turn: Any) -> AsyncIterator[str]:
        try:
            async with asyncio.timeout(5):
                for _ in range(3):
                    tasks.add(asyncio.current_task())
                    yield "Piece."
        finally:
            tasks.add(asyncio.current_task())

    stream = guarded(Hook(reply), helpers.make_turn(), max_chars=100)
    await asyncio.create_task(stream.__anext__())
    await asyncio.create_task(stream.__anext__())
    await stream.aclose()
    assert len(tasks) == 1


async def test_a_hook_is_never_ahead_of_its_reader(helpers: Any) -> None:
    made = 0

    async def reply(turn: Any) -> AsyncIterator[str]:
        nonlocal made
        while True:
            made += 1
            yield "x"

    async with guarded(Hook(reply), helpers.make_turn(), max_chars=100) as stream:
        await anext(stream)
        await anext(stream)
        await asyncio.sleep(0.01)
        assert made == 2


@pytest.mark.parametrize("piece", ["", Listen()])
async def test_endless_items_without_text_are_bounded_too(piece: Any, helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        while True:
            yield piece

    with pytest.raises(HookError, match="max_reply_chars"):
        await collect(reply, helpers, max_chars=50)


async def test_a_lone_surrogate_is_replaced_and_a_pair_is_joined(helpers: Any) -> None:
    said = await collect(lambda turn: ["a\ud83d", "\ud83d\ude00"], helpers)
    assert said == ["a�", "😀"]
    assert "".join(said).encode()


async def test_sent_data_is_a_copy(helpers: Any) -> None:
    data = {"items": [1]}

    async def reply(turn: Any) -> AsyncIterator[Any]:
        yield Send(data)

    (sent,) = await collect(reply, helpers)
    data["items"].append(2)
    assert sent == Send({"items": [1]})


async def test_a_hook_error_does_not_quote_the_caller(helpers: Any) -> None:
    async def reply(turn: Any) -> AsyncIterator[Any]:
        raise ValueError(f"cannot parse {turn.text}")
        yield

    with pytest.raises(HookError) as caught:
        async for _ in guarded(Hook(reply), helpers.make_turn("my card is 4111"), max_chars=10):
            pass
    assert "4111" not in str(caught.value)


async def test_deep_recursion_in_a_hook_is_an_error_like_any_other(helpers: Any) -> None:
    def forever(turn: Any) -> Any:
        return forever(turn)

    limit = sys.getrecursionlimit()
    with pytest.raises(HookError, match="RecursionError"):
        await collect(forever, helpers)
    assert sys.getrecursionlimit() == limit


async def test_a_reply_dropped_without_closing_still_ends_its_hook(helpers: Any) -> None:
    released = asyncio.Event()

    async def reply(turn: Any) -> AsyncIterator[str]:
        try:
            while True:
                yield "More."
        finally:
            released.set()

    async def careless_reader() -> None:
        async for _ in guarded(Hook(reply), helpers.make_turn(), max_chars=1000):
            await asyncio.Event().wait()

    reader = asyncio.create_task(careless_reader())
    await asyncio.sleep(0.01)
    assert not released.is_set()
    reader.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reader
    del reader
    await asyncio.wait_for(released.wait(), 5)
